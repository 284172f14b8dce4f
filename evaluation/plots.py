"""Learning curves of run directories, and what other figures share.

Figures are made without pyplot and its global state.
"""

import csv
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np

from ..basics.files import writing
from ..basics.validation import Range
from ..training.recorder import flat
from ..training.run_config import seed_runs
from . import statistics
from .arguments import checked

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Runs that differ in these fields only have the same setting, whatever their length.
_APART = {"id", "seed", "environment", "steps", "log_every", "search_path", "logger"}
_APART |= {"snapshot_every", "snapshot_seconds", "evaluate_every", "evaluation_episodes"}
_GREEDY = ("evaluation_return", "evaluator_return")  # of a run in one process, of a program
_DOTS_PER_INCH = 120
_MAX_COLUMNS = 3  # panels side by side
_PANEL_INCHES = (5.0, 3.6)
_MAX_INSIDE = 4  # curves whose legend fits into a panel; a longer legend stands beside it
_BESIDE_INCHES = 3.6
_BAND_SEEDS = 3  # the interval of two is 18 times as wide as their deviation: nothing else is seen


class _Run(NamedTuple):
    environment: str
    setting: str  # the part of its config that runs of one colour share
    fields: dict[str, Any]  # of the whole config, flat
    curve: statistics.Curve
    greedy: list[statistics.Curve]  # evaluations beside returns of training, if there are any


@checked
def read_metrics(run: Path | str) -> dict[str, np.ndarray]:
    """The columns of a run's `metrics.csv`: float64 `[N]` by name, NaN for empty cells.

    The run may still be in progress; an incomplete last line is ignored.

    Raises:
      ValueError: the file is missing, has no rows, or has cells that are not numbers.
    """
    path = Path(run) / "metrics.csv"
    if not path.is_file():
        raise ValueError(f"{run} has no metrics.csv.")
    # utf-8-sig: a spreadsheet may have written the file, with a byte order mark (and \r\n).
    complete, _, _ = path.read_text(encoding="utf-8-sig", errors="replace").rpartition("\n")
    header, *rows = list(csv.reader(complete.splitlines())) or [[]]
    if not rows:
        raise ValueError(f"{path} is empty: nothing has been measured yet.")
    if len(header) == 1 and ";" in header[0]:
        raise ValueError(f"{path} has semicolons between its columns: it must have commas.")
    try:
        values = [[float(cell) if cell else np.nan for cell in row] for row in rows]
        return dict(zip(header, np.array(values, np.float64).T, strict=True))
    except ValueError:
        raise ValueError(f"{path} is damaged: its rows are not {len(header)} numbers.") from None


@checked
def plot_learning_curves(
    runs: Sequence[Path | str],
    output: Path | str | None = None,
    *,
    metric: str = "episode_return",
    window: Annotated[int, Range(1)] = 1,
) -> "Figure":
    """Draws learning curves. Runs that differ only in the seed share a colour.

    With three or more seeds, a band shows the 95 % interval of their mean.

    Args:
      runs: run directories, or directories of several seeds.
      output: the PNG file to write; its directory is made if it does not exist. By default the
        command writes curves.png, and the function no file.
      metric: a column of metrics.csv.
      window: rows in the moving average that ends at each row; the figure says so.

    Returns:
      The figure, which a notebook shows. It has a panel for each environment, a thin line for each
      run, and a bold line for the mean, over the range that all runs of a colour cover. The band
      is computed from Student's t-distribution at each point separately.

    Raises:
      ValueError: there are no runs, one is not a run directory or has no values, `metric` is not
        one of its columns, `window` is less than 1, or `output` does not end in `.png`.
    """
    if not runs:
        raise ValueError("There is nothing to plot: no run directories were given.")
    if output is not None:
        check_ending(Path(output), ".png")
    paths: dict[Path, Path] = {}  # each run once
    for path in map(Path, runs):  # of several seeds, those that have begun
        found = [run for run in seed_runs(path) if (run / "metrics.csv").is_file()] or [path]
        paths |= {run.resolve(): run for run in found}
    loaded = [_read_run(path, metric, window) for path in paths.values()]
    environments = sorted({run.environment for run in loaded})
    columns = min(_MAX_COLUMNS, math.ceil(math.sqrt(len(environments))))
    styles, (width, height) = _styles(loaded), _PANEL_INCHES
    width += _BESIDE_INCHES if len(styles) > _MAX_INSIDE else 0.0
    figure, panels = new_panels(len(environments), (width, height), columns=columns)
    label = metric.replace("_", " ") + (f" (mean of {window} rows)" if window > 1 else "")
    for panel, environment in zip(panels, environments, strict=True):
        _draw(panel, [run for run in loaded if run.environment == environment], styles)
        panel.set(title=environment, xlabel="environment steps", ylabel=label)
    if output is not None:
        save(png(figure), Path(output))
    return figure


