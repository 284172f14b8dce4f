"""Parts of an HTML page that loads nothing: tables, and pictures inside of it."""

import base64
import html
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure of a size in inches."""
    # Imported here, as in plots.py.
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=110, layout="constrained")


def picture(figure: "Figure", description: str) -> str:
    """An `<img>` of a figure; the description must need no escaping."""
    content = io.BytesIO()
    figure.savefig(content, format="png")
    data = base64.b64encode(content.getvalue()).decode("ascii")
    return f'<img alt="{description}" src="data:image/png;base64,{data}">'


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A `<table>` of texts, which are escaped."""
    lines = [_line("th", header), *(_line("td", row) for row in rows)]
    return "<table>\n" + "\n".join(lines) + "\n</table>"


def _line(kind: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{kind}>{html.escape(cell)}</{kind}>" for cell in cells) + "</tr>"
