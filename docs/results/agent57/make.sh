#!/usr/bin/env bash
# Makes the figures and the tables of this folder, two runs at a time; about half an hour on two cores. Run it from an
# empty directory.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
train() { # NAME SEED PRESET ENVIRONMENT [FLAGS]
  local run=runs/$1-$2 started=$SECONDS seconds
  retrax train agent57 --preset "$3" --environment "$4" --seed "$2" --run-directory "$run" --plain "${@:5}" 1>&2
  seconds=$((SECONDS - started))
  echo "$1 seed $2: $seconds s $(retrax evaluate "$run" --episodes 96 --json)"
}
export -f train
rungs=(r2d2 r2d2_retrace ngu split meta_controller agent57)
coin="--steps 200000 --agent.replay.acting-steps-per-update 32 --agent.actor-epsilon-exponent 2 --agent.target-update-period 100"
for seed in 0 1 2; do
  for rung in "${rungs[@]}"; do
    preset=small_$rung
    echo "random_coin_$rung $seed ${preset/small_agent57/small} random_coin $coin"
  done
  echo "deep_sea_agent57 $seed small deep_sea"
  echo "deep_sea_r2d2 $seed small_r2d2 deep_sea"
  echo "memory_r2d2 $seed small_r2d2 memory"
done | xargs -P 2 -L 1 bash -c 'train "$@"' train | tee "$here/evaluations.txt"
sort -o "$here/evaluations.txt" "$here/evaluations.txt"
for task in random_coin deep_sea memory; do
  retrax plot runs/$task* --window 20 --output "$here/$task.png"
done
for run in runs/*; do
  mkdir -p "$here/$(basename "$run")"
  cp "$run/metrics.csv" "$run/config.json" "$here/$(basename "$run")/"
done
