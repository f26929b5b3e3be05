#!/bin/sh
# digest.sh DIGEST_PRINT GOLDEN: every line of GOLDEN (seed, operations, digest) must come out the same, whatever the allocator fills its
# memory with, wherever that memory lies, and however the tree's hash tables are seeded. GOLDEN was written by another compiler's build as
# well as by this one: a digest that depends on either is a bug, or a change of the format that needs a decision.
set -eu
print=$1
golden=$2
failed=0
lines=0
compare() { # expected got how
        if [ "$1" != "$2" ]; then
                echo "expected '$1', got '$2' ($3)"
                failed=1
        fi
}
while read -r seed operations digest; do
        lines=$((lines + 1))
        line="$seed $operations $digest"
        compare "$line" "$("$print" "$seed" "$operations")" "plain"
        compare "$line" "$("$print" "$seed" "$operations" 1)" "hash seed 1"
        compare "$line" "$("$print" "$seed" "$operations" 0xfedcba9876543210)" "another hash seed"
        compare "$line" "$(MALLOC_PERTURB_=165 "$print" "$seed" "$operations")" "MALLOC_PERTURB_=165"
        compare "$line" "$(MALLOC_ARENA_MAX=1 MALLOC_MMAP_THRESHOLD_=4096 "$print" "$seed" "$operations" 2)" "small mmap threshold"
        compare "$line" "$(GLIBC_TUNABLES=glibc.malloc.tcache_count=0 "$print" "$seed" "$operations" 3)" "no tcache"
done <"$golden"
[ "$lines" -gt 0 ] || { echo "no golden digest in $golden"; exit 1; }
exit $failed
