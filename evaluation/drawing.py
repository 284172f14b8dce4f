"""Figures without pyplot and its global state, as PNG files or in HTML pages; HTML tables."""

import base64
import html
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..basics.writing import writing
from .statistics import Curve, Interval, mean_curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DOTS_PER_INCH = 120


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
    """A figure with panels of a size in inches, `columns` of them side by side, row by row."""
    rows = -(-number // columns)
    figure = new_figure(inches[0] * columns, inches[1] * rows)
    panels = list(figure.subplots(rows, columns, squeeze=False).flatten())
    for panel in panels[number:]:
        panel.set_axis_off()
    return figure, panels[:number]


def check_png(output: Path) -> None:
    """Refuses a file for a plot that does not end in `.png`."""
    if output.suffix.lower() != ".png":
        raise ValueError(f"Plots are written as PNG: {output} must end in .png.")


def save_png(figure: "Figure", output: Path) -> None:
    """Writes a figure to a file; its directory is made if it does not exist."""
    with writing(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_bytes(png(figure))


def png(figure: "Figure") -> bytes:
    """A figure in the format of PNG."""
    content = io.BytesIO()
    figure.savefig(content, format="png")
    return content.getvalue()


def draw_seeds(panel: "Axes", curves: Sequence[Curve], colour: str, label: str) -> None:
    """Draws curves of several seeds: a thin line for each, a bold one for their mean."""
    if len(curves) > 1:
        for curve in curves:
            panel.plot(*curve, color=colour, linewidth=0.8, alpha=0.45)
    panel.plot(*mean_curve(curves), color=colour, linewidth=2.2, label=label)


def picture(figure: "Figure", description: str) -> str:
    """An `<img>` that holds a figure; the description must need no escaping."""
    data = base64.b64encode(png(figure)).decode("ascii")
    return f'<img alt="{description}" src="data:image/png;base64,{data}">'


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A `<table>` of texts, which are escaped."""
    lines = []
    for number, row in enumerate([header, *rows]):
        kind = "td" if number else "th"
        cells = "".join(f"<{kind}>{html.escape(cell)}</{kind}>" for cell in row)
        lines.append(f"<tr>{cells}</tr>")
    return "<table>\n" + "\n".join(lines) + "\n</table>"


def mean_cell(values: Sequence[float], form: str) -> str:
    """The mean of seeds with the lowest and the highest one; empty without values."""
    limits = (min(values), max(values)) if len(values) > 1 else (math.nan, math.nan)
    return f"{Interval(sum(values) / len(values), *limits):{form}}" if values else ""
