#!/bin/bash
# planted.sh SOURCE_DIR CORE_ARCHIVE INCLUDES: proves that the fences between layers can fail. Each offence is planted alone, in a
# copy, and must be refused for its own reason; a harmless neighbour of it must pass.
#   INCLUDES: a file with one line per layer, "LAYER: DIR;DIR;...", the include path its sources are compiled with.
# CC and NM name the compiler and nm.
set -euo pipefail
export LC_ALL=C
source_dir=$1 core=$2 includes=$3
here=$source_dir/tests/layers
cc=${CC:-cc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0 checks=0

complain() {
  echo "planted: $*" >&2
  failed=1
}

# --- symbols ----------------------------------------------------------------------------------------------------------------------

# purity_says WANT NAME: NAME.c, from stdin, joins a copy of the archive. WANT: "pass", or a pattern
# of the symbol that purity.sh must name.
purity_says() {
  local want=$1 name=$2 out status=0
  checks=$((checks + 1))
  cat >"$work/$name.c"
  "$cc" -std=gnu17 -O1 -w -fno-builtin -c "$work/$name.c" -o "$work/$name.o"
  cp "$core" "$work/libcopy.a"
  ar q "$work/libcopy.a" "$work/$name.o" 2>/dev/null
  out=$("$here/purity.sh" "$here/purity.allow" "$work/libcopy.a" 2>&1) || status=$?
  # shellcheck disable=SC2053  # a pattern on purpose
  if [[ $want == pass ]]; then
    [[ $status -eq 0 ]] || complain "harmless $name was refused: $out"
  elif [[ $status -ne 1 || $out != *"$name".o?(]):\ $want:\ * ]]; then
    complain "$name: purity.sh did not name $want (status $status): $out"
  fi
}

purity_says pass harmless <<<'#include <string.h>
void enc_u8(void *e, unsigned char v);
static const char *const names[] = {"a", "b"};
void harmless(char *p, const char *q, unsigned long n);
void harmless(char *p, const char *q, unsigned long n) { memcpy(p, q, n); enc_u8(p, (unsigned char)*names[n % 2]); }'

for call in clock_gettime time gettimeofday nanosleep random rand getrandom getentropy arc4random pthread_create pthread_mutex_lock \
  thrd_create open read write pread fopen printf __printf_chk socket mmap ioctl getenv sqlite3_open cpg_mcast_joined cmap_get \
  fuse_session_new g_get_monotonic_time g_random_int g_thread_new g_getenv isalpha strcoll \
  env_system log_at failpoint_set trace_dump cleanup_fdp_; do
  purity_says "$call" "calls_$call" <<<"void $call(void); void plant(void); void plant(void) { $call(); }"
done
purity_says stdout names_stdout <<<'extern void *stdout; void *plant(void); void *plant(void) { return stdout; }'
purity_says counter has_a_global <<<'int counter = 1; int plant(void); int plant(void) { return ++counter; }'
# gcc calls it hidden.0, clang plant.hidden.
purity_says '?(plant.)hidden?(.0)' has_a_static <<<'int plant(void); int plant(void) { static int hidden; return ++hidden; }'
purity_says slot has_a_thread_local <<<'_Thread_local int slot; int plant(void); int plant(void) { return ++slot; }'

# --- include paths ----------------------------------------------------------------------------------------------------------------

