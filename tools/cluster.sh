#!/bin/bash
# A cluster on one machine: every node has mount, network, UTS and PID namespaces of its own, a disk of its own (a loop image with ext4), a
# corosync and a coteried. A further network namespace is the switch, so nothing of it shows outside. Root.
#
# usage: tools/cluster.sh [--dir DIR] COMMAND
#   up [N] [--no-daemon] [-- COTERIED OPTION...]   start N nodes (3), wait until the tree is writable on all
#   down                               stop everything and leave nothing behind
#   status                             what runs where
#   exec NODE COMMAND...               run a command inside a node (as root, in its namespaces); `coterie` is the built one
#   partition 1 2,3 [...]              nodes of a group reach only each other
#   cut FROM TO                        FROM's packets no longer reach TO (one way only)
#   heal                               all links work again
#   kill|stop|cont NODE daemon|corosync   SIGKILL, SIGSTOP, SIGCONT
#   pid NODE daemon|corosync           its process id, seen from outside
#   start NODE daemon|corosync         start again what was killed
#   powercut NODE...                   all at once: what was not flushed to the disk is lost, and the next start is another boot
# COTERIE_PRELOAD: a library that the daemons load first (LD_PRELOAD); COTERIE_CLOCK_FILE is then a file of the node's.
set -euo pipefail

dir=/run/coterie-cluster
[ "${1:-}" = --dir ] && { dir=$2; shift 2; }
command=${1:-help}
[ $# -gt 0 ] && shift
root=$(cd "$(dirname "$0")/.." && pwd)
bin=${COTERIE_BIN:-$root/build/bin}
token_ms=${COTERIE_TOKEN_MS:-1000}
disk_mib=${COTERIE_DISK_MIB:-512}
cluster_name=${COTERIE_CLUSTER:-testcluster}

die() { echo "cluster.sh: $*" >&2; exit 1; }
nodes() { [ -d "$dir" ] && (cd "$dir" && ls -d node* 2>/dev/null | sed 's/^node//' | sort -n) || true; }
init_pid() { cat "$dir/node$1/init.pid" 2>/dev/null || die "there is no node $1; nodes: $(nodes | paste -sd' ')"; }
runs() { grep -qs '^State:[[:space:]][^ZX]' "/proc/$1/status"; } # one that ended and waits for its parent does not
inside() { local n=$1 pid; shift; pid=$(init_pid "$n"); nsenter -t "$pid" -m -n -u -p -- "$@"; }
in_switch() { nsenter -t "$(cat "$dir/switch.pid")" -n -- "$@"; }
address() { echo "10.77.0.$1"; }

write_corosync_conf() {
        local count=$1 n
        {
                echo "totem {
                        version: 2
                        cluster_name: $cluster_name
                        transport: knet
                        crypto_cipher: aes256
                        crypto_hash: sha256
                        token: $token_ms
                }"
                echo "quorum {
                        provider: corosync_votequorum
                }
                logging {
                        to_logfile: yes
                        logfile: /var/log/corosync/corosync.log
                        to_syslog: no
                        timestamp: hires
                }
                system {
                        allow_knet_handle_fallback: yes
                        sched_rr: no
                }
                nodelist {"
                for n in $(seq "$count"); do
                        echo "node {
                                nodeid: $n
                                name: node$n
                                ring0_addr: $(address "$n")
                        }"
                done
                echo "}"
        } | sed 's/^ *//' >"$dir/corosync.conf"
}

new_boot() { # inside a node
        umount /proc/sys/kernel/random/boot_id 2>/dev/null || true
        cat /proc/sys/kernel/random/uuid >/run/boot_id
        mount --bind /run/boot_id /proc/sys/kernel/random/boot_id
}

# The first process of a node: makes its places private, then waits as its init until it is told to end.
node_init() {
        local n=$1 home=$2
        mount --make-rprivate /
        mount -t proc proc /proc
        umount -l -a -t fuse.coterie || true # a copy of somebody else's mount here would keep it alive when he unmounts it
        mount -t tmpfs -o mode=1777 tmpfs /dev/shm
        mkdir -p "$home/etc" "$home/lib" "$home/log" "$home/disk"
        mount --bind "$dir" /mnt # the cluster's own directory may lie below /run
        mount -t tmpfs -o mode=755 tmpfs /run
        mkdir -p "$dir"
        mount --move /mnt "$dir"
        mkdir -p /etc/corosync /var/lib/corosync /var/log/corosync /var/lib/coterie /run/coterie /mnt
        mount -t tmpfs -o ro,mode=755 tmpfs /mnt # while no daemon is there nothing is written beside its tree
        mount --bind "$home/etc" /etc/corosync
        mount --bind "$home/lib" /var/lib/corosync
        mount --bind "$home/log" /var/log/corosync
        mount -o loop "$home/disk.img" /var/lib/coterie
        hostname "node$n"
        new_boot
        ip link set lo up
        touch "$home/ready"
        trap 'exit 0' TERM
        while :; do
                sleep 3600 &
                wait $! || true
        done
}

