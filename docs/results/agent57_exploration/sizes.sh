#!/usr/bin/env bash
# Trains Agent57 with its preset `small` on deep_sea of other sizes, in ./sizes of this directory, and keeps what
# explored.py prints as sizes/SIZE-SEED.txt; runs that are complete are skipped. Arguments: the seeds (0 1 2).
set -euo pipefail
cd "$(dirname "$0")"
mkdir -p sizes
train() { # SIZE SEED STEPS
  local log=sizes/$1-$2
  [ -e "$log.txt" ] && return
  rm -rf "$log"
  EXPLORED_EVERY=10000 retrax train agent57 --preset small --environment "explored:explored,size=$1" --seed "$2" --steps "$3" \
    --log-every 250 --run-directory "$log" --plain > "$log.log"
  grep -E '^(explored|solved) ' "$log.log" > "$log.txt"
}
[ $# -gt 0 ] || set -- 0 1 2
for seed in "$@"; do
  train 10 "$seed" 20000
  train 12 "$seed" 30000
  train 14 "$seed" 40000
  train 16 "$seed" 50000
  train 18 "$seed" 60000
  train 20 "$seed" 60000
  train 24 "$seed" 100000
  train 30 "$seed" 150000
done