def _read_run(run: Path, metric: str, window: int) -> _Run:
    try:
        config = json.loads((run / "config.json").read_text(encoding="utf-8"))
        config["agent"], config["environment"], config["seed"]
    except (OSError, ValueError, TypeError, KeyError):
        raise ValueError(
            f"{run} is not a run directory: it has no config.json with agent, environment and seed."
        ) from None
    columns = read_metrics(run)
    for name in ("steps", metric):
        if name not in columns:
            raise ValueError(f"{run} has no metric {name!r}; its metrics are {sorted(columns)}.")
    curves = []
    for name in (metric, *(_GREEDY if metric == "episode_return" else ())):
        values = columns.get(name, np.full(len(columns["steps"]), np.nan))
        curves.append((columns["steps"][~np.isnan(values)], values[~np.isnan(values)]))
    (steps, values), *greedy = curves
    if not len(steps):
        raise ValueError(f"{run} has no value of {metric!r} yet.")
    setting = json.dumps({k: v for k, v in config.items() if k not in _APART}, sort_keys=True)
    smooth = steps, statistics.moving_average(values, window)
    return _Run(str(config["environment"]), setting, flat(config), smooth, greedy)


def _styles(runs: Sequence[_Run]) -> dict[str, tuple[str, str]]:
    """Colour and label of each setting, the same in all panels.

    A label names the preset if the agent's settings in the same panels differ in it, and fields in
    which settings of one preset differ.
    """
    by_setting = {run.setting: run.fields for run in sorted(runs, key=lambda run: run.setting)}
    drawn = {(run.setting, run.environment) for run in runs}
    panels = {name: {panel for each, panel in drawn if each == name} for name in by_setting}
    styles = {}
    for number, (setting, config) in enumerate(by_setting.items()):
        rivals = [
            other
            for name, other in by_setting.items()
            if other["agent"] == config["agent"] and panels[name] & panels[setting]
        ]
        peers = [other for other in rivals if other.get("preset") == config.get("preset")]
        names = [k for k in config if k not in {"preset", *_APART} and _is_rare(k, config, peers)]
        fields = [f"{name.rpartition('.')[2]}={config[name]}" for name in names]
        preset = [str(config["preset"])] if _is_rare("preset", config, rivals) else []
        styles[setting] = (f"C{number % 10}", ", ".join([str(config["agent"]), *preset, *fields]))
    return styles


def _is_rare(field: str, config: dict[str, Any], others: Sequence[dict[str, Any]]) -> bool:
    """Whether at least half of the others (which include the config itself) have another value."""
    alike = sum(other.get(field) == config.get(field) for other in others)
    return alike < len(others) and 2 * alike <= len(others)


def _draw(panel: "Axes", runs: Sequence[_Run], styles: dict[str, tuple[str, str]]) -> None:
    from matplotlib.ticker import EngFormatter

    for setting, (colour, label) in styles.items():
        mine = [run for run in runs if run.setting == setting]
        curves, seeds = [run.curve for run in mine], {run.fields["seed"] for run in mine}
        if has_band := _BAND_SEEDS <= len(seeds) == len(curves):  # not of copies of a run
            limits = statistics.interval_curve(curves)
            panel.fill_between(*limits, color=colour, alpha=0.15, linewidth=0)
        if len(curves) > 1:
            label += f" ({len(seeds)} seed{'s' * (len(seeds) > 1)}{', 95 %' if has_band else ''})"
        if curves:
            draw_seeds(panel, curves, colour, label)
        if greedy := [each for run in mine for each in run.greedy if len(each[0])]:
            dots = statistics.mean_curve(greedy)
            panel.plot(*dots, "o--", color=colour, markersize=4, label=f"{label}, greedy")
    panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    panel.grid(alpha=0.3)
    beside: Any = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
    where = beside if len(styles) > _MAX_INSIDE else {}
    panel.legend(fontsize="small", frameon=False, **where)


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure of a size in inches, which a notebook shows."""
    from matplotlib.figure import Figure  # here: it takes a second, and only plots need it

    class Picture(Figure):
        def _repr_png_(self) -> bytes:
            return png(self)

    return Picture(figsize=(width, height), dpi=_DOTS_PER_INCH, layout="constrained")


def new_panels(
    number: int, inches: tuple[float, float], *, columns: int
) -> tuple["Figure", list["Axes"]]:
    """A figure with panels of a size in inches, up to `columns` side by side, row by row."""
    rows, columns = -(-number // columns), min(number, columns)
    figure = new_figure(inches[0] * columns, inches[1] * rows)
    panels = list(figure.subplots(rows, columns, squeeze=False).flatten())
    for panel in panels[number:]:
        panel.set_axis_off()
    return figure, panels[:number]


def check_ending(output: Path, ending: str) -> None:
    """Refuses a file whose name does not end in what will be written: `.png` or `.html`."""
    if output.suffix.lower() != ending:
        raise ValueError(f"{output} must end in {ending}: no other format is written.")


def save(content: bytes, output: Path) -> None:
    """Writes a file, a picture or a page; its directory is made if it does not exist."""
    with writing(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_bytes(content)


def png(figure: "Figure") -> bytes:
    """A figure in the format of PNG."""
    content = io.BytesIO()
    figure.savefig(content, format="png")
    return content.getvalue()


def draw_seeds(panel: "Axes", curves: Sequence[statistics.Curve], colour: str, label: str) -> None:
    """Draws curves of several seeds: a thin line for each, a bold one for their mean."""
    if len(curves) > 1:
        for curve in curves:
            panel.plot(*curve, color=colour, linewidth=0.8, alpha=0.45)
    panel.plot(*statistics.mean_curve(curves), color=colour, linewidth=2.2, label=label)
