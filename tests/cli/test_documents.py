"""Manual pages render and know what the programs know; every command that a document shows is run."""
import os
import re
import shutil
import subprocess
from pathlib import Path

from daemon import BIN
from harness import eq, test
from machine import Skip

ROOT = Path(__file__).resolve().parents[2]
PAGES = ('coterie.1', 'coteried.8', 'coterie.conf.5', 'mount.coterie.8')


def page(name):
    path = BIN.parent / 'man' / name
    if not path.exists():
        raise AssertionError('%s is not built' % path)
    return path


def output(*argv):
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


@test(needs_fuse=False)
def pages_render_without_warnings(t):
    if not shutil.which('man'):
        raise Skip('no man')
    for name in PAGES:
        done = subprocess.run(['man', '--warnings', '-l', str(page(name))], capture_output=True, text=True,
                              env={**os.environ, 'LC_ALL': 'C.UTF-8', 'MANWIDTH': '80', 'MANPAGER': 'cat'})
        eq((name, done.returncode, done.stderr), (name, 0, ''))
        eq(done.stdout.count('SEE ALSO'), 1, name)
        eq('@' in page(name).read_text().replace('coterie@', ''), False, '%s: something was not filled in' % name)


def items(text, macro):
    """The words behind a macro of list items: .It Ic name, .It Fl -name."""
    found = set()
    for line in text.split('\n'):
        if line.startswith('.It ') and macro in line:
            found |= {w.replace('\\', '').lstrip('-') for w in re.findall(macro + r' (\S+)', line)}
            if macro == 'Fl':  # Fl f , Fl -foreground
                found |= {w.replace('\\', '').lstrip('-') for w in re.findall(r'Fl (\S+)', line)}
    return found


@test(needs_fuse=False)
def pages_know_every_command_and_option(t):
    helped = set(re.findall(r'^  ([a-z][a-z-]*)', output(str(BIN / 'coterie'), '--help'), re.M))
    text = page('coterie.1').read_text()
    commands = text[text.index('.Sh COMMANDS'):text.index('.Sh JSON')]
    eq(items(commands, 'Ic'), helped)
    eq(items(text, 'Fl'), {'run-dir', 'timeout', 'json', 'help', 'h', 'version'})
    flags = set(re.findall(r'(?<=[ ,])--([a-z-]+)', output(str(BIN / 'coterie'), '--help')))
    eq(flags - {'run-dir', 'timeout', 'json', 'help', 'version'} - set(re.findall(r'--([a-z-]+)', commands.replace('\\', ''))), set())

    usage = output(str(BIN / 'coteried'), '--help')
    head, tail = usage.split('Options, as', 1)
    eq(items(page('coterie.conf.5').read_text(), 'Ic'), set(re.findall(r'^  ([a-z_]+)  ', tail, re.M)))
    eq(items(page('coteried.8').read_text(), 'Fl'),
       set(re.findall(r'(?:(?<=  )|(?<=, ))-{1,2}([a-zA-Z-]+)', head.split('\n\n', 1)[1])))
    for name in re.findall(r'^\.It Ic (\S+)', page('coterie.conf.5').read_text(), re.M):
        done = subprocess.run([str(BIN / 'coteried'), '--check-config', '--' + name, 'no such value at all, I hope'], capture_output=True, text=True)
        eq('unknown option' in done.stderr, False, name)


@test(needs_fuse=False)
def every_command_has_help_with_examples(t):
    for name in re.findall(r'^  ([a-z][a-z-]*)', output(str(BIN / 'coterie'), '--help'), re.M):
        lines = output(str(BIN / 'coterie'), name, '--help').split('\n')
        eq(lines[0].startswith('usage: coterie ' + name), True, name)
        eq(any(line.startswith('  ') and 'coterie ' + name in line for line in lines), True, '%s: no example' % name)


