"""Suites of tasks on which agents are compared: budgets, protocols and published scores, as data.

`data/README.md` has the sources of the scores.
"""

import contextlib
import csv
import functools
import io
import json
import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..basics.sentences import reason

BSUITE = "bsuite"
DATA = Path(__file__).parent / "data"


class Published(NamedTuple):
    """A published mean return."""

    algorithm: str
    steps: int | None  # of the environment, in training; None if unknown
    score: float


class Task(NamedTuple):
    """A task of a suite."""

    name: str  # within the suite; in names of files
    environment: str  # its id
    steps: int  # of training
    episodes: int  # of the greedy evaluation at the end
    low: float  # the return of uniform random play, or 0
    high: float  # the return that counts as 1; above `low`
    published: tuple[Published, ...]
    in_jax: str  # the id of the same game written in JAX, if that is another one; else empty


class Suite(NamedTuple):
    """Tasks, and in `about` what they are and what their normalised scores mean."""

    name: str
    about: str
    tasks: tuple[Task, ...]

    @property
    def num_envs(self) -> int:
        """Environments of a run: 1 where the order of all episodes counts, as in bsuite."""
        return 1 if self.name == BSUITE else 8

    @property
    def sweeps(self) -> dict[str, tuple[Task, ...]]:
        """All ids of bsuite's experiments, each with the budget of the suite's next; else empty."""
        found: dict[str, list[Task]] = {}
        for task in self.tasks if self.name == BSUITE else ():
            experiment, _, last = task.name.rpartition("-")
            ids = found.setdefault(experiment, [])
            for number in range(len(ids), int(last) + 1):
                environment = f"{BSUITE}:{experiment}/{number}"
                ids.append(task._replace(name=f"{experiment}-{number}", environment=environment))
        return {experiment: tuple(ids) for experiment, ids in found.items()}

    @property
    def all_tasks(self) -> tuple[Task, ...]:
        """All that `choose` can give."""
        return tuple(task for ids in self.sweeps.values() for task in ids) or self.tasks

    def choose(self, names: tuple[str, ...]) -> tuple[Task, ...]:
        """The tasks of these names, or all; an experiment of bsuite stands for its whole sweep."""
        known = {task.name: (task,) for task in self.all_tasks} | self.sweeps
        for name in names:
            if name not in known:
                shown = self.sweeps or [task.name for task in self.tasks]
                raise ValueError(f"{self.name} has no task {name!r}: it has {', '.join(shown)}.")
        wanted = {task.name for name in names for task in known[name]}
        return tuple(task for task in self.all_tasks if task.name in wanted) or self.tasks


@functools.cache
def suites() -> dict[str, Suite]:
    """All suites, by name."""
    published: dict[tuple[str, str], list[Published]] = {}
    for row in read_rows(DATA / "suite_scores.csv"):
        steps = int(row["steps"]) if row["steps"] else None
        score = Published(row["algorithm"], steps, float(row["score"]))
        published.setdefault((row["suite"], row["task"]), []).append(score)
    tasks: dict[str, list[Task]] = {}
    for row in read_rows(DATA / "suite_tasks.csv"):
        numbers = int(row["steps"]), int(row["episodes"]), float(row["low"]), float(row["high"])
        others = tuple(published.get((row["suite"], row["task"]), []))
        task = Task(row["task"], row["environment"], *numbers, others, row["in_jax"])
        tasks.setdefault(row["suite"], []).append(task)
    about = {row["suite"]: row["about"] for row in read_rows(DATA / "suites.csv")}
    return {name: Suite(name, text, tuple(tasks[name])) for name, text in about.items()}


def find_suite(name: str) -> Suite:
    """The suite of a name; a ValueError names the suites."""
    if name not in suites():
        raise ValueError(f"There is no suite {name!r}: allowed are {', '.join(suites())}.")
    return suites()[name]


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Names a file of a benchmark, which the code inside reads, where it is damaged."""
    try:
        yield
    except (ValueError, TypeError, KeyError, csv.Error) as error:
        raise ValueError(
            f"{path} is damaged ({reason(error)}): remove it, and start retrax benchmark again."
        ) from error


def read_json(path: Path, *names: str) -> Any:
    """The values of these names in a JSON file, of one name the value itself; see `naming`."""
    with naming(path):
        return operator.itemgetter(*names)(json.loads(path.read_text(encoding="utf-8")))


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file with a header; a ValueError if the last one has no end."""
    text = path.read_text(encoding="utf-8")
    if not text.endswith("\n"):
        raise ValueError("its last line is incomplete")
    return list(csv.DictReader(io.StringIO(text)))
