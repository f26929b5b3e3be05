#!/usr/bin/env python3
"""Counts what a CTest run did, from its JUnit report: `PASSED FAILED SKIPPED` on the first line, then one line per failed or skipped entry.

An entry that says how many tests it had (`N passed, N failed, N skipped`, or libcheck's line) counts as that many, any other as one. An entry
that CTest calls failed counts as one failure at least, whatever it says.
"""
import re
import sys
import xml.etree.ElementTree as ET

OWN = re.compile(r'^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?\s*$', re.M)
LIBCHECK = re.compile(r'^\d+%: Checks: (\d+), Failures: (\d+), Errors: (\d+)\s*$', re.M)


def count(case):
    """(passed, failed, skipped, lines) of one entry."""
    name, status = case.get('name'), case.get('status')
    text = '\n'.join(e.text or '' for e in case.iter('system-out'))
    passed = failed = skipped = 0
    own = OWN.findall(text)
    if own:
        passed, failed, skipped = (int(x or 0) for x in own[-1])
    else:
        for checks, failures, errors in LIBCHECK.findall(text):
            failed += int(failures) + int(errors)
            passed += int(checks) - int(failures) - int(errors)
    lines = []
    if case.find('failure') is not None or status == 'fail':
        failed = max(failed, 1)
        lines.append('FAILED   ' + name)
    elif case.find('skipped') is not None or status in ('notrun', 'disabled'):
        if status == 'notrun' and case.find('skipped') is not None and 'SKIP_RETURN_CODE' not in case.find('skipped').get('message', ''):
            failed, lines = max(failed, 1), ['FAILED   %s (%s)' % (name, case.find('skipped').get('message') or 'not run')]
        else:
            skipped = max(skipped, 1)
            passed = failed = 0
    elif passed + failed + skipped == 0:
        passed = 1
    if skipped:
        reasons = sorted({m.split('  ')[-1].strip() for m in re.findall(r'^skipped[: ].*$', text, re.M)})
        lines.append('SKIPPED  %s: %d (%s)' % (name, skipped, '; '.join(reasons) or 'no reason given'))
    return passed, failed, skipped, lines


def main():
    totals, lines = [0, 0, 0], []
    for case in ET.parse(sys.argv[1]).getroot().iter('testcase'):
        *numbers, said = count(case)
        totals = [a + b for a, b in zip(totals, numbers)]
        lines += said
    print(*totals)
    print('\n'.join(lines))


main()
