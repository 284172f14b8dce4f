#!/usr/bin/env bash
# Makes the figures and tables of this folder; about 25 minutes on two cores. Run it from an empty directory.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
for environment in catch memory CartPole-v1; do
  for seed in 0 1 2; do
    run=runs/$environment-$seed
    started=$SECONDS
    retrax train reactor --environment "$environment" --seed "$seed" --run-directory "$run"
    printf '%s seed %s: %s s ' "$environment" "$seed" "$((SECONDS - started))"
    retrax evaluate "$run" --episodes 100 --json
  done
done | grep mean_return | tee "$here/evaluations.txt"
retrax train reactor --environment memory --run-directory runs/memory-without-recurrence --agent.recurrent False
retrax evaluate runs/memory-without-recurrence --episodes 500 --json | tee -a "$here/evaluations.txt"
retrax plot runs/*-[012] --window 5 --output "$here/curves.png"
for run in runs/*; do
  mkdir -p "$here/$(basename "$run")"
  cp "$run/metrics.csv" "$run/config.json" "$here/$(basename "$run")/"
done