# uses LAYER: the layers that includes.rules let it use, itself among them.
uses() { echo " $1 $(sed -n "s/^$1: *//p" "$here/includes.rules" | tr -s ' ' '\n' | grep -vE '[/@.]' | tr '\n' ' ')"; }

# A header of LAYER, as others write it; none while a layer has no public header.
header_of() { [[ ! -d $source_dir/src/$1/include/$1 ]] || (cd "$source_dir/src/$1/include" && find "$1" -name "*.h" | sort | head -1); }

while IFS=: read -r layer dirs; do
  flags=()
  IFS=';' read -ra dirs <<<"${dirs# }"
  for dir in "${dirs[@]}"; do flags+=(-I "$dir"); done
  for other in base core repl store net fs fuse ctl daemon cli; do
    header=$(header_of "$other")
    [[ -n $header ]] || continue
    checks=$((checks + 1))
    status=0
    out=$("$cc" -std=gnu17 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -fsyntax-only "${flags[@]}" -x c - 2>&1 <<<"#include <$header>") || status=$?
    missing=0
    [[ $out == *"$header"*"No such file"* || $out == *"$header"*"file not found"* ]] && missing=1
    if [[ $(uses "$layer") != *" $other "* ]]; then
      [[ $status -ne 0 && $missing -eq 1 ]] || complain "$layer can include <$header>: $out"
    elif [[ $other == "$layer" || $other == base ]]; then
      [[ $status -eq 0 ]] || complain "$layer cannot include <$header>: $out"
    else # the layer's CMakeLists.txt may ask for less than the rules let it
      [[ $status -eq 0 || $missing -eq 1 ]] || complain "$layer: <$header> does not compile alone: $out"
    fi
  done
done <"$includes"

# --- the scan ---------------------------------------------------------------------------------------------------------------------

# scan_says WANT LAYER LINE: a tree with this one file. WANT: "pass", or the header that includes.sh must name.
scan_says() {
  local want=$1 layer=$2 line=$3 out status=0
  checks=$((checks + 1))
  rm -rf "$work/src"
  mkdir -p "$work"/src/{base,core,repl,store,net,fs,fuse,ctl,daemon,cli}
  touch "$work/src/$layer/private.h"
  printf '#include <string.h>\n%s\n' "$line" >"$work/src/$layer/planted.c"
  out=$("$here/includes.sh" "$here/includes.rules" "$work/src" 2>&1) || status=$?
  if [[ $want == pass ]]; then
    [[ $status -eq 0 ]] || complain "$layer may have \"$line\", yet: $out"
  else
    [[ $status -eq 1 && $out == *"src/$layer/planted.c:2: $want: "* ]] || complain "$layer: \"$line\" passed the scan (status $status): $out"
  fi
}

scan_says pass core '#include "base/codec.h"'
scan_says pass core '#include "private.h"'
scan_says pass core '#include <glib.h>'
scan_says pass store '#include <sqlite3.h>'
scan_says pass fuse '#include <fuse_lowlevel.h>'
scan_says pass net '#include <corosync/cpg.h>'
scan_says pass fs '#include <sys/statvfs.h>'
scan_says store/store.h core '#include <store/store.h>'
scan_says store/store.h core '#include "store/store.h"'
scan_says fuse_lowlevel.h core '#include <fuse_lowlevel.h>'
scan_says sqlite3.h core '#include <sqlite3.h>'
scan_says sqlite3.h core '  #  include	<sqlite3.h>'
scan_says pthread.h core '#include <pthread.h>'
scan_says time.h repl '#include <time.h>'
scan_says store/store.h repl '#include "store/store.h"'
scan_says ../store/include/store/store.h repl '#include "../store/include/store/store.h"'
scan_says /usr/include/sqlite3.h core '#include </usr/include/sqlite3.h>'
scan_says '#include HEADER' core '#include HEADER'
scan_says fuse_lowlevel.h fs '#include <fuse_lowlevel.h>'
scan_says fuse3/fuse.h fs '#include <fuse3/fuse.h>'
scan_says linux/fuse.h fs '#include <linux/fuse.h>'
scan_says fuse/fuse.h fs '#include "fuse/fuse.h"'
scan_says core/tree.h base '#include "core/tree.h"'
scan_says sqlite3.h net '#include <sqlite3.h>'
scan_says corosync/cpg.h store '#include <corosync/cpg.h>'
scan_says sqlite3.h daemon '#include <sqlite3.h>'
scan_says daemon/daemon.h cli '#include "daemon/daemon.h"'

echo "planted: $checks checks"
exit $failed
