#!/bin/bash
# Installs what is needed, builds, and runs a tier of the tests. Safe to run again. Root, for packages, FUSE and loop devices; without
# them the tests that need them are skipped, with the reason, and counted.
# usage: tools/test.sh [quick|full|nightly]       quick: under 2 minutes; full (what CI runs): under 25 minutes; nightly: hours
set -uo pipefail
cd "$(dirname "$0")/.."

tier=${1:-full}
case $tier in
quick | full | nightly) ;;
*)
        echo "usage: tools/test.sh [quick|full|nightly]" >&2
        exit 2
        ;;
esac

tools/install-packages.sh --tests || exit 1

passed=0 failed=0 skipped=0
failures=()

# build DIR OPTION...: configures and builds; a build that fails is one failed test.
build() {
        local dir=$1
        shift
        local log=$dir.log
        mkdir -p "$(dirname "$dir")"
        if ! { cmake -S . -B "$dir" -G Ninja "$@" && ninja -C "$dir"; } >"$log" 2>&1; then
                tail -n 40 "$log"
                echo "FAILED  build of $dir (whole output: $log)"
                failed=$((failed + 1))
                failures+=("build $dir")
                return 1
        fi
        echo "built   $dir"
}

# run DIR LABELS [CTEST OPTION...]: runs the CTest entries that carry one of the labels and counts them from CTest's own report.
run() {
        local dir=$1 labels=$2
        shift 2
        local report=$PWD/$dir/report.xml
        rm -f "$report"
        ctest --test-dir "$dir" -L "^($labels)\$" --output-on-failure --output-junit "$report" "$@" || true
        local counts
        counts=$(tests/lib/count_junit.py "$report") || counts="0 1 0 no-report"
        local p f s names
        read -r p f s names <<<"$counts"
        passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
        [ -n "${names:-}" ] && failures+=("$dir: $names")
        return 0
}

start=$SECONDS
labels=quick
[ "$tier" = full ] && labels="quick|full"
[ "$tier" = nightly ] && labels="quick|full|nightly"

if build build -DCMAKE_BUILD_TYPE=Release; then
        run build "$labels"
fi
if [ "$tier" != quick ] && build build/asan -DCMAKE_BUILD_TYPE=Debug -DCOTERIE_SANITIZE=address,undefined; then
        run build/asan "quick|sanitize"
fi

for name in "${failures[@]+"${failures[@]}"}"; do
        echo "FAILED  $name"
done
echo "tier $tier took $((SECONDS - start)) s"
if [ $skipped -gt 0 ]; then
        echo "$passed passed, $failed failed, $skipped skipped"
else
        echo "$passed passed, $failed failed"
fi
[ $failed -eq 0 ] && [ $passed -gt 0 ]
