#!/bin/sh
# Checks docs/model/coterie.pml with spin (Debian: spin, gcc). Usage: run.sh [WORK-DIRECTORY]. Exhaustive within the bounds; a few minutes
# and about 4 GB. The rules must hold, and each shortcut must be found to lose an acknowledged operation.
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

check rules holds -DVIEWS=3 -DOPS=2 -DCRASHES=0
check rules-crash holds -DVIEWS=3 -DOPS=1 -DCRASHES=2
check no-promise fails -DVIEWS=3 -DOPS=2 -DCRASHES=0 -DNOPROMISE
check self-acknowledged fails -DVIEWS=3 -DOPS=2 -DCRASHES=0 -DSELFACK
check no-digest fails -DVIEWS=3 -DOPS=2 -DCRASHES=0 -DNODIGEST
check at-activation fails -DVIEWS=4 -DOPS=2 -DCRASHES=0 -DATACTIVATION
check highest-sequence fails -DVIEWS=3 -DOPS=3 -DCRASHES=0 -DMAXSEQ
check majority fails -DVIEWS=3 -DOPS=3 -DCRASHES=0 -DMAJORITY
