#!/bin/bash
# purity.sh ALLOW ARCHIVE...: fails, and names the symbol and the object, if an object of these archives
#   - takes a function or variable from outside that ALLOW does not list (nor one of the archives defines), or
#   - has a variable that can be written: state belongs to the objects that callers hold.
# NM names another nm than the default.
set -euo pipefail
export LC_ALL=C
allow=$1
shift
nm=${NM:-nm}

for archive in "$@"; do
  [[ -s $archive ]] || { echo "purity: no archive $archive" >&2; exit 2; }
done
# "ARCHIVE[OBJECT]: SYMBOL TYPE ..." per symbol; nm says on stderr when an object has none, which is no fault.
symbols=$("$nm" -A -P "$@" 2>/dev/null)
[[ -n $symbols ]] || { echo "purity: nm shows no symbols" >&2; exit 2; }

bad=0
patterns=$(sed -e 's/#.*//' -e 's/[[:space:]]*$//' -e '/^$/d' "$allow" | paste -sd '|')
shopt -s extglob
while read -r where symbol; do
  # shellcheck disable=SC2053  # a pattern on purpose
  [[ $symbol == @($patterns) ]] && continue
  echo "purity: $where $symbol: not allowed from outside" >&2
  bad=1
done < <(awk '$3 == "U" || $3 == "w" || $3 == "v" { wanted[$1 " " $2] = $2; next }
              $3 ~ /[A-TV-Z]/ { defined[$2] }
              END { for (w in wanted) if (!(wanted[w] in defined)) print w }' <<<"$symbols" | sort)

# The section tells what may be written; nm's letter does not: constant tables of pointers (.data.rel.ro) count as "d". Names that
# begin with two underscores come from the compiler's instrumentation.
while read -r where symbol section; do
  echo "purity: $where $symbol: a variable that can be written ($section)" >&2
  bad=1
done < <("$nm" -A -f sysv "$@" 2>/dev/null | awk -F'|' '
    { name = $1; sub(/^.*:/, "", name); where = $1; sub(/:[^:]*$/, ":", where); section = $7
      gsub(/[ \t]/, "", name); gsub(/[ \t]/, "", section)
      if ($4 !~ /OBJECT|TLS/ || name ~ /^__/) next
      if (section ~ /^\.data\.rel\.ro/) next
      if (section ~ /^(\.data|\.bss|\.tdata|\.tbss|\*COM\*|COMMON)/) print where, name, section }')
exit $bad