start_corosync() { # detached from this shell, so that it does not report its end
        setsid --fork nsenter -t "$(init_pid "$1")" -m -n -u -p -- corosync -f >>"$dir/node$1/corosync.log" 2>&1 </dev/null
}
start_daemon() {
        local n=$1
        mapfile -t options <"$dir/daemon.options"
        [ -e "$dir/node$n/clock" ] || head -c 8 /dev/zero >"$dir/node$n/clock"
        inside "$n" mkdir -p /run/coterie
        inside "$n" env LD_PRELOAD="${COTERIE_PRELOAD:-}" COTERIE_CLOCK_FILE="$dir/node$n/clock" "$bin/coteried" --db /var/lib/coterie/tree.db --run-dir /run/coterie "${options[@]}" /mnt </dev/null >>"$dir/node$n/daemon.log" 2>&1
}

process_of() { # NODE daemon|corosync -> pid outside
        local name=$2 pid
        [ "$name" = daemon ] && name=coteried
        for pid in $(pids_in "$1"); do
                [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$name" ] && { echo "$pid"; return 0; }
        done
        die "node $1 runs no $name"
}
pids_in() { # every process of the node's PID namespace, seen from outside
        local want
        want=$(readlink "/proc/$(init_pid "$1")/ns/pid")
        { find /proc -maxdepth 3 -path '/proc/[0-9]*/ns/pid' -printf '%l %h\n' 2>/dev/null || true; } | # some end meanwhile
                awk -v want="$want" '$1 == want { split($2, part, "/"); print part[3] }'
}

up() {
        local count=3 daemon=yes
        while [ $# -gt 0 ]; do
                case $1 in
                --no-daemon) daemon=no ;;
                --) shift; break ;;
                [0-9]*) count=$1 ;;
                *) die "up does not know '$1'" ;;
                esac
                shift
        done
        [ "$(id -u)" = 0 ] || die "namespaces need root: run it with sudo"
        [ -e "$dir/switch.pid" ] && die "a cluster is up in $dir; take it down first: tools/cluster.sh --dir $dir down"
        command -v corosync >/dev/null || die "corosync is not installed: apt-get install corosync"
        mkdir -p "$dir"
        printf '%s\n' "$@" >"$dir/daemon.options"
        [ $# -gt 0 ] || : >"$dir/daemon.options"
        trap 'down; die "could not come up"' ERR
        corosync-keygen -l -s 128 -k "$dir/authkey" >/dev/null 2>&1 || head -c 1024 /dev/urandom >"$dir/authkey"
        write_corosync_conf "$count"

        unshare --net setsid sleep infinity </dev/null >/dev/null 2>&1 &
        echo $! >"$dir/switch.pid"
        sleep 0.2
        in_switch ip link set lo up
        in_switch ip link add br0 type bridge
        in_switch ip link set br0 up

        local n home
        for n in $(seq "$count"); do
                home=$dir/node$n
                mkdir -p "$home/etc"
                cp "$dir/corosync.conf" "$dir/authkey" "$home/etc/"
                chmod 400 "$home/etc/authkey"
                truncate -s "${disk_mib}M" "$home/disk.img"
                mkfs.ext4 -q -F "$home/disk.img"
                unshare --mount --net --uts --pid --fork --kill-child setsid "$root/tools/cluster.sh" --dir "$dir" node-init "$n" "$home" </dev/null >"$home/init.log" 2>&1 &
                echo $! >"$home/unshare.pid"
        done
        for n in $(seq "$count"); do
                home=$dir/node$n
                for _ in $(seq 100); do [ -e "$home/ready" ] && break; sleep 0.05; done
                [ -e "$home/ready" ] || die "node $n did not start: $(cat "$home/init.log")"
                cut -d' ' -f1 "/proc/$(cat "$home/unshare.pid")/task/$(cat "$home/unshare.pid")/children" >"$home/init.pid"
                in_switch ip link add "v$n" type veth peer name eth0 netns "$(init_pid "$n")"
                in_switch ip link set "v$n" master br0 up
                inside "$n" ip address add "$(address "$n")/24" dev eth0
                inside "$n" ip link set eth0 up
                start_corosync "$n"
        done
        if [ $daemon = yes ]; then
                [ -x "$bin/coteried" ] || die "$bin/coteried is not built; build first or set COTERIE_BIN"
                inside 1 "$bin/coterie" cluster init --db /var/lib/coterie/tree.db # the others are empty and receive its tree
                for n in $(seq "$count"); do start_daemon "$n"; done
                wait_writable
        fi
        trap - ERR
        echo "$count nodes are up in $dir; try: tools/cluster.sh --dir $dir exec 1 ls -la /mnt"
}

