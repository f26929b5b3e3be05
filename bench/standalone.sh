#!/bin/bash
# Latencies of a standalone Coterie beside those of ext4 and of libfuse's passthrough_ll on tmpfs, taken in turns in one run: what counts
# are the ratios. Needs root, a C compiler, libfuse3-dev (passthrough_ll is one of its examples) and python3.
# usage: sudo bench/standalone.sh [--build DIR] [--disk DIR] [--rounds N] [--count N] [--only OP,...] [--out FILE]
#   --build  where bin/coteried is (build)
#   --disk   a directory on ext4, for ext4's figures and for Coterie's database (/var/tmp)
#   --rounds how often everything is measured (5); the median of the rounds is reported
#   --count  operations per measurement (4000; fewer where one takes long)
#   --out    all measurements, one JSON object a line
set -euo pipefail
cd "$(dirname "$0")/.."
build=build disk=/var/tmp rounds=5 count=4000 only="" out=""
while [ $# -gt 0 ]; do
        case $1 in
        --build) build=$2 ;;
        --disk) disk=$2 ;;
        --rounds) rounds=$2 ;;
        --count) count=$2 ;;
        --only) only=$2 ;;
        --out) out=$2 ;;
        *)
                sed -n '4,9s/^# //p' "$0" >&2
                exit 2
                ;;
        esac
        shift 2 || exit 2
done
die() {
        echo "standalone: $*" >&2
        exit 1
}
[ "$(id -u)" -eq 0 ] || die "mounting needs root"
[ -x "$build/bin/coteried" ] || die "there is no $build/bin/coteried: build it, or name the build directory with --build"
build=$(readlink -f "$build")

work=$(mktemp -d "$disk/coterie-bench.XXXXXX")
memory=$(mktemp -d /dev/shm/coterie-bench.XXXXXX)
pids=()
clean_up() {
        for m in coterie local pass; do umount "$work/$m" 2>/dev/null || true; done
        for p in "${pids[@]}"; do kill "$p" 2>/dev/null || true; done
        wait
        rm -rf "$work" "$memory"
}
trap clean_up EXIT

cc -O2 -o "$work/fsload" bench/fsload.c -lpthread
targets=(ext4)
mkdir "$work/ext4" "$work/coterie" "$work/local" "$work/pass"
[ "$(stat -f -c %T "$work")" = ext2/ext3 ] || echo "standalone: $disk is not on ext4: its figures are those of $(stat -f -c %T "$work")" >&2

examples=/usr/share/doc/libfuse3-dev/examples
if [ -e "$examples/passthrough_ll.c" ] || [ -e "$examples/passthrough_ll.c.gz" ]; then
        for f in passthrough_ll.c passthrough_helpers.h; do
                if [ -e "$examples/$f" ]; then cat "$examples/$f"; else zcat "$examples/$f.gz"; fi >"$work/$f"
        done
        # shellcheck disable=SC2046
        cc -O2 -w -o "$work/passthrough_ll" "$work/passthrough_ll.c" $(pkg-config --cflags --libs fuse3)
        "$work/passthrough_ll" -o "source=$memory,cache=always" -f "$work/pass" 2>/dev/null &
        pids+=($!)
        targets+=(pass)
else
        echo "standalone: no passthrough_ll in $examples (package libfuse3-dev)" >&2
fi
coteried() { # NAME OPTION...
        local name=$1
        shift
        mkdir "$work/$name.run"
        "$build/bin/coteried" --standalone --foreground --db "$work/$name.db" --run-dir "$work/$name.run" "$@" "$work/$name" >"$work/$name.log" 2>&1 &
        pids+=($!)
        targets+=("$name")
}
coteried coterie
coteried local -o posix_locks=local
for t in "${targets[@]:1}"; do
        for _ in $(seq 100); do
                grep -q " $work/$t fuse" /proc/mounts && continue 2
                sleep 0.05
        done
        die "$t is not mounted within 5 s: $(tail -n 3 "$work/$t.log" 2>/dev/null)"
done

# Name, and what fsload is asked for.
cases=(
        "stat:stat -n $((count * 5))"
        "miss:miss -n $((count * 5))"
        "cached read(2):cread -n $((count * 5))"
        "lookup, uncached:lookup -n $count -f $count"
        "open+read+close 1 KiB:read -n $count"
        "the same, 8 threads:read -n $count -t 8"
        "readdir 1000:readdir -n $((count / 10)) -w 50"
        "create 1 KiB:create -n $count"
        "the same, 8 threads:create -n $count -t 8"
        "replace 1 KiB:replace -n $count -w 200"
        "replace 1 MiB:replace -n $((count / 40)) -s 1048576 -f 10 -w 10"
        "overwrite 4 KiB:write -n $count -s 4096 -w 200"
)
for round in $(seq "$rounds"); do
        for c in "${cases[@]}"; do
                read -ra args <<<"${c#*:}"
                [ -z "$only" ] || [[ ",$only," == *",${args[0]},"* ]] || continue
                for t in "${targets[@]}"; do
                        line=$("$work/fsload" "$work/$t" "${args[@]}") || die "$t ${c#*:}: $line"
                        echo "{\"round\":$round,\"target\":\"$t\",\"case\":\"${c%%:*}\",${line#\{}"
                done
        done
        echo "round $round of $rounds" >&2
done >"$work/lines"
[ -z "$out" ] || cp "$work/lines" "$out"

python3 - "$work/lines" "${targets[@]}" <<'PYTHON'
import json, statistics, sys

targets = sys.argv[2:]
names = {"ext4": "ext4", "pass": "passthrough_ll", "coterie": "Coterie", "local": "posix_locks=local"}
cases, rounds = [], {}
for line in open(sys.argv[1]):
    m = json.loads(line)
    key = (m["case"], m["op"], m["threads"], m["size"])
    if key not in cases:
        cases.append(key)
    rounds.setdefault((key, m["target"]), []).append(m)


def median(key, target, field):
    return statistics.median(m[field] for m in rounds[key, target])


print(f"{'p50 (p99) in us, median of the rounds':38}" + "".join(f"{names[t]:>22}" for t in targets) + f"{'/ext4':>8}{'/pass':>8}{'local/pass':>11}")
for key in cases:
    p50 = {t: median(key, t, "p50_us") for t in targets}
    row = f"{key[0].strip():38}"
    for t in targets:
        row += f"{p50[t]:12.2f} ({median(key, t, 'p99_us'):7.1f})"
    row += f"{p50['coterie'] / p50['ext4']:8.2f}"
    if "pass" in targets:
        row += f"{p50['coterie'] / p50['pass']:8.2f}{p50['local'] / p50['pass']:11.2f}"
    print(row)
PYTHON
