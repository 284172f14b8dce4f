"""The computed cells of this page: `python docs/results/result_tables.py gpu`."""

from pathlib import Path

from result_files import rounded, runs_of, training_return

HERE = Path(__file__).parent
RUNS = {"7e-4 (the preset)": "acer_pong", "1.12e-2": "acer_pong_rate"}


def pong(row: dict[str, str]) -> dict[str, str]:
    """Of one run: size, speed, and the means over its last tenth."""
    (run,) = runs_of(HERE)[RUNS[row["learning rate"]]]
    metrics = run.curve
    steps, seconds = int(metrics["steps"][-1]), metrics["seconds"][-1]
    last = slice(-(len(metrics["steps"]) // 10), None)
    return {
        "agent steps": f"{steps:,}",
        "steps/s": f"{steps / seconds:,.0f}",
        "updates": f"{int(metrics['updates'][-1]):,}",
        "training return, last tenth": rounded(training_return(run, 10), 1),
        "policy entropy there": rounded(metrics["policy_entropy"][last].mean(), 2),
    }
