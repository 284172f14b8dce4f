"""One HTML page of a benchmark: scores beside published ones, statistics, and curves.

Everything is in the page itself, pictures too: it loads nothing. Its sources are `scores.csv`,
`curves.csv`, `suite.json` and, where there is one, `bsuite.csv` of `retrax benchmark`.
"""

import base64
import html
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import bsuite, statistics
from .plots import check_ending, draw_seeds, new_figure, new_panels, png, save
from .suites import Suite, Task, find_suite, naming, read_json, read_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUITE, SCORES, CURVES = "suite.json", "scores.csv", "curves.csv"
Row = Mapping[str, str]
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
    """Contents of a benchmark's directory."""

    suite: Suite
    agents: list[str]  # in the order of the alphabet
    tasks: list[Task]  # with a score, in the suite's order
    scores: dict[tuple[str, str], dict[int, float]]  # by agent and task: each seed's mean return
    curves: dict[tuple[str, str], dict[str, list[tuple[float, float]]]]  # steps, training return
    runs: list[dict[str, str]]  # the rows of scores.csv
    about: dict[str, Any]  # suite.json: command, versions, machine


def read_results(directory: Path) -> Results:
    """Reads a benchmark's directory; a ValueError says that it is none, or has no complete run."""
    paths = [directory / name for name in (SUITE, SCORES, CURVES)]
    if lacking := [path.name for path in paths if not path.is_file()]:
        raise ValueError(f"{directory} has no results of retrax benchmark: no {lacking[0]}.")
    suite = find_suite(read_json(paths[0], "suite"))
    scores: dict[tuple[str, str], dict[int, float]] = {}
    curves: dict[tuple[str, str], dict[str, list[tuple[float, float]]]] = {}
    with naming(paths[1]):
        runs = read_rows(paths[1])
        for row in runs:
            of_task = scores.setdefault((row["agent"], row["task"]), {})
            of_task[int(row["seed"])] = float(row["score"])
    if not runs:
        raise ValueError(f"{directory} has no complete run yet.")
    with naming(paths[2]):
        for row in read_rows(paths[2]):
            of_seed = curves.setdefault((row["agent"], row["task"]), {}).setdefault(row["seed"], [])
            of_seed.append((float(row["steps"]), float(row["episode_return"])))
    agents, done = sorted({agent for agent, _ in scores}), {task for _, task in scores}
    tasks = [task for task in suite.all_tasks if task.name in done]
    about = json.loads(paths[0].read_text(encoding="utf-8"))
    return Results(suite, agents, tasks, scores, curves, runs, about)


def write_report(directory: Path, *, output: Path | None = None) -> Path:
    """Shows the results of a benchmark in one HTML page, beside published scores.

    Args:
      directory: the directory of `retrax benchmark`.
      output: the HTML file to write; by default report.html in the directory.
    """
    output = output or directory / "report.html"
    check_ending(output, ".html")
    results = read_results(directory)
    of_bsuite, path = list[str](), directory / bsuite.SCORES
    if path.is_file():
        with naming(path):
            of_bsuite = list(bsuite_sections(read_rows(path)))
    title = html.escape(f"{results.suite.name}: {', '.join(results.agents)}")
    sections = [
        f"<h1>{title}</h1><p>{html.escape(results.suite.about)}.</p>",
        "<h2>Mean return</h2><p>Greedy evaluation at the end of training: the mean over seeds, with"
        " the lowest and the highest. Published scores are shown with their environment steps.</p>",
        _score_table(results),
        *of_bsuite,
        "<h2>Over all tasks</h2>",
        *_statistics(results),
        "<h2>Training returns</h2><p>Thin lines are seeds, and bold ones their means.</p>",
        _picture(_draw_curves(results), "training returns of each task"),
        "<h2>Runs</h2>",
        _table(results.runs[0], [row.values() for row in results.runs]),
        "<h2>How it was made</h2>",
        _table(["", ""], [[name, str(value)] for name, value in results.about.items()]),
    ]
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body>\n"
        + "\n".join(sections)
        + "\n</body></html>\n"
    )
    save(page.encode(), output)
    return output


