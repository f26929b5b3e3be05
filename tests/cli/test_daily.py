"""doctor, top, completion: what an administrator has at hand every day."""
import fcntl
import json
import os
import pty
import shutil
import struct
import subprocess
import termios

from daemon import BIN, wait_until
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


@test
def top_in_lines(t):
    d = t.daemon()
    for i in range(20):
        (d.mnt / str(i)).write_text('x')
    lines = [json.loads(line) for line in d.coterie('top', '--count', '2', '--interval', '0.1', '--json').stdout.strip().split('\n')]
    eq([line['sequence'] for line in lines], [40, 40])
    eq('operations' in lines[0] and lines[0]['seconds'] >= 0.1, True)
    eq(d.coterie('top', '--count', '1', '--interval', '0.1').stdout.startswith('sequence 40'), True)
    for wrong in (['--count'], ['--count', '0'], ['--interval', '0'], ['--interval', 'x'], ['x']):
        eq(d.coterie('top', *wrong, check=False).returncode, 2, wrong)


@test
def top_on_a_terminal(t):
    d = t.daemon()
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)

    def resize(rows, columns):
        fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack('HHHH', rows, columns, 0, 0))
    resize(30, 100)
    p = subprocess.Popen([str(BIN / 'coterie'), '--run-dir', str(d.run_dir), 'top', '--interval', '0.2'], stdin=slave, stdout=slave,
                         start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
    os.set_blocking(master, False)
    seen = b''

    def see(text):
        nonlocal seen
        try:
            seen += os.read(master, 65536)
        except BlockingIOError:
            pass
        return text in seen

    wait_until(lambda: see(b'NODE'), 20, 'the first picture')
    eq(seen.count(b'\033[2J'), 1, 'it is cleared once, at the beginning')
    wait_until(lambda: see(b'NODE') and seen.count(b'\033[H') >= 3, 20, 'pictures')
    eq(seen.count(b'\033[2J'), 1, 'later ones are drawn over it')
    resize(10, 40)
    seen = b''
    wait_until(lambda: see(b'\033[J') and seen.count(b'\033[J') >= 3, 20, 'pictures of another size')
    picture = seen.split(b'\033[H')[-2]
    eq(picture.count(b'\r\n') <= 9, True, picture)
    eq(max(len(line.replace(b'\033[K', b'').replace(b'\033[J', b'').strip(b'\r')) for line in picture.split(b'\r\n')) <= 40, True, picture)
    os.write(master, b'q')
    wait_until(lambda: p.poll() is not None, 20, 'the end')
    see(b'')
    eq((p.returncode, seen.endswith(b'\033[?25h\033[?1049l'), termios.tcgetattr(slave) == before), (0, True, True))
    os.close(master)
    os.close(slave)
