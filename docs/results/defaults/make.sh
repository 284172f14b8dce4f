#!/usr/bin/env bash
# Trains and evaluates the agents with their default presets: an environment id, steps and a seed are all that is given.
# Runs that are complete are skipped, so it goes on where it was stopped. An argument selects the tasks whose name has it.
# Then collect.py defaults runs puts them into the page.
set -euo pipefail
only=${1:-}
export NPROC=1
train() { # NAME SEED AGENT ENVIRONMENT STEPS [FLAGS]
  local run=runs/$1-$2
  [[ "$1" == *"$only"* ]] || return 0
  [ -e "$run/evaluation.json" ] && return
  rm -rf "$run"
  retrax train "$3" --environment "$4" --steps "$5" --seed "$2" --run-directory "$run" --plain "${@:6}"
  retrax evaluate "$run" --episodes 20 --json > "$run/evaluation.partial"
  mv "$run/evaluation.partial" "$run/evaluation.json"
}
for seed in 0 1 2; do
  train d4pg_mountain_car "$seed" d4pg MountainCarContinuous-v0 30000
  train d4pg_pendulum "$seed" d4pg Pendulum-v1 40000
  train d4pg_half_cheetah "$seed" d4pg HalfCheetah-v5 100000
  train d4pg_hopper "$seed" d4pg Hopper-v5 100000
  train acer_cart_pole "$seed" acer CartPole-v1 60000
  train acer_acrobot "$seed" acer Acrobot-v1 60000
  train acer_frozen_lake "$seed" acer FrozenLake-v1 60000
  train acer_pendulum "$seed" acer Pendulum-v1 100000
  train acer_lunar_lander "$seed" acer LunarLander-v3 300000
  train reactor_acrobot "$seed" reactor Acrobot-v1 120000
  train reactor_cart_pole "$seed" reactor CartPole-v1 40000
  train agent57_acrobot "$seed" agent57 Acrobot-v1 120000 --evaluate-every 6000
  train agent57_mountain_car "$seed" agent57 MountainCar-v0 200000 --evaluate-every 5000
done
for seed in 0; do # tasks without a goal, for which nothing was tuned
  train acer_cliff_walking "$seed" acer CliffWalking-v1 60000
  train acer_blackjack "$seed" acer Blackjack-v1 60000
  train d4pg_swimmer "$seed" d4pg Swimmer-v5 60000
  train d4pg_walker "$seed" d4pg Walker2d-v5 100000
done
