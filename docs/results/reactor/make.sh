#!/usr/bin/env bash
# Makes the figures and tables of this folder; about 25 minutes on two cores. Run it from an empty directory.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
for environment in catch memory CartPole-v1; do
  for seed in 0 1 2; do
    run=runs/$environment-$seed
    retrax train reactor --environment "$environment" --seed "$seed" --run-directory "$run" --plain
    retrax evaluate "$run" --episodes 100 --json > "$run/evaluation.json"
  done
done
retrax train reactor --environment memory --run-directory runs/memory-without-recurrence --agent.recurrent False
retrax evaluate runs/memory-without-recurrence --episodes 500 --json > runs/memory-without-recurrence/evaluation.json
python "$here/../collect.py" reactor runs
python "$here/../result_tables.py" reactor --draw
