"""One HTML page of a benchmark: scores beside published ones, statistics, and curves.

Everything is in the page itself, pictures too: it loads nothing. Its sources are `scores.csv`,
`curves.csv`, `suite.json` and, where there is one, `bsuite.csv` of `retrax benchmark`.
"""

import html
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import bsuite, comparison
from .drawing import draw_seeds, mean_cell, new_figure, new_panels, picture, table
from .statistics import Curve
from .suites import Suite, Task, find_suite, naming, read_json, read_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLUMNS = 3
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #ddd; text-align: right; }
th:first-child, td:first-child { text-align: left; }
img { max-width: 100%; }
h1, p { overflow-wrap: anywhere; }
"""


class Results(NamedTuple):
    """What a benchmark's directory holds."""

    suite: Suite
    scores: dict[tuple[str, str], dict[int, float]]  # by agent and task: each seed's mean return
    curves: dict[tuple[str, str], list[Curve]]  # each seed's steps and training returns
    runs: list[dict[str, str]]  # the rows of scores.csv
    about: dict[str, Any]  # suite.json: command, versions, machine

    @property
    def agents(self) -> list[str]:
        """In the order of the alphabet."""
        return sorted({agent for agent, _ in self.scores})

    @property
    def tasks(self) -> list[Task]:
        """Those with a score, in the suite's order."""
        done = {task for _, task in self.scores}
        return [task for task in self.suite.all_tasks if task.name in done]

    def normalised(self, agent: str) -> np.ndarray | None:
        """Normalised scores `[seeds, tasks]` of an agent; None unless all tasks have all seeds."""
        found = [self.scores.get((agent, task.name), {}) for task in self.tasks]
        seeds = sorted(set().union(*found))
        if any(sorted(each) != seeds for each in found):
            return None
        scores = np.array([[each[seed] for each in found] for seed in seeds])
        low, high = np.array([(task.low, task.high) for task in self.tasks]).T
        return comparison.normalised(scores, low, high)


def read_results(directory: Path) -> Results:
    """Reads a benchmark's directory; a ValueError says that it is none, or has no complete run."""
    paths = [directory / name for name in ("suite.json", "scores.csv", "curves.csv")]
    if lacking := [path.name for path in paths if not path.is_file()]:
        raise ValueError(f"{directory} has no results of retrax benchmark: no {lacking[0]}.")
    suite = find_suite(read_json(paths[0], "suite"))
    scores: dict[tuple[str, str], dict[int, float]] = {}
    with naming(paths[1]):
        runs = read_rows(paths[1])
        for row in runs:
            of_task = scores.setdefault((row["agent"], row["task"]), {})
            of_task[int(row["seed"])] = float(row["score"])
    if not runs:
        raise ValueError(f"{directory} has no complete run yet.")
    found: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    with naming(paths[2]):
        for row in read_rows(paths[2]):
            point = float(row["steps"]), float(row["episode_return"])
            found.setdefault((row["agent"], row["task"], row["seed"]), []).append(point)
    curves: dict[tuple[str, str], list[Curve]] = {}
    for (agent, task, _), curve in found.items():
        steps, returns = np.transpose(curve)
        curves.setdefault((agent, task), []).append((steps, returns))
    return Results(suite, scores, curves, runs, json.loads(paths[0].read_text(encoding="utf-8")))


def write_report(directory: Path, *, output: Path | None = None) -> Path:
    """Shows the results of a benchmark in one HTML page, beside published scores.

    Args:
      directory: the directory of `retrax benchmark`.
      output: the HTML file to write; by default report.html in the directory.

    Raises:
      ValueError: see `read_results`.
    """
    output = output or directory / "report.html"
    results = read_results(directory)
    of_bsuite, path = list[str](), directory / bsuite.SCORES
    if path.is_file():
        with naming(path):
            of_bsuite = list(bsuite.report_sections(read_rows(path)))
    title = f"{results.suite.name}: {', '.join(results.agents)}"
    sections = [
        f"<h1>{html.escape(title)}</h1><p>{html.escape(results.suite.about)}.</p>",
        "<h2>Mean return</h2><p>Greedy evaluation at the end of training: the mean over seeds, with"
        " the lowest and the highest seed. Published scores with their environment steps.</p>",
        _score_table(results),
        *of_bsuite,
        "<h2>Over all tasks</h2>",
        *_statistics(results),
        "<h2>Training returns</h2><p>Thin: a seed. Bold: their mean.</p>",
        picture(_draw_curves(results), "training returns of each task"),
        "<h2>Runs</h2>",
        table(list(results.runs[0]), [[_short(x) for x in row.values()] for row in results.runs]),
        "<h2>How it was made</h2>",
        table(["", ""], [[name, str(value)] for name, value in results.about.items()]),
    ]
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>\n"
        + "\n".join(sections)
        + "\n</body></html>\n",
        encoding="utf-8",
    )
    return output


