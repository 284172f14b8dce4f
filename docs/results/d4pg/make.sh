#!/usr/bin/env bash
# Makes the figure and the tables of this folder from Pendulum: preset `small`, and one change at a time; about half an
# hour on two cores. Run it from an empty directory.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
declare -A changes=(
  [categorical]=""
  [mixture_of_gaussians]="--agent.critic mixture_of_gaussians"
  [scalar]="--agent.critic scalar"
  [one_step]="--agent.n-step 1"
  [uniform]="--agent.replay.selector uniform"
)
for seed in 0 1 2; do
  for name in categorical mixture_of_gaussians scalar one_step uniform; do
    run=runs/$name-$seed
    # shellcheck disable=SC2086 # several words
    retrax train d4pg --environment Pendulum-v1 --seed "$seed" --run-directory "$run" --plain ${changes[$name]}
    retrax evaluate "$run" --episodes 100 --json > "$run/evaluation.json"
  done
done
python "$here/../collect.py" d4pg runs
python "$here/../result_tables.py" d4pg --draw
