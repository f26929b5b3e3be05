#!/bin/sh
# Checks docs/model/coterie.pml with spin (Debian: spin, gcc). Usage: run.sh [WORK-DIRECTORY]. Exhaustive within the bounds; a few minutes
# and about 2 GB; FULL=1 in the environment for the large ones. The rules must hold, and the shortcuts that can be met within such
# bounds must be found to lose an acknowledged operation.
set -eu
model=$(cd "$(dirname "$0")" && pwd)/coterie.pml
work=${1:-$(mktemp -d)}
mkdir -p "$work"
cd "$work"
command -v spin > /dev/null || { echo "spin is not installed"; exit 77; }

# check NAME holds|fails DEFINES...
check() {
    name=$1 want=$2
    shift 2
    spin "$@" -a "$model" > /dev/null
    gcc -w -O2 -DSAFETY -DCOLLAPSE -DVECTORSZ=4096 -DMEMLIM="${MEMLIM:-12000}" -o "pan-$name" pan.c
    "./pan-$name" -E -m100000 > "$name.log" 2>&1 || true
    if grep -q "assertion violated" "$name.log"; then
        got=fails
    elif grep -q "errors: 0" "$name.log" && ! grep -Eq "out of memory|max search depth|aborted" "$name.log"; then
        got=holds
    else
        got="not finished"
    fi
    echo "$name: $got ($(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' "$name.log" | head -1) states)"
    [ "$got" = "$want" ] || { tail -20 "$name.log"; exit 1; }
}

# What must fail is looked for in views of the members where it can be met; the rules must hold there too.
check rules holds -DVIEWS=2 -DOPS=2
check self-acknowledged fails -DVIEWS=2 -DOPS=2 -DSELFACK
check rules-four-views holds -DVIEWS=4 -DOPS=2 -DCUTS=0 -DONLY=3 -DTHEN=6 -DLAST=3
check no-promise fails -DVIEWS=4 -DOPS=2 -DCUTS=0 -DONLY=3 -DTHEN=6 -DLAST=3 -DNOPROMISE
if [ "${FULL:-0}" = 1 ]; then # up to an hour and 12 GB each
    check rules-three-operations holds -DVIEWS=2 -DOPS=3 -DONLY=6
    check rules-cold holds -DVIEWS=2 -DOPS=2 -DCOLD
fi
