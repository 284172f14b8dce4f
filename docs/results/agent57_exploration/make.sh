#!/usr/bin/env bash
# Trains Agent57 on deep_sea with the preset `small`; run it from an empty directory, and then report.py there. Runs that are
# complete are skipped, and one that was stopped is resumed, so it goes on where it was stopped. An argument is the number of
# seeds (5).
set -euo pipefail
train() { # SIZE SEED STEPS
  local run=runs/deep_sea_$1-$2
  [ -e "$run/complete" ] && return
  if [ -e "$run/config.json" ]; then
    retrax train --resume "$run" --plain
  else
    retrax train agent57 --environment "deep_sea,size=$1" --seed "$2" --steps "$3" --log-every 250 --evaluate-every 500 \
      --evaluation-episodes 16 --run-directory "$run" --plain
  fi
  touch "$run/complete"
}
for seed in $(seq 0 $((${1:-5} - 1))); do
  train 10 "$seed" 6000
done
