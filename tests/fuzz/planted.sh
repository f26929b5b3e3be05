#!/bin/bash
# planted.sh REPLAY_PLANTED: the replay of a target with a bug must fail on the input that shows it, name it, and pass without it.
set -euo pipefail
replay=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/good" "$work/bad" "$work/empty"
echo harmless >"$work/good/a"
echo harmless >"$work/bad/a"
echo boom! >"$work/bad/b"

fail() { echo "fuzz.planted: $*" >&2; exit 1; }

"$replay" "$work/good" 2>/dev/null || fail "a good corpus fails"
# In a subshell of its own, so that bash does not report the abort.
out=$(ulimit -c 0; "$replay" "$work/bad" 2>&1) && fail "the bug passed: $out"
[[ $out == *"replay: $work/bad/b"*"precondition failed"* ]] || fail "the bug is not named: $out"
out=$("$replay" "$work/empty" 2>&1) && fail "no input passed"
[[ $out == *"no input"* ]] || fail "no input, but: $out"
