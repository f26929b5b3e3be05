#!/bin/bash
# lint.sh WHAT SOURCE_DIR BUILD_DIR: WHAT is "lint" (clang-format, cppcheck, shellcheck, each where it is installed), "tidy"
# (clang-tidy, slow) or "format" (writes what clang-format would say). Says nothing and returns 0 when there is nothing to say. The build directory holds compile_commands.json.
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
  if have clang-format; then
    sources | xargs -0 clang-format --dry-run -Werror --style=file || bad=1
  fi
  if have cppcheck; then
    cppcheck --quiet --std=c11 --enable=warning,performance,portability --inline-suppr --error-exitcode=1 -j "$(nproc)" \
      --suppressions-list="$source/cmake/cppcheck.suppressions" --file-filter="$source/src/*" \
      --project="$build/compile_commands.json" || bad=1
  fi
  if have shellcheck; then
    find "$source" -name '*.sh' -not -path "$source/build*/*" -print0 | xargs -0 shellcheck --severity=warning || bad=1
  fi
}

format() {
  have clang-format && sources | xargs -0 clang-format -i --style=file || bad=1
}

tidy() {
  have clang-tidy || return
  find "$source/src" -name '*.c' -print0 | sort -z | xargs -0 -P "$(nproc)" -n 4 clang-tidy --quiet -p "$build" 2>/dev/null || bad=1
}

case $what in
  lint | tidy | format) "$what" ;;
  *) echo "lint.sh: lint, tidy or format?" >&2; exit 2 ;;
esac
exit $bad
