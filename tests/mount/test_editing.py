"""Everyday programs that change single files, on the mount: the result is asserted, and again after a restart of the daemon. Each is skipped
if it is not installed; --on ext4 shows that the test itself is right."""
import mmap
import os
import pty
import select
import shutil
import subprocess
import time
from pathlib import Path

from harness import eq, test
from machine import need_program
from programs import and_after_a_restart, sh


def shows(t, script, wanted):
    """What the script prints, now and after a restart."""
    and_after_a_restart(t, lambda: eq(sh(t, script).splitlines(), wanted))


CONF = "printf 'a=1\\nb=2\\n' >conf; chmod 640 conf; chown 5:6 conf; setfattr -n user.note -v kept conf; "
LOOK = "cat conf; stat -c '%a %u %g' conf; getfattr --only-values -n user.note conf; echo; ls -A"


@test
def vim_saves(t):
    vim = next((v for v in ('vim.basic', 'vim.tiny') if shutil.which(v)), 'vim')
    need_program(vim)
    for how in ('set nobackup writebackup backupcopy=auto', 'set backup backupcopy=yes', 'set backup backupcopy=no'):
        sh(t, 'rm -f conf*; ' + CONF + vim + " -u NONE -es -N -c '%s backupskip=' -c '%%s/b=2/b=3/' -c 'wq' conf" % how)
        shows(t, 'cat conf; stat -c %a:%u:%g conf; ls -A', ['a=1', 'b=3', '640:5:6', 'conf'] + (['conf~'] if 'set backup' in how else []))


