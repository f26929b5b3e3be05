#!/bin/sh
# seeds.sh COTERIE-SIM: what failed once is run again: each line of seeds.txt is a list of options, then `#` and the bug.
set -u
here=$(dirname "$0")
failed=0
sed -e 's/#.*//' -e '/^ *$/d' "$here/seeds.txt" | {
        while read -r options; do
                # shellcheck disable=SC2086 # a list of options
                "$1" $options </dev/null || {
                        echo "failed: $options"
                        failed=1
                }
        done
        exit $failed
}
