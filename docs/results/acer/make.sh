#!/usr/bin/env bash
# Makes the figures and the tables of this folder; about a quarter of an hour on two cores. Run it from an empty
# directory. All presets and steps are the defaults but for the change that a name tells of.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
train() { # NAME SEED ENVIRONMENT [FLAGS]
  local run=runs/$1-$2
  retrax train acer --environment "$3" --seed "$2" --run-directory "$run" --plain "${@:4}"
  retrax evaluate "$run" --episodes 100 --json > "$run/evaluation.json"
}
for seed in 0 1 2; do
  train catch "$seed" catch
  train cart_pole "$seed" CartPole-v1
  train cart_pole_without_replay "$seed" CartPole-v1 --agent.replay.replay-ratio 0
  train pendulum "$seed" Pendulum-v1
  train pendulum_no_trust_region "$seed" Pendulum-v1 --agent.trust-region False
  train pendulum_no_stochastic_dueling "$seed" Pendulum-v1 --agent.stochastic-dueling False
done
train balance 0 dm_control:cartpole/balance --steps 500000
python "$here/../collect.py" acer runs
python "$here/../result_tables.py" acer --draw
