#!/bin/sh
# same-hash.sh COTERIE-SIM [OTHER]: one seed decides everything: the trace hash is the same in another process, with another environment,
# locale, allocator setting and place in memory, and in a build by another compiler (OTHER).
set -u
other=${2:-$1}
for options in "--seed 3 --count 4 --store mem" "--seed 11 --count 2 --store sqlite" "--seed 5 --script rotate --count 2"; do
        # shellcheck disable=SC2086 # a list of options
        a=$("$1" $options | sed -n 's/.*trace hash //p')
        # shellcheck disable=SC2086
        b=$(env -i LC_ALL=C.UTF-8 TZ=Asia/Tokyo G_RANDOM_VERSION=2.0 MALLOC_PERTURB_=170 MALLOC_ARENA_MAX=1 PADDING="$(head -c 5000 /dev/zero | tr '\0' x)" "$other" $options | sed -n 's/.*trace hash //p')
        echo "$options: $a $b"
        [ -n "$a" ] && [ "$a" = "$b" ] || exit 1
done
