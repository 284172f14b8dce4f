"""Writes the scoreboard: all rows into docs/results/README.md, one of each agent into README.md.

    python docs/results/scoreboard.py

A row is an agent on a task after some steps, with the default preset, or with the one before where
it has changed: one for each, from the first page of `PAGES` that has it. An agent's best row has
three seeds or more and the largest margin: its mean minus the best published score, divided by the
range from uniform play to the score that counts as 1 in the suite.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from result_files import FOLDER, Run, last_million_frames, runs, runs_of, threshold, training_return

from retrax.evaluation import mean_and_interval
from retrax.evaluation.suites import Published, Task, suites

TITLES = {"reactor": "Reactor", "acer": "ACER", "d4pg": "D4PG", "agent57": "Agent57"}
ABOUT = {  # actions and paper
    "reactor": ("discrete", "Gruslys et al. 2018"),
    "acer": ("discrete, continuous", "Wang et al. 2017"),
    "d4pg": ("continuous", "Barth-Maron et al. 2018"),
    "agent57": ("discrete", "Badia et al. 2020"),
}
PAGES: dict[str, str] = {  # names of runs, as a pattern
    "classic": r".*",
    "control": r"(small|acer)-.*",
    "minatar": r"(?!((device|slow)-)?reactor-|device-agent57-).*",  # other settings than today's
    "atari": r"(acer|agent57|reactor(_longer)?)-.*",
    "defaults": r".*",
    "reactor": r"catch|memory",
    "acer": r"catch",
    "agent57": r"deep_sea_agent57",
}
SCORES: dict[str, Callable[[Run], float]] = {  # where training returns are published
    "minatar": lambda run: training_return(run, 10),
    "atari": last_million_frames,
}
ENOUGH = 3  # seeds of an agent's best row
BEGIN, END = "<!-- scoreboard: {} -->", "<!-- end -->"
COLUMNS = ("agent", "task", "steps", "score", "published", "seconds", "command")
BEST_COLUMNS = ("agent", "actions", "paper", *COLUMNS[1:])
ALL_ACTIONS = ",use_minimal_action_set=False"  # of MinAtar's ids


class Row(NamedTuple):
    """A row.

    Attributes:
      page: of its runs.
      runs: one for each seed.
      task: of the suite; None outside of suites.
      scores: of each seed.
    """

    page: str
    runs: list[Run]
    task: Task | None
    scores: list[float]

    @property
    def key(self) -> tuple[str, str]:
        """Agent and environment."""
        return self.runs[0].config["agent"], self.runs[0].config["environment"]

    @property
    def steps(self) -> int:
        """Of each run."""
        return int(self.runs[0].config["steps"])

    @property
    def mean(self) -> float:
        """Of the seeds."""
        return float(np.mean(self.scores))

    @property
    def published(self) -> list[Published]:
        """Published scores, the best one first; on Atari those after as many steps alone."""
        found = self.task.published if self.task else ()
        chosen = [each for each in found if self.page != "atari" or each.steps == self.steps]
        return sorted(chosen, key=lambda each: -each.score)

    @property
    def margin(self) -> float:
        """How far the mean is above the best published score; -inf without one."""
        if self.task is None or not self.published:
            return -np.inf
        best = self.published[0].score
        return (self.mean - best) / (self.task.high - self.task.low)


def all_rows() -> list[Row]:
    """All rows, by environment, agent and steps; those of one seed are last."""
    found: dict[tuple[str, str], list[Row]] = {}
    for page, pattern in PAGES.items():
        tasks = (
            {task.environment: task for task in suites()[page].tasks} if page in suites() else {}
        )
        for name in runs_of(FOLDER / page):
            chosen = runs(FOLDER / page, name)
            if not re.fullmatch(pattern, name) or not chosen:
                continue
            scores = [SCORES.get(page, lambda run: run.greedy)(run) for run in chosen]
            row = Row(page, chosen, tasks.get(chosen[0].config["environment"]), scores)
            before = found.setdefault(row.key, [])
            if all(each.page == page or fails(each) for each in before):
                before.append(row)
    rows = [row for of_task in found.values() for row in of_task]
    pages = list(PAGES)

    def place(row: Row) -> tuple[Any, ...]:
        return len(row.runs) == 1, pages.index(row.page), row.key[1], row.key[0], row.steps

    return sorted(rows, key=place)


def fails(row: Row) -> bool:
    """Whether the mean misses the threshold of the task; False if it has none."""
    if row.page != "classic":
        return False
    goal = threshold(row.key[1])
    return goal is not None and row.mean < goal


def number(value: float) -> str:
    """Three or four digits, never "-0"."""
    digits = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    return f"{round(value, digits) + 0.0:,.{digits}f}"


def millions(steps: int | None) -> str:
    """Environment steps."""
    if steps is None:
        return "steps unknown"
    return f"{steps / 1e6:g}M" if steps >= 500_000 else f"{steps / 1000:g}k"


def score_cell(row: Row) -> str:
    """The mean, the seeds, and from three seeds on its 95 % interval (Student's t)."""
    seeds, text = len(row.scores), number(row.mean)
    if seeds == 1:
        return f"{text} (1 seed)"
    if seeds == 2:
        return f"{text} (2 seeds: {', '.join(map(number, row.scores))})"
    _, low, high = mean_and_interval(row.scores)
    return f"{text} ({seeds} seeds, {number(low)} to {number(high)})"


def command(row: Row) -> str:
    """The command that makes the runs again, with today's presets."""
    agent, environment = row.key
    config = row.runs[0].config
    is_before = (row.page, agent, config["preset"]) == ("minatar", "acer", "small")
    preset = " --preset small" * is_before
    if row.task is None:
        device = " --on-device" * config["on_device"]
        steps = f"--steps {row.steps}{preset}{device}"
        return f"retrax train {agent} --environment {environment} {steps}"
    words = ["retrax benchmark", row.page, agent, "--tasks", row.task.name]
    words += ["--steps", str(row.steps)] if row.steps != row.task.steps else []
    return " ".join([*words, "--seeds", f"{len(row.runs)}{preset}"])


def cells(row: Row, *, brief: bool = False) -> dict[str, str]:
    """The cells of a row; with two seeds or more the highest score is bold.

    Brief: only the best published one.
    """
    published, compared = row.published, len(row.runs) > 1
    best = published[0].score if published else np.inf
    others = [
        f"**{text}**" if compared and each.score == best > row.mean else text
        for each in published[: 1 if brief else None]
        for text in [f"{each.algorithm} {number(each.score)} ({millions(each.steps)})"]
    ]
    score = score_cell(row)
    agent, environment = row.key
    task = environment.removeprefix("dm_control:").removesuffix(ALL_ACTIONS)
    seconds = np.mean([float(run.scores["seconds"]) for run in row.runs])
    return {
        "agent": TITLES[agent],
        "task": f"[{task}]({row.page}/README.md)",
        "steps": millions(row.steps),
        "score": f"**{score}**" if published and compared and row.mean >= best else score,
        "published": ", ".join(others),
        "seconds": f"{seconds:,.0f}",
        "command": f"`{command(row)}`",
    }


def table(lines: list[dict[str, str]], columns: Sequence[str]) -> list[str]:
    """The lines of a table."""
    head = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    return head + [f"| {' | '.join(line[column] for column in columns)} |" for line in lines]


def best_rows(rows: list[Row]) -> list[Row]:
    """The best row of each agent."""
    found = [row for row in rows if len(row.runs) >= ENOUGH]
    of_agent = [[row for row in found if row.key[0] == agent] for agent in TITLES]
    return [max(each, key=lambda row: row.margin) for each in of_agent]


def best_cells(row: Row) -> dict[str, str]:
    """The cells of an agent's row in README.md."""
    line, agent = cells(row, brief=True), row.key[0]
    line["task"] = line["task"].replace("](", "](docs/results/")
    line["agent"] = f"[{TITLES[agent]}](agents/{agent}/README.md)"
    return {**line, **dict(zip(("actions", "paper"), ABOUT[agent], strict=True))}


def written(text: str, name: str, lines: list[str]) -> str:
    """A page with what is between its two comments replaced.

    Raises:
      ValueError: the page has not one such place.
    """
    begin = BEGIN.format(name)
    if text.count(begin) != 1 or END not in text.partition(begin)[2]:
        raise ValueError(f"a page must have {begin} and {END} once.")
    before, _, rest = text.partition(begin)
    return before + "\n".join([begin, *lines, ""]) + END + rest.partition(END)[2]


def pages() -> dict[Path, str]:
    """Both pages, with their tables."""
    rows, ours, first = all_rows(), FOLDER / "README.md", FOLDER.parents[1] / "README.md"
    best = table([best_cells(row) for row in best_rows(rows)], BEST_COLUMNS)
    lines = table([cells(row) for row in rows], COLUMNS)
    return {
        ours: written(ours.read_text(encoding="utf-8"), "all", lines),
        first: written(first.read_text(encoding="utf-8"), "best", best),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