@test(needs_fuse=False)
def what_documents_name_is_there(t):
    """Links, and files of the tree in `backquotes`."""
    gone = []
    for path in [ROOT / 'README.md', ROOT / 'NEWS.md', *sorted((ROOT / 'docs').rglob('*.md'))]:
        text = path.read_text()
        for link in re.findall(r'\]\(([^)#:]+)(?:#[^)]*)?\)', text):
            if not (path.parent / link).exists():
                gone.append('%s: link to %s' % (path.name, link))
        for name in re.findall(r'`((?:src|docs|tests|tools|bench|systemd|cmake)/[\w./*-]+)`', text):
            if not any(ROOT.glob(re.sub(r'NAME', '*', name).rstrip('/'))):
                gone.append('%s: %s' % (path.name, name))
    eq(gone, [])


# --- commands in documents

def shown(text, block):
    """Lines of commands in the blocks of a text."""
    for line in text.split('\n'):
        match = block.match(line)
        if match:
            command = re.sub(r'(\s{3,}|\s+# ).*', '', match.group(1).strip())  # what is behind it explains it
            command = re.sub(r'^(sudo )?(build/bin/)?', '', re.sub(r'^(node \d|all):\s+', '', command))
            if re.match(r'(coterie|coteried|mount -t coterie)( |$)', command):
                yield command


def all_shown():
    found = {}
    for path in [ROOT / 'README.md', *sorted((ROOT / 'docs').glob('*.md'))]:
        for command in shown(path.read_text(), re.compile(r'    (\S.*)')):
            found.setdefault(command, path.name)
    for name in PAGES:
        literal = re.findall(r'^\.Bd -literal.*?\n(.*?)^\.Ed', page(name).read_text().replace('\\-', '-').replace('\\e', '\\'), re.M | re.S)
        for command in shown('\n'.join(literal), re.compile(r'(\S.*)')):
            found.setdefault(command, name)
    return found


# A cluster's; tests/cluster runs them.
CLUSTER = [r'coterie cluster (?!init --db|join --db)', r'coteried --db /var/lib/coterie/tree.db /mnt/coterie$']
# They want a terminal or never end: the command's own test runs them.
OWN_TEST = [r'coterie top$', r'coterie watch', r'coterie lock ', r'coterie conflicts (show|diff|apply|drop)( |$)', r'coterie nodes']


class Stage:
    """Paths as documents have them, below the test's directory."""

    def __init__(self, t):
        self.t = t
        self.d = t.daemon('stage', start=False)
        self.number = 0
        for directory in ('var-lib', 'etc', 'backups', 'cwd'):
            (t.dir / directory).mkdir()
        (t.dir / 'etc' / 'coterie.conf').write_text('standalone = yes\ndb = %s\nmountpoint = %s\nrun_dir = %s\n' % (
            self.d.db, self.d.mnt, self.d.run_dir))

    def place(self, command):
        places = {'/var/lib/coterie': self.lib, '/mnt/coterie': self.d.mnt, '/etc/coterie.d': self.d.mnt, '/etc/coterie': self.t.dir / 'etc',
                  '/var/backups': self.t.dir / 'backups', 'FILE': self.t.dir / 'in.backup'}
        return re.sub('|'.join(sorted(map(re.escape, places), key=len, reverse=True)), lambda m: str(places[m.group()]), command)

    def fresh(self):
        """Another place for databases and results."""
        self.number += 1
        self.lib = self.t.dir / 'var-lib' / str(self.number)
        self.lib.mkdir()
        self.cwd = self.t.dir / 'cwd' / str(self.number)
        self.cwd.mkdir()
        for path in (self.t.dir / 'backups').iterdir():
            path.unlink()

    def run(self, command, origin):
        command = self.place(command)
        eq(re.findall(r'> *[/~]\S*', command.replace(str(self.t.dir), '')), [], 'it would write outside of the test')
        env = {**os.environ, 'HOME': str(self.cwd), 'PATH': '%s:%s' % (BIN.resolve(), os.environ['PATH']), 'COTERIE_RUN_DIR': str(self.d.run_dir)}
        done = subprocess.run(['bash', '-c', 'set -o pipefail; ' + command], cwd=self.cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=60)
        if done.returncode != 0:
            raise AssertionError('%s shows `%s`: exit %d: %s%s' % (origin, command, done.returncode, done.stderr, done.stdout[-500:]))


