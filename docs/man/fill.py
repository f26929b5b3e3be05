#!/usr/bin/env python3
"""Makes a manual page from its source: @COMMANDS@, @OPTIONS@ and @VERSION@ are filled in from what the programs say of themselves, so
that there is one place where an option or a command is described.

usage: fill.py SOURCE.in PAGE BIN VERSION      BIN: the directory of coterie and coteried
"""
import re
import subprocess
import sys


def ask(bin_dir, program, *argv):
    return subprocess.run(['%s/%s' % (bin_dir, program), *argv], check=True, capture_output=True, text=True).stdout


def escape(text):
    return text.replace('\\', '\\e').replace('…', '...').replace('-', '\\-').replace('“', '"').replace('”', '"')


def guard(line):
    """A line of text that begins with a dot or a quote is no macro."""
    return '\\&' + line if line[:1] in ('.', "'") else line


def literal(lines):
    return ['.Bd -literal -compact', *(guard(escape(line[2:])) for line in lines), '.Ed']


def blocks(text):
    """Indented lines stay as they are; the others are text."""
    out, held = [], []
    for line in text.rstrip('\n').split('\n') + ['']:
        if line.startswith('  '):
            if not held and out and out[-1] != '.Pp':
                out.append('.Pp')
            held.append(line)
            continue
        if held:
            out += literal(held) + (['.Pp'] if line else [])
            held = []
        if line:
            out.append(guard(escape(line)))
        elif out and out[-1] != '.Pp':
            out.append('.Pp')
    while out and out[-1] == '.Pp':
        out.pop()
    return out


def commands(bin_dir):
    """A list item for each command of `coterie --help`."""
    out = ['.Bl -tag -width Ds']
    for line in ask(bin_dir, 'coterie', '--help').split('\n'):
        if not re.match(r'  [a-z]', line):
            continue
        name = line.split()[0]
        usage, summary, text = ask(bin_dir, 'coterie', name, '--help').split('\n', 2)
        arguments = usage.split(' ', 3)[3] if usage.count(' ') > 2 else ''
        out += ['.It Ic %s%s' % (name, ' No ' + escape(arguments) if arguments.strip() else ''), escape(summary[:1].upper() + summary[1:]) + '.']
        more = blocks(text.strip('\n'))
        if more:
            out += ([] if more[0] == '.Pp' else ['.Pp']) + more
    return out + ['.El']


def options(bin_dir):
    """A list item for each option of the configuration file: two lines of `coteried --help`."""
    lines = ask(bin_dir, 'coteried', '--help').split('\n')
    at = next(i for i, line in enumerate(lines) if line.startswith('Options,')) + 1
    out = ['.Bl -tag -width Ds']
    while at + 1 < len(lines) and lines[at].startswith('  '):
        name, text = lines[at].split(None, 1)
        valid = lines[at + 1].strip().strip('()')
        values, _, default = valid.partition('; default ')
        out += ['.It Ic %s' % name, escape(text[:1].upper() + text[1:]) + '.', escape(values[:1].upper() + values[1:]) +
                ('; default: %s.' % escape(default) if default else '.')]
        at += 2
    return out + ['.El']


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    source, page, bin_dir, version = sys.argv[1:]
    out = []
    with open(source, encoding='utf-8') as f:
        for line in f.read().rstrip('\n').split('\n'):
            if line == '@COMMANDS@':
                out += commands(bin_dir)
            elif line == '@OPTIONS@':
                out += options(bin_dir)
            else:
                out.append(line.replace('@VERSION@', version))
    with open(page, 'w', encoding='utf-8') as f:
        f.write('\n'.join(out) + '\n')


if __name__ == '__main__':
    main()
