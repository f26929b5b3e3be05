#!/bin/bash
# Shows Coterie on this machine: installs packages, builds, mounts a standalone tree at ./mnt, copies /etc into it, verifies the copy,
# restarts the daemon, verifies again, reports, and leaves it mounted. Safe to run again.
# usage: sudo tools/quickstart.sh            set it up (or up again) and verify
#        sudo tools/quickstart.sh --stop     unmount; the tree stays in ./var and comes back with the next run
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD
mnt=$here/mnt var=$here/var run=/run/coterie-quickstart
bin=$here/build/bin

die() {
        echo "quickstart: $*" >&2
        exit 1
}
usage() {
        sed -n '2,5s/^# //p' "$0"
}

# The daemon of this checkout, if it runs: its pid.
daemon_pid() {
        local pid
        pid=$(cat "$run/coteried.pid" 2>/dev/null) || return 1
        [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = coteried ] || return 1
        [ "$(tr '\0' '\n' <"/proc/$pid/cmdline" | tail -n 1)" = "$mnt" ] || return 1
        echo "$pid"
}
runs() { grep -qs '^State:[[:space:]][^ZX]' "/proc/$1/status"; } # one that ended and waits for its parent does not
stop() {
        local pid tries=0
        pid=$(daemon_pid) || return 0
        kill -TERM "$pid"
        while runs "$pid"; do
                sleep 0.02
                tries=$((tries + 1))
                [ $tries -lt 1500 ] || die "coteried $pid has not ended within 30 s; see $var/coteried.log"
        done
}
start() {
        "$bin/coteried" --standalone --db "$var/tree.db" --run-dir "$run" --log-file "$var/coteried.log" "$mnt" ||
                die "coteried did not start; its own message is above, more may be in $var/coteried.log"
}
counter() { # NAME: from status
        "$bin/coterie" --run-dir "$run" status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["counters"][sys.argv[1]])' "$1"
}
written() { # bytes that the daemon caused to be written to its disk
        sed -n 's/^write_bytes: //p' "/proc/$(daemon_pid)/io"
}
now() { date +%s.%N; }
seconds() { # FROM TO
        awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", b - a }'
}
verify() {
        python3 tests/lib/compare_trees.py /etc "$mnt/etc" || die "the copy of /etc in $mnt/etc differs from /etc"
}

case ${1:-} in
"") ;;
--stop)
        [ "$(id -u)" -eq 0 ] || die "needs root: sudo tools/quickstart.sh --stop"
        if daemon_pid >/dev/null; then
                stop
                echo "stopped; the tree is in $var and comes back with tools/quickstart.sh"
        else
                echo "nothing to stop"
        fi
        exit 0
        ;;
-h | --help)
        usage
        exit 0
        ;;
*)
        usage >&2
        exit 2
        ;;
esac

[ "$(id -u)" -eq 0 ] || die "needs root, for packages and to mount: sudo tools/quickstart.sh"
[ -e /dev/fuse ] || modprobe fuse 2>/dev/null || true
[ -c /dev/fuse ] || die "this kernel offers no /dev/fuse: load the module fuse, or give this container the device"

echo "installing what is missing …"
tools/install-packages.sh
echo "building …"
mkdir -p build
if ! { cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release && ninja -C build coteried coterie mount.coterie man completion; } >build/quickstart.log 2>&1; then
        tail -n 30 build/quickstart.log >&2
        die "the build failed; its last lines are above, all of them in $here/build/quickstart.log"
fi

stop # an earlier run's, perhaps of an older build
mkdir -p "$var"
chmod 700 "$var"
if ! [ -d "$mnt" ]; then
        # A mount whose daemon died still has a name, but answers nothing: coteried clears it away itself.
        mkdir -p "$mnt" 2>/dev/null || true
fi
start
if [ -e "$mnt/etc" ]; then
        echo "replacing the copy of an earlier run"
        rm -rf "${mnt:?}/etc"
        "$bin/coterie" --run-dir "$run" sync --checkpoint >/dev/null # what the removal writes is not the copy's
fi

echo "copying /etc to $mnt/etc …"
calls=$(counter fuse_requests) disk=$(written) from=$(now)
cp -a /etc "$mnt/etc"
to=$(now)
"$bin/coterie" --run-dir "$run" sync --checkpoint >/dev/null
calls=$(($(counter fuse_requests) - calls)) disk=$(($(written) - disk))
counts=$(verify)
echo "verified: content, mode, owner, mtime, symlinks, hard links"

restart=$(now)
stop
start
again=$(now)
[ "$(verify)" = "$counts" ] || die "the copy has other counts after the restart"
echo "verified again after a restart of the daemon"

read -r files directories symlinks others bytes <<<"$counts"
cat <<END

  files              $files (and $directories directories, $symlinks symlinks, $others others)
  bytes              $bytes
  time of the copy   $(seconds "$from" "$to") s
  FUSE calls         $calls
  bytes to disk      $disk (write_bytes of the daemon, a final checkpoint included) = $(awk -v d="$disk" -v b="$bytes" 'BEGIN { printf "%.2f", b ? d / b : 0 }') per byte of content
  restart            $(seconds "$restart" "$again") s

It is mounted at $mnt. Look at it:
  ls -l $mnt/etc
  $bin/coterie --run-dir $run status
Stop it:
  sudo tools/quickstart.sh --stop
END
