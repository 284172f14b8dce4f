#!/usr/bin/env bash
# Trains the ladder on random_coin, with as many updates for each arm: rungs of one arm 128,000 steps, those of two arms
# 256,000. Run it from an empty directory, and then random_coin.py there. Runs that are complete are skipped. Arguments are
# the seeds (0).
set -euo pipefail
train() { # NAME SEED PRESET STEPS [FLAGS]
  local run=runs/$1-$2
  [ -e "$run/complete" ] && return
  rm -rf "$run"
  retrax train agent57 --preset "$3" --environment random_coin --seed "$2" --steps "$4" --evaluate-every $(($4 / 16)) \
    --evaluation-episodes 32 --run-directory "$run" --plain --agent.replay.capacity 100000 \
    --agent.replay.acting-steps-per-update 16 --agent.target-update-period 100 "${@:5}"
  for arm in 0 1; do
    [[ $arm = 1 && $# = 4 ]] || retrax evaluate "$run" --arm $arm --episodes 100 --json > "$run/arm$arm.json"
  done
  touch "$run/complete"
}
two() { train "$1" "$2" "$3" 256000 --agent.num-arms 2 "${@:4}"; }
[ $# -gt 0 ] || set -- 0
for seed in "$@"; do
  two agent57_0.3 "$seed" small
  two meta_controller_0.3 "$seed" small_meta_controller
  two split_0.3 "$seed" small_split
  two ngu_0.3 "$seed" small_ngu
  two r2d2_bandit "$seed" small_r2d2_bandit
  train r2d2_retrace "$seed" small_r2d2_retrace 128000
  train r2d2 "$seed" small_r2d2 128000
done
for seed in "$@"; do
  for beta in 0.1 0.01 0; do
    two split_$beta "$seed" small_split --agent.intrinsic-weight $beta
    two ngu_$beta "$seed" small_ngu --agent.intrinsic-weight $beta
  done
done
