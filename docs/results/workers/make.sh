#!/usr/bin/env bash
# Trains workers around a parameter server, and as many environments in one process, and evaluates them. Runs that are
# complete are skipped, so it goes on where it was stopped. The argument is a seed. Run it from one directory for all seeds.
# Then collect.py workers runs puts them into the page.
set -euo pipefail
seed=${1:?a seed}
run() { # NAME COMMAND AGENT ENVIRONMENT STEPS [FLAGS]
  local run=runs/$1-$seed
  [ -e "$run/evaluation.json" ] && return
  rm -rf "$run"
  retrax "$2" "$3" --environment "$4" --steps "$5" --seed "$seed" --run-directory "$run" --plain "${@:6}"
  retrax evaluate "$run" --episodes 20 --json > "$run/evaluation.partial"
  mv "$run/evaluation.partial" "$run/evaluation.json"
}
workers=--num-workers
run acer_process train acer CartPole-v1 60000 --num-envs 4
run reactor_process train reactor catch 20000 --num-envs 4
for number in 1 2 4 8; do
  run acer_$number launch acer CartPole-v1 60000 $workers $number
  run reactor_$number launch reactor catch 20000 $workers $number
done
run reactor_momentum_process train reactor catch 20000 --num-envs 4 --agent.adam-b1 0.9
for number in 4 8; do
  run reactor_momentum_$number launch reactor catch 20000 $workers $number --agent.adam-b1 0.9
done
