"""The computed cells of this page: `python docs/results/result_tables.py gpu`."""

from pathlib import Path

import numpy as np
from result_files import Run, rounded, runs_of, training_return

HERE = Path(__file__).parent
RUNS = {
    "atari": "acer_pong_atari",
    "the same, Adam": "acer_pong_adam",
    "paper_atari": "acer_pong",
    "16 times its learning rate": "acer_pong_rate",
    "atari, batches of 4": "acer_pong_batch_4",
    "atari, entropy weight 0.001": "acer_pong_entropy",
    "the same, learning rate 5e-4": "acer_pong_entropy_rate",
    "RMSProp as in baselines": "acer_pong_ones",
}


def half_way(run: Run) -> float | None:
    """The mean return of the episodes that ended in steps 400,000 to 500,000."""
    steps, ended = run.curve["steps"], np.diff(run.curve["episodes"], prepend=0.0)
    rows = (steps > 400_000) & (steps <= 500_000) & (ended > 0)
    if steps[-1] < 500_000:
        return None
    return float(np.average(run.curve["episode_return"][rows], weights=ended[rows]))


def pong(row: dict[str, str]) -> dict[str, str]:
    """Of one run: size, returns, and the means over its last tenth."""
    (run,) = runs_of(HERE)[RUNS[row["preset or change"]]]
    metrics = run.curve
    last = slice(-(len(metrics["steps"]) // 10), None)
    return {
        "agent steps": f"{int(metrics['steps'][-1]):,}",
        "updates": f"{int(metrics['updates'][-1]):,}",
        "training return, 0.4M to 0.5M steps": rounded(half_way(run), 1),
        "last tenth": rounded(training_return(run, 10), 1),
        "policy entropy there": rounded(metrics["policy_entropy"][last].mean(), 2),
    }
