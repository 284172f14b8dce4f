"""The computed cells of this page: `python docs/results/result_tables.py agent57`."""

from pathlib import Path

from result_files import plot, rounded, runs, runs_of

HERE = Path(__file__).parent


def arms(name: str) -> dict[str, str]:
    """The evaluations of three seeds, by arm."""
    found = runs(HERE, name)

    def cell(mode: str) -> str:
        values = (run.scores[mode] for run in found)
        return ", ".join(rounded(float(value) if value else None, 2) for value in values)

    return {
        "greedy arm, seeds 0, 1, 2": cell("greedy_arm"),
        "sampled arm": cell("sampled_arm"),
        "seconds of training": ", ".join(run.scores["seconds"] for run in found),
    }


def deep_sea(row: dict[str, str]) -> dict[str, str]:
    """Agent57 and R2D2."""
    return arms(f"deep_sea_{row[''].partition(' (')[0].lower()}")


def random_coin(row: dict[str, str]) -> dict[str, str]:
    """The ladder."""
    preset = row["preset"].partition(" (")[0]
    rung = "agent57" if preset == "small" else preset.removeprefix("small_")
    return arms(f"random_coin_{rung}")


def draw() -> None:
    """Draws the three tasks."""
    for task in ("random_coin", "deep_sea", "memory"):
        names = [name for name in runs_of(HERE) if name.startswith(task)]
        plot((run for name in names for run in runs(HERE, name)), HERE / f"{task}.png", window=20)
