#!/usr/bin/env bash
# Makes the figures and the tables of this folder; about an hour on two cores. Run it from an empty directory.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
train() { # NAME SEED PRESET ENVIRONMENT [FLAGS]
  local run=runs/$1-$2 started=$SECONDS
  retrax train agent57 --preset "$3" --environment "$4" --seed "$2" --run-directory "$run" --plain "${@:5}" 1>&2
  printf '%s seed %s: %s s ' "$1" "$2" "$((SECONDS - started))"
  retrax evaluate "$run" --episodes 96 --json
}
{
  for seed in 0 1 2; do
    train deep_sea_agent57 "$seed" small deep_sea
    train deep_sea_r2d2 "$seed" small_r2d2 deep_sea
    train memory_r2d2 "$seed" small_r2d2 memory
  done
  for seed in 0 1 2; do
    for rung in r2d2 r2d2_retrace ngu split meta_controller; do
      train "random_coin_$rung" "$seed" "small_$rung" random_coin --steps 100000 --agent.replay.acting-steps-per-update 16
    done
    train random_coin_agent57 "$seed" small random_coin --steps 100000 --agent.replay.acting-steps-per-update 16
  done
} | tee "$here/evaluations.txt"
retrax plot runs/deep_sea* --window 5 --output "$here/deep_sea.png"
retrax plot runs/memory* --window 5 --output "$here/memory.png"
retrax plot runs/random_coin* --window 20 --output "$here/random_coin.png"
for run in runs/*; do
  mkdir -p "$here/$(basename "$run")"
  cp "$run/metrics.csv" "$run/config.json" "$here/$(basename "$run")/"
done
