#!/usr/bin/env bash
# Makes the figure and the table of this folder; about an hour and a half on two cores. Run it from an empty directory.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
train() { # NAME AGENT ENVIRONMENT STEPS EVERY EPISODES
  for seed in 0 1 2; do
    retrax train "$2" --environment "$3" --steps "$4" --evaluate-every "$5" --evaluation-episodes "$6" \
      --seed "$seed" --run-directory "runs/$1-$seed" --plain
  done
}
train reactor-lunar reactor LunarLander-v3 100000 5000 10
train acer-breakout acer MinAtar/Breakout-v1,use_minimal_action_set=False 1000000 50000 10
train d4pg-cheetah d4pg dm_control:cheetah/run 500000 25000 5
train agent57-deep_sea agent57 deep_sea,size=20 150000 7500 5
python "$here/../collect.py" evaluations runs
python "$here/../result_tables.py" evaluations --draw