def _score_table(results: Results) -> str:
    published_ones = [each for task in results.tasks for each in task.published]
    others = list(dict.fromkeys((each.algorithm, each.steps) for each in published_ones))
    rows = []
    for task in results.tasks:
        ours = [results.scores.get((agent, task.name), {}).values() for agent in results.agents]
        published = {(each.algorithm, each.steps): each.score for each in task.published}
        theirs = [f"{published[other]:g}" if other in published else "" for other in others]
        rows.append([task.name, *(mean_cell([*scores], ".4g") for scores in ours), *theirs])
    names = [
        name if steps is None else f"{name}, {steps:.0e} steps".replace("e+0", "e")
        for name, steps in others
    ]
    return table(["task", *results.agents, *names], rows)


def _statistics(results: Results) -> Iterable[str]:
    """Interquartile mean and optimality gap of each agent, and who beats whom."""
    complete = {agent: results.normalised(agent) for agent in results.agents}
    tables = {agent: scores for agent, scores in complete.items() if scores is not None}
    for agent in results.agents:
        if agent not in tables:
            yield f"<p>{html.escape(agent)} has not all seeds on all tasks.</p>"
    if not tables:
        return
    yield (
        "<p>Normalised scores: 0 is random play, 1 the score that the suite names. In brackets:"
        " 95 % stratified bootstrap intervals over seeds (Agarwal et al. 2021).</p>"
    )
    generator, rows = np.random.default_rng(0), []

    def bootstrap(statistic: Any, *scores: np.ndarray) -> str:
        return f"{comparison.stratified_bootstrap(statistic, *scores, generator=generator)}"

    for agent, scores in tables.items():
        pair = comparison.interquartile_mean, comparison.optimality_gap
        rows.append([agent, str(len(scores)), *(bootstrap(each, scores) for each in pair)])
    yield table(["agent", "seeds", "interquartile mean", "optimality gap"], rows)
    if len(tables) > 1:
        improvement = comparison.probability_of_improvement
        yield "<p>Probability that a run of the row beats one of the column, on a random task:</p>"
        rows = [[agent] for agent in tables]
        for row, scores in zip(rows, tables.values(), strict=True):
            for other, others in tables.items():
                row.append("" if other == row[0] else bootstrap(improvement, scores, others))
        yield table(["", *tables], rows)
    yield picture(_draw_profiles(tables), "performance profiles")


def _draw_curves(results: Results) -> "Figure":
    tasks = results.tasks
    columns = min(_COLUMNS, len(tasks))
    figure, panels = new_panels(len(tasks), (4.2, 3.0), columns=columns)
    for panel, task in zip(panels, tasks, strict=True):
        for number, agent in enumerate(results.agents):
            if curves := results.curves.get((agent, task.name)):
                draw_seeds(panel, curves, f"C{number}", agent)
        panel.axhline(task.high, color="grey", linestyle=":", linewidth=1)
        panel.set(title=task.name, xlabel="environment steps")
    found = [panel.get_legend_handles_labels() for panel in panels]
    lines = {label: line for each in found for line, label in zip(*each, strict=True)}
    if lines:  # else no episode has ended yet
        panels[0].legend(lines.values(), lines)
    return figure


def _draw_profiles(tables: Mapping[str, np.ndarray]) -> "Figure":
    thresholds = np.linspace(-0.25, 2.0, 200)
    figure = new_figure(6.0, 3.5)
    panel = figure.subplots()
    for number, (agent, scores) in enumerate(tables.items()):
        profile = comparison.performance_profile(scores, thresholds)
        panel.plot(thresholds, profile, color=f"C{number}", label=agent)
    panel.set(xlabel="normalised score", ylabel="fraction of runs above it", ylim=(-0.02, 1.02))
    panel.legend()
    return figure


def _short(cell: str) -> str:
    """A number with at most six digits; anything else as it is."""
    try:
        return f"{float(cell):.6g}" if "." in cell else cell
    except ValueError:
        return cell
