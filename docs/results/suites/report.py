"""The computed cells of this page: `python docs/results/result_tables.py suites`."""

from pathlib import Path

from result_files import joined, runs, training_return

HERE = Path(__file__).parent


def tasks(row: dict[str, str]) -> dict[str, str]:
    """An agent on an environment, by its id."""
    id = row["environment"].strip("`")
    names = ("acer-game2048", "acer-craftax", "d4pg-halfcheetah", "d4pg-hopper")
    found = [run for name in names for run in runs(HERE, name)]
    found = [run for run in found if run.config["environment"] == id]
    seconds = [float(run.scores["seconds"]) for run in found]
    return {
        "agent": found[0].config["agent"].upper(),
        "steps": f"{int(found[0].config['steps']):,}",
        "training": joined([training_return(run, 10) for run in found], row_format(id)),
        "evaluated": joined([run.score for run in found], row_format(id)),
        "seconds": joined(seconds, ",.0f"),
    }


def row_format(id: str) -> str:
    """Digits of a return."""
    return ".1f" if "craftax" in id else ",.0f"
