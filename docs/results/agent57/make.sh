#!/usr/bin/env bash
# Makes the figures and the tables of this folder, two runs at a time; about half an hour on two cores. Run it from an
# empty directory.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH=$here/../../../examples
train() { # NAME SEED PRESET ENVIRONMENT [FLAGS]
  local run=runs/$1-$2
  retrax train agent57 --preset "$3" --environment "$4" --seed "$2" --run-directory "$run" --plain "${@:5}"
  retrax evaluate "$run" --episodes 96 --json > "$run/evaluation.json"
}
export -f train
rungs=(r2d2 r2d2_retrace ngu split meta_controller agent57)
coin="--steps 200000 --agent.replay.acting-steps-per-update 32 --agent.actor-epsilon-exponent 2 --agent.target-update-period 100"
for seed in 0 1 2; do
  for rung in "${rungs[@]}"; do
    preset=small_$rung
    echo "random_coin_$rung $seed ${preset/small_agent57/small} grid_worlds:RandomCoin $coin"
  done
  echo "deep_sea_agent57 $seed small deep_sea"
  echo "deep_sea_r2d2 $seed small_r2d2 deep_sea"
  echo "memory_r2d2 $seed small_r2d2 memory"
done | xargs -P 2 -L 1 bash -c 'train "$@"' train
python "$here/../collect.py" agent57 runs
python "$here/../result_tables.py" agent57 --draw
