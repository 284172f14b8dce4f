#!/usr/bin/env bash
# Trains and evaluates one side of the comparison, "before" or "after", with the retrax that is installed: check the
# commit out first. Runs that are complete are skipped, so it goes on where it was stopped. Run it from one directory for
# both sides; about 90 minutes a side on one core.
# Then collect.py corrections runs puts them into the page.
set -euo pipefail
side=${1:?before or after}
export NPROC=1
train() { # NAME SEED AGENT ENVIRONMENT [FLAGS]
  local run=runs/$side/$1-$2
  [ -e "$run/evaluation.json" ] && return
  rm -rf "$run"
  retrax train "$3" --environment "$4" --seed "$2" --run-directory "$run" --plain "${@:5}"
  retrax evaluate "$run" --episodes 20 --json > "$run/evaluation.partial"
  mv "$run/evaluation.partial" "$run/evaluation.json"
}
for seed in 0 1 2; do
  train cart_pole "$seed" acer CartPole-v1 --steps 60000
  train pendulum "$seed" acer Pendulum-v1 --steps 100000
  train no_dueling "$seed" acer Pendulum-v1 --steps 100000 --agent.stochastic-dueling False
  train tree "$seed" reactor CartPole-v1 --steps 40000 --agent.replay.capacity 8000
  train swingup "$seed" d4pg dm_control:cartpole/swingup --steps 200000
  train hopper "$seed" d4pg Hopper-v5 --steps 60000 --preset small \
    --agent.vmin -50 --agent.vmax 500 --agent.discount 0.99
  train cart_pole_2_environments "$seed" acer CartPole-v1 --steps 60000 --num-envs 2
  for epsilon in 1e-4 1e-8; do
    for task in catch memory; do
      train "$task-$epsilon" "$seed" reactor "$task" --agent.adam-epsilon "$epsilon"
    done
    train "cart_pole-$epsilon" "$seed" reactor CartPole-v1 --agent.adam-epsilon "$epsilon" --steps 40000
    train "breakout-$epsilon" "$seed" reactor MinAtar/Breakout-v1 --agent.adam-epsilon "$epsilon" --steps 40000
  done
done
