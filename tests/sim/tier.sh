#!/bin/sh
# tier.sh COTERIE-SIM full|nightly [JOBS]: many seeds over all configurations: drawn faults in memory and on SQLite, and every schedule.
# COTERIE_SIM_FIRST: the first seed, so that each night has others.
set -u
sim=$1 jobs=${3:-2} first=${COTERIE_SIM_FIRST:-1}
case $2 in
full) plan=mem:550,sqlite:230,script:720 reached="--min-probe 100" ;;
nightly) plan=mem:50000,sqlite:20000,script:30000 reached="--min-probe 1000" ;;
*) echo "usage: tier.sh COTERIE-SIM full|nightly [JOBS]" >&2; exit 2 ;;
esac
# shellcheck disable=SC2086 # two words
exec "$sim" --plan "$plan" --seed "$first" --jobs "$jobs" --keep-going $reached
