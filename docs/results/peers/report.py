"""The computed cells of this page: `python docs/results/result_tables.py peers`."""

import importlib.util
from pathlib import Path

HERE = Path(__file__).parent
_spec = importlib.util.spec_from_file_location("peers", HERE.parents[2] / "benchmarks" / "peers.py")
assert _spec is not None
assert _spec.loader is not None
peers = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(peers)


def times(row: dict[str, str]) -> dict[str, str]:
    """What benchmarks/peers.py prints of a task and a side."""
    environment, _, rest = row["task"].partition(",")
    file = "ppo.csv" if rest.endswith("PPO") else "peers.csv"  # of another day
    (task,) = [name for name, task in peers.TASKS.items() if task.environment == environment]
    wanted = task, row["side"].lower().replace(", ", "-")
    names, _, *lines = [
        [cell.strip() for cell in line[1:-1].split("|")]
        for line in peers.summary(peers.read(HERE / file))
    ]
    (found,) = [line[2:] for line in lines if (line[0], line[1]) == wanted]
    return dict(zip(names[2:], found, strict=True))