def _score_table(results: Results) -> str:
    published = {
        task: {(each.algorithm, each.steps): each.score for each in task.published}
        for task in results.tasks
    }
    others = dict.fromkeys(other for each in published.values() for other in each)
    names = [
        name if steps is None else f"{name}, {steps:.3g} steps".replace("e+0", "e")
        for name, steps in others
    ]
    rows = []
    for task, theirs in published.items():
        ours = [results.scores.get((agent, task.name), {}) for agent in results.agents]
        cells = [_mean(seeds.values(), ".4g") for seeds in ours]
        rows.append([task.name, *cells, *(_cell(theirs, other) for other in others)])
    return _table(["task", *results.agents, *names], rows)


def _statistics(results: Results) -> Iterable[str]:
    """Interquartile mean and optimality gap of each agent, and who beats whom."""
    low, high = np.array([(task.low, task.high) for task in results.tasks]).T
    tables = dict[str, np.ndarray]()  # normalised scores `[seeds, tasks]`
    for agent in results.agents:
        found = [results.scores.get((agent, task.name), {}) for task in results.tasks]
        if any(each.keys() != found[0].keys() for each in found):
            yield f"<p>{html.escape(agent)} does not have all seeds on all tasks.</p>"
        else:
            scores = np.array([[each[seed] for each in found] for seed in sorted(found[0])])
            tables[agent] = statistics.normalised(scores, low, high)
    if not tables:
        return
    yield (
        "<p>Normalised scores: 0 is random play, and 1 the score that the suite names. In brackets:"
        " 95 % stratified bootstrap intervals over seeds (Agarwal et al. 2021).</p>"
    )
    generator = np.random.default_rng(0)

    def bootstrap(statistic: Any, *scores: np.ndarray) -> str:
        return f"{statistics.stratified_bootstrap(statistic, *scores, generator=generator)}"

    pair = statistics.interquartile_mean, statistics.optimality_gap
    rows = [
        [agent, str(len(scores)), *(bootstrap(each, scores) for each in pair)]
        for agent, scores in tables.items()
    ]
    yield _table(["agent", "seeds", "interquartile mean", "optimality gap"], rows)
    if len(tables) > 1:
        better = statistics.probability_of_improvement
        yield "<p>Probability that a run of the row beats one of the column, on a random task:</p>"
        rows = [
            [agent, *(bootstrap(better, x, y) if x is not y else "" for y in tables.values())]
            for agent, x in tables.items()
        ]
        yield _table(["", *tables], rows)
    yield _picture(_draw_profiles(tables), "performance profiles")


def bsuite_sections(rows: Sequence[Row]) -> Iterable[str]:
    """HTML of the rows of bsuite.csv; nothing if there are none."""
    if not rows:
        return
    agents = sorted({row["agent"] for row in rows})
    found: dict[str, dict[str, dict[str, list[Row]]]] = {bsuite.EXPERIMENT: {}, bsuite.TAG: {}}
    for row in rows:
        found[row["kind"]].setdefault(row["name"], {}).setdefault(row["agent"], []).append(row)

    def means(seeds: Sequence[Row]) -> str:
        star = "" if all(row["finished"] == "True" for row in seeds) else "*"
        return _mean([float(row["score"]) for row in seeds], ".2f") + star

    experiments, tags = (
        [[name, *(means(of.get(agent, [])) for agent in agents)] for name, of in kind.items()]
        for kind in found.values()
    )
    published = bsuite.published()
    for line in experiments:
        line += [_cell(each, line[0]) for each in published.values()]
    yield (
        "<h2>bsuite's scores</h2><p>Between 0 and 1, computed by bsuite's own functions from all"
        " training episodes of the ids that were run: the mean over seeds, with the lowest and the"
        " highest. A star means that an id has fewer episodes than bsuite asks for. Published"
        " scores cover all ids.</p>"
    )
    yield _table([bsuite.EXPERIMENT, *agents, *published], experiments)
    yield "<p>The means over the experiments of each of bsuite's tags:</p>"
    yield _picture(_draw_radar(found[bsuite.TAG], agents), "scores of each tag")
    yield _table([bsuite.TAG, *agents], tags)


