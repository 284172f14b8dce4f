"""The computed cells of this page: `python docs/results/result_tables.py d4pg`."""

from pathlib import Path

from result_files import joined, plot, runs

HERE = Path(__file__).parent
NAMES = {
    "categorical critic, N = 5, prioritised": "categorical",
    "mixture of Gaussians": "mixture_of_gaussians",
    "scalar critic": "scalar",
    "N = 1": "one_step",
    "uniform replay": "uniform",
}


def pendulum(row: dict[str, str]) -> dict[str, str]:
    """The evaluations of three seeds."""
    found = runs(HERE, NAMES[row["what"]])
    returns = joined((run.score for run in found), ".0f")
    return {
        "greedy return over 100 episodes, seeds 0, 1, 2": returns,
        "seconds of training": ", ".join(run.scores["seconds"] for run in found),
    }


def draw() -> None:
    """Draws Pendulum, with the ablations."""
    chosen = [run for name in NAMES.values() for run in runs(HERE, name)]
    plot(chosen, HERE / "curves.png", window=5)
