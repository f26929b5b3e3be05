"""doctor, completion: what an administrator has at hand every day."""
import json
import shutil
import subprocess

from daemon import BIN
from harness import eq, test
from machine import Skip


@test
def doctor(t):
    d = t.daemon()
    findings = json.loads(d.coterie('doctor', '--json').stdout)
    levels = {f['check']: f['level'] for f in findings}
    eq({levels[c] for c in ('version', 'writable', 'mount', 'cluster', 'disk', 'tree')}, {'ok'})
    eq(all(f['remedy'] for f in findings if f['level'] != 'ok'), True)
    table = d.coterie('doctor').stdout.split('\n')
    eq(len(table), len(findings) + 2)
    column = table[0].index('FINDING')
    eq({line[column - 1] for line in table if line}, {' '}, 'the columns align')


@test
def doctor_finds(t):
    d = t.daemon(options=['--read-only', '--sync-level', 'none'])
    (d.db.parent / (d.db.name + '-conflicts')).mkdir()
    (d.db.parent / (d.db.name + '-conflicts') / '1-2-3').write_text('')
    done = d.coterie('doctor', '--json', check=False)
    found = {f['check']: f['level'] for f in json.loads(done.stdout)}
    eq((done.returncode, found['writable'], found['sync level'], found['conflicts']), (1, 'fault', 'advice', 'advice'))
    d.stop()
    eq(d.coterie('doctor', check=False).returncode, 3)


def script(shell):
    return subprocess.run([str(BIN / 'coterie'), 'completion', shell], check=True, capture_output=True, text=True).stdout


@test(needs_fuse=False)
def bash_completes(t):
    def complete(*words):
        line = script('bash') + 'COMP_WORDS=(coterie %s); COMP_CWORD=%d; _coterie; printf "%%s\\n" "${COMPREPLY[@]}"' % (
            ' '.join(w or "''" for w in words), len(words))
        return subprocess.run(['bash', '-c', line], check=True, capture_output=True, text=True, cwd=t.dir).stdout.split()
    eq(complete('stat'), ['status'])
    eq(complete('--run-dir', '/x', 'conf'), ['conflicts'])
    eq('conflicts' in complete(''), True)
    eq(complete('conflicts', 'ap'), ['apply'])
    eq(complete('backup', '--r'), ['--replace'])
    eq(complete('sync', '--c'), ['--checkpoint'])
    (t.dir / 'some-file').write_text('')
    eq(complete('check', 'some'), ['some-file'])


@test(needs_fuse=False)
def shells_read_their_scripts(t):
    ran = 0
    for shell in ('bash', 'zsh', 'fish'):
        text = script(shell)
        eq(text.count('conflicts') > 0, True)
        if shutil.which(shell):
            (t.dir / shell).write_text(text)
            done = subprocess.run([shell, '-n', str(t.dir / shell)], capture_output=True, text=True)
            eq((shell, done.returncode, done.stderr), (shell, 0, ''))
            ran += 1
    eq(subprocess.run([str(BIN / 'coterie'), 'completion', 'tcsh'], capture_output=True).returncode, 2)
    if not ran:
        raise Skip('no shell')
