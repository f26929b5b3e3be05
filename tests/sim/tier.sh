#!/bin/sh
# tier.sh COTERIE-SIM full|nightly [JOBS]: many seeds over all configurations: drawn faults in memory and on SQLite, and every schedule.
# COTERIE_SIM_FIRST: the first seed, so that each night has others.
set -u
sim=$1 jobs=${3:-2} first=${COTERIE_SIM_FIRST:-1}
case $2 in
full) mem=550 sqlite=230 script=720 least=100 ;;
nightly) mem=50000 sqlite=20000 script=30000 least=1000 ;;
*) echo "usage: tier.sh COTERIE-SIM full|nightly [JOBS]" >&2; exit 2 ;;
esac
exec "$sim" --plan "mem:$mem,sqlite:$sqlite,script:$script" --seed "$first" --jobs "$jobs" --keep-going --min-probe "$least"
