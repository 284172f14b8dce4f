"""Trials of changes to D4PG's `small`, on tasks where newer agents are far above it.

    NPROC=1 python docs/results/control/trials.py RUNS

Trains each change for 250,000 environment steps, evaluates 20 greedy episodes, and rewrites
RUNS/trials.csv after each run. Changes whose names begin with `repeat_2` repeat actions twice: the
`steps` of their runs are decisions, half as many. Started again, it goes on where it was stopped,
with the rows that `CHANGES` has then. Ctrl-C saves a snapshot.
"""

import argparse
import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

from retrax.command.grid import EVALUATION, Cell, GridState, run_grid
from retrax.command.parsing import tell
from retrax.evaluation import read_metrics
from retrax.training.process import DirectoryLock, stop_on_signals
from retrax.training.run_config import RunConfig

STEPS, EPISODES = 250_000, 20
EACH = "--agent.replay.acting-steps-per-update 1"  # an update for each decision
NORMALIZED = "--agent.normalize-observations True"
RESIDUAL = (
    "--agent.residual True --agent.action-input concatenated --agent.layer-norm False "
    "--agent.policy-sizes 128 128 --agent.critic-sizes 128 128"
)
BOTH = f"{NORMALIZED} {RESIDUAL}"
SLOWER = "--agent.policy-learning-rate 3e-4 --agent.critic-learning-rate 3e-4"
FEWER = "--agent.num-atoms 51"
NARROW = "--agent.vmin -1.1 --agent.vmax 1.1 --agent.num-atoms 111"  # atoms as close as before
LIGHTER = f"{BOTH} {SLOWER} {NARROW}".replace("policy-sizes 128 128", "policy-sizes 64 64")
# Flags after those of `small`, in the order of the runs.
CHANGES = {
    "small": "",
    "repeat_2": EACH,
    "both_slower": f"{BOTH} {SLOWER}",
    "fewer_atoms": FEWER,
    "fewer_atoms_slower": f"{FEWER} {SLOWER}",
    "narrow": NARROW,
    "lighter": LIGHTER,
    "repeat_2_lighter_3_steps": f"{EACH} {LIGHTER} --agent.n-step 3",
    "wide_policy": "--agent.policy-sizes 256 256",
    "wider_policy_slower": f"--agent.policy-sizes 128 128 {SLOWER}",
    "repeat_2_both_slower": f"{EACH} {BOTH} {SLOWER}",
    "repeat_2_3_steps": f"{EACH} --agent.n-step 3",
    "repeat_2_normalized": f"{EACH} {NORMALIZED}",
    "repeat_2_both": f"{EACH} {BOTH}",
    "repeat_2_both_slower_3_steps": f"{EACH} {BOTH} {SLOWER} --agent.n-step 3",
    "repeat_2_both_slower_batch_256": f"{EACH} {BOTH} {SLOWER} --agent.replay.batch-size 256",
    "both": BOTH,
    "normalized": NORMALIZED,
    "residual": RESIDUAL,
    "both_decay": f"{BOTH} --agent.weight-decay 0.01",
    "both_3_steps": f"{BOTH} --agent.n-step 3",
    "both_more_updates": f"{BOTH} --agent.replay.acting-steps-per-update 2",
    "both_wide_critic": f"{BOTH} --agent.critic-sizes 256 256",
    "both_batch_256": f"{BOTH} --agent.replay.batch-size 256",
    "both_less_noise": f"{BOTH} --agent.sigma-max 0.5",
    "both_uniform": f"{BOTH} --agent.replay.selector uniform",
}
HARD = ("finger/turn_hard", "walker/run")
OTHERS = ("hopper/hop", "cheetah/run", "acrobot/swingup", "finger/turn_easy")
COLUMNS = "change,task,seed,steps,updates,training,greedy,low,high,seconds"


class Trial(Cell):
    """A run of the grid with the flags of its change."""

    def next_stage(self) -> list[str]:
        """See `Cell`."""
        words = super().next_stage()
        is_new = words[0] == "train" and "--resume" not in words
        return [*words, *CHANGES[self.name.split("-")[0]].split()] if is_new else words

    @property
    def row(self) -> list[Any]:
        """Its row of the table; `training` is the mean return of the last fifth of the steps."""
        metrics = read_metrics(self.directory)
        late = metrics["episode_return"][metrics["steps"] > 0.8 * (self.config.steps or 0)]
        found = json.loads((self.directory / EVALUATION).read_text(encoding="utf-8"))
        scores = (np.nanmean(late), *(found[name] for name in ("mean_return", "low", "high")))
        ends = (int(metrics[name][-1]) for name in ("steps", "updates", "seconds"))
        steps, updates, seconds = ends
        values = [steps, updates, *(f"{score:.1f}" for score in scores), seconds]
        change, task, seed = self.name.split("-")
        return [change, task.replace("_", "-", 1), seed, *values]


def main() -> None:
    """Runs what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", type=Path)
    runs = parser.parse_args().runs.absolute()
    trials = []
    for seed, tasks in ((7, HARD), (8, HARD), (7, OTHERS), (8, OTHERS)):
        for change in CHANGES:
            repeat = 2 if change.startswith("repeat_2") else 1
            for task in tasks:
                config = RunConfig(
                    agent="d4pg",
                    environment=f"dm_control:{task}" + (",repeat=2" if repeat == 2 else ""),
                    preset="small",
                    steps=STEPS // repeat,
                    seed=seed,
                )
                path = runs / f"{change}-{task.replace('/', '_')}-{seed}"
                trials.append(Trial(config, path, EPISODES))
    shown: dict[str, str] = {}

    def show(now: GridState) -> None:
        if now.states == shown:
            return
        for name, state in now.states.items():
            if state not in ("waiting", shown.get(name)):
                tell(f"{name}: {state}{now.left}")
        shown.update(now.states)
        with (runs / "trials.csv").open("w", newline="", encoding="utf-8") as file:
            rows = [each.row for each in trials if now.states[each.name] == "complete"]
            csv.writer(file, lineterminator="\n").writerows([COLUMNS.split(","), *rows])

    with DirectoryLock(runs) as lock, stop_on_signals() as stop:
        lock.acquire()
        run_grid(trials, 1, runs / "logs", stop, show)


if __name__ == "__main__":
    main()