wait_writable() {
        local n
        for n in $(nodes); do
                for _ in $(seq 250); do
                        inside "$n" sh -c 'touch /mnt/.writable-$(hostname) 2>/dev/null && rm -f /mnt/.writable-$(hostname)' && continue 2
                        sleep 0.1
                done
                die "node $n is not writable after 25 s: $(tail -n 3 "$dir/node$n/daemon.log" 2>/dev/null)"
        done
}

down() {
        local n pid
        trap - ERR
        for n in $(nodes); do
                [ -s "$dir/node$n/init.pid" ] || { kill -9 "$(cat "$dir/node$n/unshare.pid" 2>/dev/null)" 2>/dev/null || true; continue; }
                inside "$n" umount -l /mnt 2>/dev/null || true
                for pid in $(pids_in "$n"); do kill -CONT "$pid" 2>/dev/null || true; done
                kill -9 "$(cat "$dir/node$n/init.pid")" 2>/dev/null || true # the kernel ends the namespace with its init
        done
        for n in $(nodes); do
                pid=$(cat "$dir/node$n/unshare.pid" 2>/dev/null) || continue
                for _ in $(seq 100); do runs "$pid" || break; sleep 0.05; done
                for loop in $(losetup -n -O NAME -j "$dir/node$n/disk.img" 2>/dev/null); do losetup -d "$loop" 2>/dev/null || true; done
        done
        [ -e "$dir/switch.pid" ] && kill -9 "$(cat "$dir/switch.pid")" 2>/dev/null || true
        rm -rf "$dir"
}

partition() {
        [ $# -ge 1 ] || die "usage: partition 1 2,3 ..."
        local group=0 n
        for members in "$@"; do
                in_switch ip link add "br$group" type bridge 2>/dev/null || true
                in_switch ip link set "br$group" up
                for n in ${members//,/ }; do in_switch ip link set "v$n" master "br$group"; done
                group=$((group + 1))
        done
}

heal() {
        local n m
        for n in $(nodes); do
                in_switch ip link set "v$n" master br0 up
                for m in $(nodes); do inside "$n" ip route del blackhole "$(address "$m")/32" 2>/dev/null || true; done
        done
}

status() {
        local n
        [ -e "$dir/switch.pid" ] || echo "no cluster is up in $dir"
        for n in $(nodes); do
                printf 'node %s: corosync %s, coteried %s\n' "$n" "$( (process_of "$n" corosync) 2>/dev/null || echo -)" "$( (process_of "$n" daemon) 2>/dev/null || echo -)"
                inside "$n" corosync-quorumtool -s 2>/dev/null | grep -E 'Quorate|Ring ID|Total votes' | sed 's/^/    /' || true
                [ -x "$bin/coterie" ] && inside "$n" timeout 5 "$bin/coterie" status 2>/dev/null | sed 's/^/    /' || true
        done
}

# The image as the device has it at one moment becomes the node's disk. Daemons are stopped first, so that the copies are of one moment.
powercut() {
        local n
        for n in "$@"; do signal STOP "$n" daemon; done
        for n in "$@"; do cp --sparse=always "$dir/node$n/disk.img" "$dir/node$n/cut.img"; done
        for n in "$@"; do
                signal KILL "$n" daemon
                signal KILL "$n" corosync
        done
        for n in "$@"; do
                for _ in $(seq 100); do inside "$n" umount /var/lib/coterie 2>/dev/null && break; sleep 0.05; done
                mv "$dir/node$n/cut.img" "$dir/node$n/disk.img"
                inside "$n" mount -o loop "$dir/node$n/disk.img" /var/lib/coterie
                inside "$n" "$root/tools/cluster.sh" new-boot
        done
}

signal() { # SIGNAL NODE daemon|corosync
        [ $# -eq 3 ] || die "usage: kill|stop|cont NODE daemon|corosync"
        kill "-$1" "$(process_of "$2" "$3")"
}

case $command in
up) up "$@" ;;
down) down ;;
status) status ;;
exec) [ $# -ge 2 ] || die "usage: exec NODE COMMAND..."; n=$1; shift; inside "$n" env PATH="$bin:$PATH" "$@" ;;
partition) partition "$@" ;;
cut) [ $# -eq 2 ] || die "usage: cut FROM TO"; inside "$1" ip route add blackhole "$(address "$2")/32" ;;
heal) heal ;;
kill) signal KILL "$@" ;;
stop) signal STOP "$@" ;;
cont) signal CONT "$@" ;;
start) case ${2:-} in corosync) start_corosync "$1" ;; daemon) start_daemon "$1" ;; *) die "usage: start NODE daemon|corosync" ;; esac ;;
pid) [ $# -eq 2 ] || die "usage: pid NODE daemon|corosync"; process_of "$@" ;;
powercut) powercut "$@" ;;
node-init) node_init "$@" ;;
new-boot) new_boot ;;
help | --help | -h) sed -n '2,/^set /p' "$0" | sed '$d; s/^# \{0,1\}//' ;;
*) die "unknown command '$command'; tools/cluster.sh help lists them" ;;
esac
