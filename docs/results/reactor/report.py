"""The computed cells of this page: `python docs/results/result_tables.py reactor`."""

from pathlib import Path

from result_files import joined, plot, runs

HERE = Path(__file__).parent


def tasks(row: dict[str, str]) -> dict[str, str]:
    """The evaluations of a task's three seeds, or of the ablation, whose time was not kept."""
    name, _, ablation = row["task"].partition(" (")[0].partition(", ")
    found = runs(HERE, "memory-without-recurrence" if ablation else name)
    seconds = ", ".join(run.scores["seconds"] or "not kept" for run in found)
    form = ".0f" if name == "CartPole-v1" else ".2f"
    return {
        "greedy return, seeds 0, 1, 2": joined((run.score for run in found), form),
        "episodes": found[0].scores["episodes"],
        "seconds of training and evaluation": seconds,
    }


def draw() -> None:
    """Draws catch, memory and CartPole."""
    chosen = [run for name in ("catch", "memory", "CartPole-v1") for run in runs(HERE, name)]
    plot(chosen, HERE / "curves.png", window=5)
