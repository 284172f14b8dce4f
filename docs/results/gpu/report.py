"""The computed cells of this page: `python docs/results/result_tables.py gpu`."""

from pathlib import Path

from result_files import rounded, training_return

from retrax.evaluation import read_metrics

FOLDER = Path(__file__).parent
RUNS = {"7e-4 (the preset)": "acer_pong-0", "1.12e-2": "acer_pong_rate-0"}


def pong(row: dict[str, str]) -> dict[str, str]:
    """Of one run: size, speed, and the means over its last tenth."""
    run = FOLDER / RUNS[row["learning rate"]]
    metrics = read_metrics(run)
    steps, seconds = int(metrics["steps"][-1]), metrics["seconds"][-1]
    last = slice(-(len(metrics["steps"]) // 10), None)
    return {
        "agent steps": f"{steps:,}",
        "steps/s": f"{steps / seconds:,.0f}",
        "updates": f"{int(metrics['updates'][-1]):,}",
        "training return, last tenth": rounded(training_return(run, 10), 1),
        "policy entropy there": rounded(metrics["policy_entropy"][last].mean(), 2),
    }
