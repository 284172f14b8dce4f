#!/usr/bin/env bash
# Trains rungs of the ladder on the random disco maze, which pays nothing, and then counts the cells that the snapshots visit, by
# arm: runs/RUNG-SEED/arms.csv. Run it from an empty directory, and then disco_maze.py there. Runs that are complete are skipped.
# Arguments: the rungs ("r2d2_retrace ngu split agent57 ngu_pixels"), and the seeds (0).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
PYTHONPATH=$here:$here/../../../examples
export PYTHONPATH
train() { # RUNG SEED
  local run=runs/$1-$2 preset=small_${1%_pixels} maze=maze:maze steps=100000 arms=2 flags=(--agent.num-arms 2)
  [ -e "$run/complete" ] && return
  [ "$1" = agent57 ] && preset=small
  [ "$1" = r2d2_retrace ] && arms=1 flags=()
  [[ "$1" = *_pixels ]] && maze=maze:maze,pixels=true steps=20000 && flags+=(--agent.auxiliary-learning-rate 2e-3)
  rm -rf "$run"
  retrax train agent57 --preset "$preset" --environment "$maze" --seed "$2" --steps "$steps" --snapshot-every $((steps / 5)) \
    --keep-snapshots 5 --run-directory "$run" --plain --agent.replay.capacity 50000 \
    --agent.replay.acting-steps-per-update 8 "${flags[@]}"
  echo arm,steps,visits,low,high,length > "$run/arms.csv"
  for snapshot in $(find "$run/snapshots" -mindepth 1 -maxdepth 1 -name '[0-9]*' -printf '%f\n' | sort -n); do
    for arm in $(seq 0 $((arms - 1))); do
      PAY_VISITS=1 retrax evaluate "$run" --snapshot "$snapshot" --arm "$arm" --episodes 100 --json |
        python -c "import json, sys; r = json.load(sys.stdin); print($arm, *(r[k] for k in ('steps', 'mean_return', 'low', 'high', 'mean_length')), sep=',')" >> "$run/arms.csv"
    done
  done
  touch "$run/complete"
}
for seed in ${2:-0}; do
  for rung in ${1:-r2d2_retrace ngu split agent57 ngu_pixels}; do
    train "$rung" "$seed"
  done
done
