#!/bin/bash
# includes.sh RULES SRC: fails, and names file, line and header, for each include in SRC/LAYER/ that RULES do not allow. The compiler
# keeps layers apart by include paths; it cannot keep system headers away, as they are on everybody's path. This can.
set -euo pipefail
export LC_ALL=C
rules=$1 src=$2
shopt -s extglob nullglob globstar

declare -A class=()
declare -A allowed=() # layer -> "|"-joined patterns of system headers
declare -A uses=()    # layer -> " "-joined layers
declare -A known=()
for dir in "$src"/*/; do known[$(basename "$dir")]=1; done

while IFS=: read -r key words; do
  read -ra list <<<"$words" # split without expanding patterns
  for word in "${list[@]}"; do
    case $word in
      @*) patterns=${class[$word]:?includes.rules: $word is not defined} ;;
      */* | *.h) patterns=$word ;;
      *) uses[$key]+=" $word "; continue ;;
    esac
    if [[ $key == @* ]]; then class[$key]+=${class[$key]:+|}$patterns; else allowed[$key]+=${allowed[$key]:+|}$patterns; fi
  done
done < <(sed -e 's/#.*//' "$rules" | grep :)

# why LAYER FILE HEADER: prints why the include is not allowed, or nothing.
why() {
  local layer=$1 file=$2 header=$3 first=${3%%/*}
  if [[ $header == *..* || $header == /* ]]; then
    echo "reaches around the include path"
  elif [[ $header == */* && -n ${known[$first]:-} ]]; then
    [[ $first == "$layer" || ${uses[$layer]:-} == *" $first "* ]] || echo "layer $layer may not use layer $first"
  elif [[ -e $(dirname "$file")/$header || -e $src/$layer/$header ]]; then
    : # private to the layer
  else
    # shellcheck disable=SC2053  # a pattern on purpose
    [[ $header == @(${allowed[$layer]:-}) ]] || echo "not among the headers that layer $layer may use"
  fi
}

bad=0 files=0
for file in "$src"/*/**/*.[ch]; do
  layer=${file#"$src"/} layer=${layer%%/*}
  files=$((files + 1))
  if [[ -z ${uses[$layer]:-}${allowed[$layer]:-} ]]; then
    echo "includes: $file: no rule for layer $layer" >&2
    bad=1
    continue
  fi
  while IFS=: read -r line text; do
    if [[ $text =~ ^[[:space:]]*#[[:space:]]*include(_next)?[[:space:]]*[\<\"]([^\>\"]+)[\>\"] ]]; then
      header=${BASH_REMATCH[2]}
      reason=$(why "$layer" "$file" "$header")
    else
      header=$text reason="its name is computed"
    fi
    [[ -z $reason ]] || { echo "includes: $file:$line: $header: $reason" >&2; bad=1; }
  done < <(grep -nE '^[[:space:]]*#[[:space:]]*include' "$file" || true)
done
[[ $files -gt 0 ]] || { echo "includes: no sources below $src" >&2; exit 2; }
exit $bad
