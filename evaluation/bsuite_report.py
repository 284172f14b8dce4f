"""bsuite's scores in a benchmark's report: a table beside published ones, and the radar plot."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from . import bsuite
from .page_parts import new_figure, picture, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def sections(rows: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """HTML of the rows of bsuite.csv, of which there is at least one."""
    agents = sorted({row["agent"] for row in rows})
    of = {kind: _by_name(rows, kind) for kind in (bsuite.EXPERIMENT, bsuite.TAG)}
    published = bsuite.published()
    yield (
        "<h2>bsuite's scores</h2><p>Between 0 and 1, by bsuite's own functions, from all episodes"
        " of training and of the ids that were run: the mean over seeds, with the lowest and the"
        " highest. A star: an id has fewer episodes than bsuite asks for. Published scores are of"
        " all ids.</p>"
    )
    experiments = [
        [
            name,
            *(_cell(found.get(agent, [])) for agent in agents),
            *(f"{each[name]:g}" if name in each else "" for each in published.values()),
        ]
        for name, found in of[bsuite.EXPERIMENT].items()
    ]
    yield table(["experiment", *agents, *published], experiments)
    yield "<p>The means over the experiments of each of bsuite's tags:</p>"
    yield picture(_draw_radar(of[bsuite.TAG], agents), "scores of each tag")
    tags = [
        [name, *(_cell(found.get(agent, [])) for agent in agents)]
        for name, found in of[bsuite.TAG].items()
    ]
    yield table(["tag", *agents], tags)


def _by_name(
    rows: Sequence[Mapping[str, str]], kind: str
) -> dict[str, dict[str, list[Mapping[str, str]]]]:
    """The rows of a kind, by name and agent: one for each seed."""
    found: dict[str, dict[str, list[Mapping[str, str]]]] = {}
    for row in rows:
        if row["kind"] == kind:
            found.setdefault(row["name"], {}).setdefault(row["agent"], []).append(row)
    return found


def _cell(rows: Sequence[Mapping[str, str]]) -> str:
    scores = [float(row["score"]) for row in rows]
    if not scores:
        return ""
    spread = f" ({min(scores):.2f} to {max(scores):.2f})" if len(scores) > 1 else ""
    star = "" if all(row["finished"] == "True" for row in rows) else "*"
    return f"{np.mean(scores):.2f}{spread}{star}"


def _draw_radar(
    found: Mapping[str, Mapping[str, Sequence[Mapping[str, str]]]], agents: Sequence[str]
) -> "Figure":
    angles = np.linspace(0.0, 2.0 * np.pi, len(found), endpoint=False)
    figure = new_figure(6.5, 4.5)
    figure.set_layout_engine("constrained", w_pad=0.8)  # for the tags' names
    panel = figure.add_subplot(projection="polar")
    for number, agent in enumerate(agents):
        means = [
            np.mean([float(row["score"]) for row in each.get(agent, [])] or [np.nan])
            for each in found.values()
        ]
        closed = [*angles, *angles[:1]], [*means, *means[:1]]
        panel.plot(*closed, color=f"C{number}", marker="o", label=agent)
        panel.fill(*closed, color=f"C{number}", alpha=0.15)
    panel.set(ylim=(0.0, 1.0), yticks=(0.25, 0.5, 0.75, 1.0))
    panel.set_xticks(angles, [name.replace("_", " ") for name in found])
    figure.legend(loc="outside upper right")
    return figure
