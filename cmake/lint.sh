#!/bin/bash
# lint.sh WHAT SOURCE_DIR BUILD_DIR: WHAT is "lint" (clang-format, cppcheck, shellcheck, each where it is installed), "tidy"
# (clang-tidy, slow), "format" (writes what clang-format would say), or one of the tests: "shell" (shellcheck), "clang" (all of src
# compiled by the other compiler, nothing written), "style" (clang-format, cppcheck), which return 77 without their tool. Says nothing
# and returns 0 when there is nothing to say. The build directory holds compile_commands.json.
#
# clang-format looks at .c files only: headers hold tables (fields with their comments, one-line functions) that are laid out by
# hand to be read, which no setting of it reproduces.
set -uo pipefail
what=$1 source=$2 build=$3
cd / # cppcheck matches the filter against paths that it shortens below the current directory
bad=0

# have TOOL: is it there? A missing tool is said, so that silence means that it ran.
have() { command -v "$1" >/dev/null || { echo "$what: $1 is not installed, skipped" >&2; false; }; }

sources() { find "$source/src" "$source/tests" "$source/bench" -name '*.c' -print0 2>/dev/null | sort -z; }

lint() {
  style
  if have shellcheck; then
    shell
  fi
}

style() {
  if have clang-format; then
    sources | xargs -0 clang-format --dry-run -Werror --style=file || bad=1
  fi
  if have cppcheck; then
    cppcheck --quiet --std=c11 --enable=warning,performance,portability --inline-suppr --error-exitcode=1 -j "$(nproc)" \
      --suppressions-list="$source/cmake/cppcheck.suppressions" --file-filter="$source/src/*" \
      --project="$build/compile_commands.json" || bad=1
  fi
}

shell() {
  have shellcheck || exit 77
  find "$source" -name '*.sh' -not -path "$source/build*/*" -print0 | xargs -0 shellcheck --severity=warning || bad=1
  shellcheck --severity=warning "$source"/cmake/package/p* || bad=1
}

# The commands of the build, but for the compiler and what they would write.
clang() {
  command -v clang >/dev/null || exit 77
  python3 - "$source" "$build" <<'END' | xargs -0 -P "$(nproc)" -n 1 bash -c || bad=1
import json, shlex, sys
for entry in json.load(open(sys.argv[2] + '/compile_commands.json')):
    if not entry['file'].startswith(sys.argv[1] + '/src/'):
        continue
    words = shlex.split(entry['command'])
    while not words[0].startswith('-'):
        del words[0]  # the compiler and what stands before it
    at = words.index('-o')
    del words[at:at + 2]
    words = [w for w in words if w not in ('-MD', '-c') and not w.startswith('-fsanitize') and not w.startswith('-fno-sanitize')]
    for word in ('-MT', '-MF'):
        if word in words:
            at = words.index(word)
            del words[at:at + 2]
    sys.stdout.write('cd %s && clang -fsyntax-only %s\0' % (shlex.quote(entry['directory']), shlex.join(words)))
END
}

format() {
  have clang-format && sources | xargs -0 clang-format -i --style=file || bad=1
}

tidy() {
  have clang-tidy || return
  find "$source/src" -name '*.c' -print0 | sort -z | xargs -0 -P "$(nproc)" -n 4 clang-tidy --quiet -p "$build" 2>/dev/null || bad=1
}

case $what in
  lint | tidy | format | style | shell | clang) "$what" ;;
  *) echo "lint.sh: lint, tidy, format, style, shell or clang?" >&2; exit 2 ;;
esac
exit $bad
