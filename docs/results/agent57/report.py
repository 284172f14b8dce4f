"""The computed cells of this page: `python docs/results/result_tables.py agent57`."""

from pathlib import Path

from result_files import evaluations_of_file, rounded

FILE = Path(__file__).with_name("evaluations.txt")


def arms(name: str) -> dict[str, str]:
    """The evaluations of three seeds, by arm."""
    found = evaluations_of_file(FILE)[name]

    def cell(mode: str) -> str:
        return ", ".join(rounded(each["modes"][mode]["mean_return"], 2) for each in found)

    return {
        "greedy arm, seeds 0, 1, 2": cell("greedy_arm"),
        "sampled arm": cell("sampled_arm"),
        "seconds of training": ", ".join(str(each["seconds"]) for each in found),
    }


def deep_sea(row: dict[str, str]) -> dict[str, str]:
    """Agent57 and R2D2."""
    return arms(f"deep_sea_{row[''].partition(' (')[0].lower()}")


def random_coin(row: dict[str, str]) -> dict[str, str]:
    """The ladder."""
    preset = row["preset"].partition(" (")[0]
    rung = "agent57" if preset == "small" else preset.removeprefix("small_")
    return arms(f"random_coin_{rung}")