def type_into(argv, cwd, keys, timeout=20):
    """Runs a program on a terminal of its own and types at it, each text when the screen has been quiet for a moment."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        os.environ['TERM'] = 'xterm'
        os.execvp(argv[0], argv)
    end = time.monotonic() + timeout
    screen, keys = b'', list(keys)
    while time.monotonic() < end:
        if select.select([terminal], [], [], 0.3)[0]:
            try:
                screen += os.read(terminal, 65536)
            except OSError:
                break
        elif keys:
            os.write(terminal, keys.pop(0))
    os.close(terminal)
    status = os.waitpid(pid, 0)[1]
    eq((status, keys), (0, []), screen[-500:])


@test
def nano_saves(t):
    need_program('nano', 'setfattr')
    sh(t, CONF)
    type_into(['nano', '--ignorercfiles', '--backup', 'conf'], t.tree, [b'first=0\r', b'\x0f', b'\r', b'\x18'])
    shows(t, LOOK, ['first=0', 'a=1', 'b=2', '640 5 6', 'kept', 'conf', 'conf~'])


@test
def stream_editors(t):
    need_program('ed', 'perl', 'patch')
    sh(t, '''
        printf 'a=1\\nb=2\\nc=3\\n' >conf; chmod 640 conf; chown 5:6 conf
        sed -i s/a=1/a=9/ conf; sed -i.bak s/b=2/b=8/ conf; perl -i.orig -pe 's/c=3/c=7/' conf
        printf '1a\\nfrom ed\\n.\\nw\\nq\\n' | ed -s conf
        cp conf other; sed s/c=7/c=6/ conf >new; diff -u conf new >change || true; patch -s -b other change
        ''')
    shows(t, "cat conf; stat -c '%a %u %g' conf; cat other; cat other.orig | wc -l; ls -A",
          ['a=9', 'from ed', 'b=8', 'c=7', '640 5 6', 'a=9', 'from ed', 'b=8', 'c=6', '4', 'change', 'conf', 'conf.bak', 'conf.orig', 'new', 'other',
           'other.orig'])


@test
def coreutils(t):
    sh(t, '''
        echo old >conf; chmod 640 conf
        install -m 755 -o 3 -g 4 conf installed; install -d -m 700 dir; install -D -m 600 conf x/y/z; install -b -m 644 conf installed
        t=$(mktemp -p .); echo new >"$t"; mv "$t" conf
        cp --reflink=auto --sparse=always conf copied; cmp conf copied; cp -l conf hard; cp -s "$PWD/conf" soft; cp --backup=numbered copied hard
        dd if=/dev/urandom of=dd bs=4k count=30 conv=fsync status=none; truncate -s 5000 dd
        seq 5000 >s; sort -r s -o s; split -l 1000 s part.; tac s | sed -n 1p >tac; ln -sf conf link; touch -d 1975-01-01T00:00:01Z copied
        printf x | tee -a conf >/dev/null; shred -n 1 -u part.aa; mv -T part.ab part.aa; rm -rf x; mkfifo p; (cat <p >out &) ; echo through >p; sleep 0.2
        ''')
    shows(t, '''
        cat conf; echo; stat -c '%a %u %g' installed installed~; stat -c %a dir; head -1 s; cat tac out; readlink link; stat -c '%s %h' dd hard
        stat -c %Y copied; wc -l <part.aa; cat 'hard.~1~'; echo; ls -A | wc -l''',
          ['new', 'x', '644 0 0', '755 3 4', '700', '999', '1', 'through', 'conf', '5000 1', '4 1', '157766401', '1000', 'new', 'x', '18'])


@test
def python_atomic_replace(t):
    for i in range(100):
        with open(t.tree / 'tmp', 'w') as f:
            f.write('version %d' % i)
            f.flush()
            os.fsync(f.fileno())
        os.replace(t.tree / 'tmp', t.tree / 'file')
        eq(Path(t.tree / 'file').read_text(), 'version %d' % i)
    and_after_a_restart(t, lambda: eq(Path(t.tree / 'file').read_text(), 'version 99'))


@test
def mmap_writer(t):
    path = t.tree / 'ring'
    with open(path, 'w+b') as f:
        f.truncate(65536)
        with mmap.mmap(f.fileno(), 65536) as m:
            for i in range(64):
                m[i * 1024:i * 1024 + 4] = b'%04d' % i
                if i % 16 == 0:
                    m.flush()
    and_after_a_restart(t, lambda: eq([path.read_bytes()[i * 1024:i * 1024 + 4] for i in range(64)], [b'%04d' % i for i in range(64)]))


# --- locks

@test
def flock_and_lock_files(t):
    sh(t, '''
        echo 0 >count
        for worker in 1 2 3 4; do
            (for i in $(seq 25); do (flock 9; n=$(<count); echo $((n + 1)) >count) 9>lock; done) &
        done
        wait
        (flock -n 9; ! flock -n lock true; flock -s -w 0 lock true || true) 9>lock
        ''')
    shows(t, 'cat count; flock -n lock echo free', ['100', 'free'])


@test
def dotlockfile_excludes(t):
    need_program('dotlockfile')
    sh(t, '''
        echo 0 >count
        for worker in 1 2 3; do
            (for i in $(seq 5); do dotlockfile -l -r 50 -i 1 mail.lock; n=$(<count); echo $((n + 1)) >count; dotlockfile -u mail.lock; done) &
        done
        wait
        dotlockfile -l mail.lock; ! dotlockfile -l -r 0 mail.lock
        ''')
    shows(t, 'cat count; ls -A', ['15', 'count', 'mail.lock'])


@test
def exclusive_create_as_crontab_does(t):
    """Twenty that all want to create the lock: one gets it, writes beside and renames."""
    sh(t, '''
        for i in $(seq 20); do
            (set -C; if echo $i >tab.lock; then echo "by $i" >tab.new; mv tab.new tab; echo $i >>winners; fi) 2>/dev/null &
        done
        wait
        ''')
    shows(t, 'wc -l <winners; test "by $(cat winners)" = "$(cat tab)"; test "$(cat tab.lock)" = "$(cat winners)"; ls -A', ['1', 'tab', 'tab.lock', 'winners'])


# --- programs that keep configuration

@test
def logrotate_rotates(t):
    need_program('logrotate')
    sh(t, '''
        cat >rules <<END
$PWD/log {
    rotate 2
    compress
    delaycompress
    create 640 5 6
    missingok
}
END
        chmod 755 .; for i in 1 2 3 4; do echo "entry $i" >>log; logrotate -f -s "$PWD/state" rules; done
        ''')
    shows(t, "cat log.1; zcat log.2.gz; stat -c '%a %u %g %s' log; ls -A; grep -c /log state", ['entry 4', 'entry 3', '640 5 6 0', 'log', 'log.1', 'log.2.gz',
                                                                                               'rules', 'state', '1'])


@test
def keys_and_certificates(t):
    need_program('ssh-keygen', 'openssl')
    sh(t, '''
        ssh-keygen -q -t ed25519 -N '' -C test -f key; printf 'a %s\\nb %s\\n' "$(cut -d' ' -f1,2 key.pub)" "$(cut -d' ' -f1,2 key.pub)" >known
        ssh-keygen -R a -f known >/dev/null 2>&1
        openssl req -x509 -newkey rsa:2048 -nodes -keyout tls.key -out tls.pem -days 9 -subj /CN=test 2>/dev/null
        ''')
    shows(t, '''
        stat -c %a key key.pub tls.key; ssh-keygen -y -f key | cmp - key.pub && echo same; cut -d' ' -f1 known; cut -d' ' -f1 known.old
        openssl verify -CAfile tls.pem tls.pem; openssl x509 -noout -pubkey -in tls.pem | cmp - <(openssl pkey -in tls.key -pubout) && echo same''',
          ['600', '644', '600', 'same', 'b', 'a', 'b', 'tls.pem: OK', 'same'])


@test
def dpkg_installs(t):
    need_program('dpkg', 'dpkg-deb')
    sh(t, '''
        for v in 1 2; do
            mkdir -p build/DEBIAN build/etc/thing build/usr/bin; echo "version=$v" >build/etc/thing/conf; printf '#!/bin/sh\\necho %s\\n' $v >build/usr/bin/thing
            chmod 755 build/usr/bin/thing; echo /etc/thing/conf >build/DEBIAN/conffiles
            printf 'Package: thing\\nVersion: %s\\nArchitecture: all\\nMaintainer: a <a@b>\\nDescription: thing\\n' $v >build/DEBIAN/control
            dpkg-deb --root-owner-group -b build thing_$v.deb >/dev/null
        done
        mkdir -p root/var/lib/dpkg/updates root/var/lib/dpkg/info; touch root/var/lib/dpkg/status root/var/lib/dpkg/available
        dpkg --root="$PWD/root" --log="$PWD/log" -i thing_1.deb >/dev/null 2>&1; dpkg --root="$PWD/root" --log="$PWD/log" -i thing_2.deb >/dev/null 2>&1
        ''')
    shows(t, '''
        dpkg-query --admindir=root/var/lib/dpkg -W -f '${Version} ${Status}\\n' thing; cat root/etc/thing/conf; root/usr/bin/thing
        find root -name '*.dpkg-*' | wc -l''', ['2 install ok installed', 'version=2', '2', '0'])


@test
def ucf_and_debconf(t):
    need_program('ucf', 'debconf-set-selections')
    sh(t, '''
        mkdir state; echo one >new1; echo two >new2
        export UCF_FORCE_CONFFNEW=1 DEBIAN_FRONTEND=noninteractive
        cat >debconf.conf <<END
Config: configdb
Templates: templatedb

Name: configdb
Driver: File
Filename: $PWD/config.dat

Name: templatedb
Driver: File
Mode: 644
Filename: $PWD/templates.dat
END
        export DEBCONF_SYSTEMRC="$PWD/debconf.conf"
        ucf --state-dir "$PWD/state" new1 "$PWD/conf" >/dev/null 2>&1; ucf --state-dir "$PWD/state" new2 "$PWD/conf" >/dev/null 2>&1
        for i in 1 2; do echo "thing thing/question string answer $i" | debconf-set-selections; done
        ''')
    shows(t, 'cat conf; cut -d/ -f2- state/hashfile | grep -c conf; grep -A3 "Name: thing/question" config.dat | grep Value', ['two', '1', 'Value: answer 2'])


@test
def alternatives(t):
    need_program('update-alternatives')
    sh(t, '''
        mkdir bin alt admin; for i in 1 2; do echo $i >prog$i; done
        u="update-alternatives --quiet --altdir $PWD/alt --admindir $PWD/admin --log $PWD/log"
        $u --install "$PWD/bin/prog" prog "$PWD/prog1" 10; $u --install "$PWD/bin/prog" prog "$PWD/prog2" 20; $u --set prog "$PWD/prog1"
        ''')
    shows(t, 'cat bin/prog; head -1 admin/prog; readlink alt/prog | xargs basename; readlink bin/prog | xargs dirname | xargs basename', ['1', 'manual', 'prog1', 'alt'])


@test
def users(t):
    need_program('useradd', 'usermod')
    sh(t, '''
        mkdir -p root/etc/default root/home; for f in passwd group shadow gshadow; do touch root/etc/$f; done; chmod 640 root/etc/shadow root/etc/gshadow
        cp /etc/login.defs root/etc/; useradd --prefix "$PWD/root" -m -s /bin/sh alice; useradd --prefix "$PWD/root" -M bob
        usermod --prefix "$PWD/root" -s /bin/false bob; groupadd --prefix "$PWD/root" staff
        ''')
    shows(t, "cut -d: -f1,7 root/etc/passwd; cut -d: -f1 root/etc/group; stat -c %a root/etc/shadow; ls -A root/home; ls root/etc | grep -c 'lock$\\|+$' || true",
          ['alice:/bin/sh', 'bob:/bin/false', 'alice', 'bob', 'staff', '640', 'alice', '0'])


@test
def sudoers_check(t):
    need_program('visudo')
    sh(t, "printf 'root ALL=(ALL:ALL) ALL\\n' >good; printf 'root ALL=(\\n' >bad; chmod 440 good bad")
    shows(t, 'visudo -c -f good; visudo -c -f bad >/dev/null 2>&1 || echo refused', ['good: parsed OK', 'refused'])


@test
def augeas_edits(t):
    need_program('augtool')
    sh(t, '''
        mkdir -p root/etc; printf '127.0.0.1\\tlocalhost\\n' >root/etc/hosts; chmod 640 root/etc/hosts; chown 5:6 root/etc/hosts
        printf 'set /files/etc/hosts/01/ipaddr 10.0.0.1\\nset /files/etc/hosts/01/canonical node\\nsave\\n' |
            augtool --root "$PWD/root" --backup --noautoload --transform 'Hosts incl /etc/hosts' --autosave >/dev/null 2>&1 ||
            printf 'set /files/etc/hosts/01/ipaddr 10.0.0.1\\nset /files/etc/hosts/01/canonical node\\nsave\\n' | augtool --root "$PWD/root" --backup >/dev/null
        ''')
    shows(t, "tr '\\t' ' ' <root/etc/hosts; stat -c '%a %u %g' root/etc/hosts; wc -l <root/etc/hosts.augsave", ['127.0.0.1 localhost', '10.0.0.1 node', '640 5 6', '1'])


@test
def tmpfiles(t):
    need_program('systemd-tmpfiles')
    sh(t, '''
        mkdir -p root/etc/tmpfiles.d; cp /etc/passwd /etc/group root/etc/
        printf 'd /srv/x 0750 5 6 -\\nf /srv/x/file 0640 5 6 - content\\nL /srv/x/link - - - - file\\np /srv/x/pipe 0600 0 0 -\\nz /srv/x/file 0600 7 8\\n' \\
            >root/etc/tmpfiles.d/test.conf
        systemd-tmpfiles --root="$PWD/root" --create test.conf
        ''')
    shows(t, "cat root/srv/x/file; echo; stat -c '%a %u %g %F' root/srv/x root/srv/x/file root/srv/x/pipe; readlink root/srv/x/link",
          ['content', '750 5 6 directory', '600 7 8 regular file', '600 0 0 fifo', 'file'])


@test(timeout=180)
def ansible_modules(t):
    need_program('ansible-playbook')
    sh(t, '''
        printf 'x={{ value }}\\n' >template.j2; printf 'a=1\\nb=2\\n' >lines
        cat >play.yml <<END
- hosts: localhost
  connection: local
  gather_facts: false
  vars: {value: 42}
  tasks:
    - copy: {content: "copied\\\\n", dest: $PWD/copied, mode: "0640", owner: "5", group: "6"}
    - template: {src: $PWD/template.j2, dest: $PWD/templated, backup: true}
    - lineinfile: {path: $PWD/lines, regexp: "^b=", line: "b=3", backup: true}
    - file: {path: $PWD/dir/below, state: directory, mode: "2750"}
END
        export ANSIBLE_LOCAL_TEMP="$HOME/tmp" ANSIBLE_NOCOLOR=1 ANSIBLE_LOCALHOST_WARNING=false ANSIBLE_INVENTORY_UNPARSED_WARNING=false
        ansible-playbook -i localhost, play.yml >first; ansible-playbook -i localhost, play.yml >second
        ''')
    shows(t, '''
        cat copied templated lines; stat -c '%a %u %g' copied; stat -c %a dir/below; ls lines.* | wc -l; grep -o 'changed=[0-9]*' first second''',
          ['copied', 'x=42', 'a=1', 'b=3', '640 5 6', '2750', '1', 'first:changed=4', 'second:changed=0'])


@test
def inotifywait_sees(t):
    need_program('inotifywait')
    d = t.tree / 'watched'
    d.mkdir()
    log = t.dir / 'events'
    with open(log, 'w') as out:
        watcher = subprocess.Popen(['inotifywait', '-m', '--format', '%e %f', '-e', 'create,modify,close_write,attrib,move,delete', d], stdout=out,
                                   stderr=subprocess.PIPE, text=True)
        while 'established' not in watcher.stderr.readline():
            pass
    sh(t, 'cd watched; echo x >a; chmod 600 a; mv a b; mkdir d; echo y >>b; ln b c; rm b; rmdir d')
    end = time.monotonic() + 10
    while log.read_text().count('DELETE') < 2 and time.monotonic() < end:
        time.sleep(0.02)
    watcher.terminate()
    watcher.wait()
    eq(log.read_text().splitlines(), ['CREATE a', 'MODIFY a', 'CLOSE_WRITE,CLOSE a', 'ATTRIB a', 'MOVED_FROM a', 'MOVED_TO b', 'CREATE,ISDIR d',
                                      'MODIFY b', 'CLOSE_WRITE,CLOSE b', 'CREATE c', 'DELETE b', 'DELETE,ISDIR d'])
