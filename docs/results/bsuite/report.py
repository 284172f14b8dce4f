"""The computed cells of this page: `python docs/results/result_tables.py bsuite`."""

import re
from pathlib import Path

from result_files import joined
from result_files import runs as evaluated

from retrax.evaluation import bsuite
from retrax.evaluation.suites import read_rows

HERE = Path(__file__).parent


def scores(row: dict[str, str]) -> dict[str, str]:
    """Scores; a command's rows follow those of the commands before it, which had easier ids."""
    experiment = row["experiment"].partition(" (")[0]
    first, _, last = row["ids"].partition(" to ")
    ids = [*range(int(first), int(last) + 1)] if last else row["ids"].split(", ")
    wanted = row["agent"].partition(",")[0].lower(), "experiment", experiment, str(len(ids))
    found = [
        float(each["score"])
        for each in read_rows(HERE / "bsuite.csv")
        if tuple(each[key] for key in ("agent", "kind", "name", "ids")) == wanted
    ]
    computed = {"our score, of these ids alone": f"{found[0 if first[0] == '0' else -1]:.2f}"}
    for algorithm, of_experiment in bsuite.published().items():
        computed[f"{algorithm}, all ids"] = f"{of_experiment[experiment]:.2f}"
    return computed


def runs(row: dict[str, str]) -> dict[str, str]:
    """Each run, with its evaluation."""
    agent, _, rest = row["run"].lower().partition(" ")
    tasks, name = [], ""
    for word in re.split(r",? ", rest):
        if word.isdigit():
            tasks.append(f"{name}-{word}")
        else:
            name = word
    found = [run for task in tasks for run in evaluated(HERE, f"{agent}-{task}")]
    computed = {
        "steps": ", ".join(
            f"{n:,}" for n in dict.fromkeys(int(run.scores["steps"]) for run in found)
        ),
        "seconds": joined((float(run.scores["seconds"]) for run in found), ",.0f"),
        "return after it": joined((run.score for run in found), ",.2f"),
    }
    if agent == "agent57":
        computed["of its greedy arm"] = joined((run.greedy for run in found), ",.2f")
    return computed
