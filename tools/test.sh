#!/bin/bash
# Installs what is needed, builds, and runs a tier of the tests. Safe to run again. Root, for packages, FUSE and loop devices; without
# them the tests that need them are skipped, with the reason, and counted. The last line counts tests, not programs.
# usage: tools/test.sh [quick|full|nightly]       quick: under 2 minutes; full (what CI runs): under 25 minutes; nightly: hours
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

tier=${1:-full}
case $tier in
quick | full | nightly) ;;
*)
        echo "usage: tools/test.sh [quick|full|nightly]" >&2
        exit 2
        ;;
esac
[ $# -le 1 ] || { echo "usage: tools/test.sh [quick|full|nightly]" >&2; exit 2; }

passed=0 failed=0 skipped=0
lines=()
start=$SECONDS

fail() { # TEXT: one failure that is no test's own
        failed=$((failed + 1))
        lines+=("FAILED   $1")
}

# build DIR OPTION...: configures and builds; a build that fails is one failed test.
build() {
        local dir=$1 began=$SECONDS
        shift
        local log=$dir.log
        mkdir -p "$(dirname "$dir")"
        if ! { cmake -S . -B "$dir" -G Ninja "$@" && ninja -C "$dir"; } >"$log" 2>&1; then
                grep -E -A5 'error|FAILED|undefined' "$log" | head -n 60
                tail -n 10 "$log"
                fail "build of $dir (whole output: $log)"
                return 1
        fi
        echo "built    $dir in $((SECONDS - began)) s"
}

# run DIR LABELS [CTEST OPTION...]: runs the CTest entries that carry one of the labels and counts their tests from CTest's report.
run() {
        local dir=$1 labels=$2
        shift 2
        local report=$PWD/$dir/report.xml
        rm -f "$report"
        ctest --test-dir "$dir" -L "^($labels)\$" -j 2 --timeout 300 --output-on-failure --no-tests=error --output-junit "$report" \
                --test-output-size-passed 8000 --test-output-size-failed 200000 --test-output-truncation head "$@" </dev/null || true
        local counts p f s line first=yes
        if ! counts=$(tests/lib/count_junit.py "$report"); then
                fail "$dir: CTest wrote no report"
                return
        fi
        while IFS= read -r line; do
                if [ $first = yes ]; then
                        read -r p f s <<<"$line"
                        first=no
                elif [ -n "$line" ]; then
                        lines+=("$line ($dir)")
                fi
        done <<<"$counts"
        passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

# What tests would leave behind if they cleaned up badly: mounts, loop devices and files below the directories of this run.
export COTERIE_RUN=$$.
remains() {
        grep -o "[^ ]*/coterie-test\.${COTERIE_RUN}[^ ]*" /proc/mounts 2>/dev/null
        losetup --noheadings --output NAME,BACK-FILE 2>/dev/null | grep -F "coterie-test.$COTERIE_RUN"
        find "${TMPDIR:-/tmp}" -maxdepth 1 -name "coterie-test.$COTERIE_RUN*" 2>/dev/null
        true
}

labels=quick
[ "$tier" = full ] && labels="quick|full"
[ "$tier" = nightly ] && labels="quick|full|nightly"

if ! tools/install-packages.sh --tests; then
        fail "packages could not be installed; what needs them follows"
fi
if build build -DCMAKE_BUILD_TYPE=Release; then
        run build "$labels"
fi
if [ "$tier" != quick ] && build build/asan -DCMAKE_BUILD_TYPE=Debug -DCOTERIE_SANITIZE=address,undefined; then
        COTERIE_TIMEOUT_FACTOR=4 run build/asan "quick|sanitize"
fi
left=$(remains)
[ -n "$left" ] && fail "left behind: $left"

for line in "${lines[@]+"${lines[@]}"}"; do
        echo "$line"
done
echo "tier $tier took $((SECONDS - start)) s"
if [ $skipped -gt 0 ]; then
        echo "$passed passed, $failed failed, $skipped skipped"
else
        echo "$passed passed, $failed failed"
fi
[ $failed -eq 0 ] && [ $passed -gt 0 ]
