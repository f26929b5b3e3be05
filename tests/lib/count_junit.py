#!/usr/bin/env python3
"""Prints `PASSED FAILED SKIPPED [NAMES OF FAILURES]` for a JUnit report that CTest wrote."""
import sys
import xml.etree.ElementTree as ET


def main():
    passed, skipped, failed = 0, 0, []
    for case in ET.parse(sys.argv[1]).getroot().iter('testcase'):
        status = case.get('status')
        if case.find('failure') is not None or status == 'fail':
            failed.append(case.get('name'))
        elif case.find('skipped') is not None or status in ('notrun', 'disabled'):
            skipped += 1
        else:
            passed += 1
    print(passed, len(failed), skipped, ' '.join(failed))


main()