def run_online(stage, command, origin):
    """The daemon runs; what the command reads is there."""
    if not stage.d.alive():
        stage.d.start()
    (stage.cwd / 'old').mkdir()
    if ' load ' in command:
        stage.d.coterie('dump', stage.cwd / 'tree.tar')
        shutil.copy(stage.cwd / 'tree.tar', stage.t.dir / 'backups')
        subprocess.run('zstd -q tree.tar', shell=True, cwd=stage.cwd, check=True)
        old = stage.d.mnt / 'old'
        if '--into' not in command and '--merge' not in command:  # into an empty tree
            for path in stage.d.mnt.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        else:
            shutil.rmtree(old, ignore_errors=True)
            old.mkdir()
    if '--from' in command:
        stage.d.coterie('backup', stage.cwd / 'coterie.backup')
    if ' --replace' in command:
        (stage.t.dir / 'backups' / 'coterie.backup').write_text('an old one')
    command = re.sub(r'(coterie bench write .*--max-time) \d+', r'\1 1', command)
    if ' bench ' in command:
        (stage.d.mnt / 'tmp').mkdir(exist_ok=True)
    stage.run(command, origin)
    if command == 'coterie stop':
        stage.d.expect_alive = False
        stage.d.wait_gone()


def run_offline(stage, command, origin):
    """On databases that nobody uses."""
    if ' restore ' in command:
        if not stage.d.alive():
            stage.d.start()
        stage.d.coterie('backup', stage.t.dir / 'in.backup', '--replace')
        shutil.copy(stage.t.dir / 'in.backup', stage.t.dir / 'backups' / 'coterie.backup')
    elif 'probe-sync' in command:
        command = re.sub(r'(coterie probe-sync \S+)( --seconds \d+)?', r'\1 --seconds 1', command)
    elif ' check ' in command:
        source = stage.t.daemon('for-check-%d' % stage.number)
        source.stop()
        for path in source.db.parent.iterdir():
            shutil.copy(path, stage.lib)
    stage.run(command, origin)


def run_daemon(stage, command, origin):
    """It starts, answers, and stops."""
    if stage.d.alive():
        stage.d.stop()
    if command.startswith('mount'):
        command = command.replace('mount -t coterie', 'mount.coterie').replace('-o standalone ', '')
        command += ' -o standalone,run_dir=%s' % stage.d.run_dir
    elif '--check-config' not in command:
        command = '%s --run-dir %s --log-file %s' % (command, stage.d.run_dir, stage.d.log)
    stage.run(command, origin)
    if '--check-config' not in command:
        eq(os.path.ismount(stage.d.mnt), True, command)
        stage.d.coterie('stop')
        eq(os.path.ismount(stage.d.mnt), False, command)


@test(timeout=300)
def every_command_shown_is_run(t):
    stage = Stage(t)
    ran = 0
    for command, origin in all_shown().items():
        if any(re.match(pattern, command) for pattern in CLUSTER + OWN_TEST):
            continue
        missing = [words[0] for words in (part.split() for part in re.split(r'\| *', command)) if words and not shutil.which(words[0])
                   and not (BIN / words[0]).exists()]
        if missing:
            t.note('not run, no %s here: %s' % (missing[0], command))
            continue
        stage.fresh()
        if re.match(r'coteried|mount', command):
            run_daemon(stage, command, origin)
        elif re.match(r'coterie (check|restore|probe-sync|cluster (init|join) --db)', command):
            run_offline(stage, command, origin)
        else:
            run_online(stage, command, origin)
        ran += 1
    eq(ran > 25, True, ran)
    t.note('%d commands' % ran)
