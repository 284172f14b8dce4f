#!/usr/bin/env bash
# Trains the ladder on random_coin: 256,000 steps with one arm, 256,000 to 640,000 with two. Then separate and mixed values with several
# weights of the intrinsic reward, 256,000 steps. Run it from an empty directory, and then random_coin.py there. Runs that are
# complete are skipped. Arguments are the seeds (0).
set -euo pipefail
PYTHONPATH=$(cd "$(dirname "$0")/../../../examples" && pwd)
export PYTHONPATH
train() { # NAME SEED PRESET STEPS ARMS [FLAGS]
  local run=runs/$1-$2
  [ -e "$run/complete" ] && return
  rm -rf "$run"
  retrax train agent57 --preset "$3" --environment grid_worlds:RandomCoin --seed "$2" --steps "$4" --evaluate-every $((8000 * $5)) \
    --evaluation-episodes 32 --run-directory "$run" --plain --agent.replay.capacity 100000 \
    --agent.replay.acting-steps-per-update 16 --agent.target-update-period 100 "${@:6}"
  for arm in $(seq 0 $(($5 - 1))); do
    retrax evaluate "$run" --arm "$arm" --episodes 100 --json > "$run/arm$arm.json"
  done
  touch "$run/complete"
}
one() { train "$1" "$2" "$3" 256000 1; }
two() { train "$1" "$2" "$3" "$4" 2 --agent.num-arms 2 "${@:5}"; }
[ $# -gt 0 ] || set -- 0
for seed in "$@"; do
  two agent57_0.3 "$seed" small 512000
  two meta_controller_0.3 "$seed" small_meta_controller 512000
  two split_0.3 "$seed" small_split 640000
  two ngu_0.3 "$seed" small_ngu 512000
  two agent57_ngu_discounts "$seed" small 384000 --agent.discounts ngu
  two meta_controller_ngu_discounts "$seed" small_meta_controller 384000 --agent.discounts ngu
  two split_uniform_replay "$seed" small_split 256000 --agent.replay.priority-exponent 0
  two r2d2_bandit "$seed" small_r2d2_bandit 256000
  one r2d2_retrace "$seed" small_r2d2_retrace
  one r2d2 "$seed" small_r2d2
  for beta in 0.1 0.01 0; do
    two split_$beta "$seed" small_split 256000 --agent.intrinsic-weight $beta
    two ngu_$beta "$seed" small_ngu 256000 --agent.intrinsic-weight $beta
  done
done
