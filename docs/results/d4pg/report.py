"""The computed cells of this page: `python docs/results/result_tables.py d4pg`."""

from pathlib import Path

from result_files import evaluations_of_file, joined

FILE = Path(__file__).with_name("evaluations.txt")
NAMES = {
    "categorical critic, N = 5, prioritised": "categorical",
    "mixture of Gaussians": "mixture_of_gaussians",
    "scalar critic": "scalar",
    "N = 1": "one_step",
    "uniform replay": "uniform",
}


def pendulum(row: dict[str, str]) -> dict[str, str]:
    """The evaluations of three seeds."""
    found = evaluations_of_file(FILE)[NAMES[row["what"]]]
    returns = joined((each["mean_return"] for each in found), ".0f")
    return {
        "greedy return over 100 episodes, seeds 0, 1, 2": returns,
        "seconds of training": joined((each["seconds"] for each in found), "d"),
    }
