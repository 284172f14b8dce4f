#!/usr/bin/env bash
# Trains Agent57 on deep_sea with the preset `small`; run it from an empty directory, and then collect.py there. Runs that are
# complete are skipped, and one that was stopped is resumed, so it goes on where it was stopped. Arguments are the number of
# seeds (5) and a part of the names of the runs to make (all).
set -euo pipefail
only=${2:-}
train() { # NAME SIZE SEED STEPS EVERY [FLAGS]
  local run=runs/$1_$2-$3
  [[ "$1_$2" == *"${only:-}"* ]] || return 0
  [ -e "$run/complete" ] && return
  if [ -e "$run/config.json" ]; then
    retrax train --resume "$run" --plain
  else
    retrax train agent57 --environment "deep_sea,size=$2" --seed "$3" --steps "$4" --log-every 250 --evaluate-every "$5" \
      --evaluation-episodes 16 --run-directory "$run" --plain "${@:6}"
  fi
  touch "$run/complete"
}
for seed in $(seq 0 $((${1:-5} - 1))); do
  train agent57 10 "$seed" 6000 500
  train agent57 20 "$seed" 30000 1000
  train r2d2_retrace 10 "$seed" 6000 500 --preset small_r2d2_retrace
  train r2d2_retrace 20 "$seed" 60000 5000 --preset small_r2d2_retrace
  for rung in r2d2 r2d2_retrace r2d2_bandit ngu split meta_controller; do
    train "$rung" 12 "$seed" 12000 1000 --preset "small_$rung"
  done
  train agent57 12 "$seed" 12000 1000
done
for seed in $(seq 20 39); do # fixed before the first of them ran
  train twenty 10 "$seed" 12000 500
done
