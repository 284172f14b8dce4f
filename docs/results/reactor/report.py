"""The computed cells of this page: `python docs/results/result_tables.py reactor`."""

import json
from pathlib import Path

from result_files import evaluations_of_file, joined

FILE = Path(__file__).with_name("evaluations.txt")


def tasks(row: dict[str, str]) -> dict[str, str]:
    """The evaluations of a task's three seeds, or of the ablation, whose line has no name."""
    name, _, ablation = row["task"].partition(" (")[0].partition(", ")
    if ablation:
        found = [json.loads(FILE.read_text(encoding="utf-8").splitlines()[-1])]
        seconds = "not kept"
    else:
        found = evaluations_of_file(FILE)[name]
        seconds = joined((each["seconds"] for each in found), "d")
    form = ".0f" if name == "CartPole-v1" else ".2f"
    return {
        "greedy return, seeds 0, 1, 2": joined((each["mean_return"] for each in found), form),
        "episodes": str(found[0]["episodes"]),
        "seconds of training and evaluation": seconds,
    }