def _draw_curves(results: Results) -> "Figure":
    tasks = results.tasks
    figure, panels = new_panels(len(tasks), (4.2, 3.0), columns=_COLUMNS)
    for panel, task in zip(panels, tasks, strict=True):
        for number, agent in enumerate(results.agents):
            if seeds := results.curves.get((agent, task.name)):
                curves = [tuple(np.transpose(points)) for points in seeds.values()]
                draw_seeds(panel, curves, f"C{number}", agent)
        panel.axhline(task.high, color="grey", linestyle=":", linewidth=1)
        panel.set(title=task.name, xlabel="environment steps")
    found = [panel.get_legend_handles_labels() for panel in panels]
    lines = {label: line for each in found for line, label in zip(*each, strict=True)}
    if lines:  # else no episode has ended yet
        panels[0].legend(lines.values(), lines)
    return figure


def _draw_profiles(tables: Mapping[str, np.ndarray]) -> "Figure":
    figure = new_figure(6.0, 3.5)
    panel = figure.subplots()
    for agent, scores in tables.items():
        panel.ecdf(scores.flatten(), complementary=True, label=agent)
    panel.set(xlabel="normalised score", ylabel="fraction of runs with a higher score")
    panel.set(xlim=(-0.25, 2.0), ylim=(-0.02, 1.02))
    panel.legend()
    return figure


def _draw_radar(found: Mapping[str, Mapping[str, Sequence[Row]]], agents: list[str]) -> "Figure":
    angles = np.linspace(0.0, 2.0 * np.pi, len(found) + 1)  # the last is the first
    figure = new_figure(6.5, 4.5)
    figure.set_layout_engine("constrained", w_pad=0.8)  # for the tags' names
    panel = figure.add_subplot(projection="polar")
    for number, agent in enumerate(agents):
        each = [[float(row["score"]) for row in of.get(agent, [])] for of in found.values()]
        means = [np.mean(scores or [np.nan]) for scores in each]
        closed = angles, [*means, *means[:1]]
        panel.plot(*closed, color=f"C{number}", marker="o", label=agent)
        panel.fill(*closed, color=f"C{number}", alpha=0.15)
    panel.set(ylim=(0.0, 1.0), yticks=(0.25, 0.5, 0.75, 1.0))
    panel.set_xticks(angles[:-1], [name.replace("_", " ") for name in found])
    figure.legend(loc="outside upper right")
    return figure


def _picture(figure: "Figure", description: str) -> str:
    """An `<img>` that holds a figure; the description must need no escaping."""
    data = base64.b64encode(png(figure)).decode("ascii")
    return f'<img alt="{description}" src="data:image/png;base64,{data}">'


def _table(header: Iterable[str], rows: Sequence[Iterable[str]]) -> str:
    """A `<table>` of texts, which are escaped."""
    lines = ["<table>"]
    for kind, row in (("th", header), *(("td", row) for row in rows)):
        cells = "".join(f"<{kind}>{html.escape(cell)}</{kind}>" for cell in row)
        lines.append(f"<tr>{cells}</tr>")
    return "\n".join([*lines, "</table>"])


def _cell(scores: Mapping[Any, float], key: Any) -> str:
    return f"{scores[key]:g}" if key in scores else ""


def _mean(values: Iterable[float], form: str) -> str:
    """The mean of seeds with the lowest and the highest one; empty without values."""
    values = [*values]
    limits = (min(values), max(values)) if len(values) > 1 else (math.nan, math.nan)
    return f"{statistics.Interval(sum(values) / len(values), *limits):{form}}" if values else ""
