#!/bin/sh
# variants.sh COTERIE-SIM [VARIANT...]: every machine that is broken on purpose is found by the checkers; variants.txt says where to look.
set -u
sim=$1
shift
here=$(dirname "$0")
failed=0
listed=$("$sim" --list-variants | cut -d' ' -f1)
# shellcheck disable=SC2048  # words on purpose
for name in ${*:-$listed}; do
        options=$(sed -n "s/^$name  *//p" "$here/variants.txt")
        if [ -z "$options" ]; then
                echo "$name: not in variants.txt"
                failed=1
                continue
        fi
        # shellcheck disable=SC2086 # a list of options
        found=$("$sim" --variant "$name" $options 2>&1)
        status=$?
        line=$(printf '%s\n' "$found" | grep -m 1 '^seed [0-9][^:]*:')
        echo "$name: exit status $status, ${line:-nothing found}"
        [ $status -eq 1 ] || [ $status -eq 3 ] || failed=1
done
exit $failed
