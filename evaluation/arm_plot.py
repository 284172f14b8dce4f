"""Evaluations of all policies of an agent that has a family of them, as a picture."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..basics.writing import writing
from .plots import check_png
from .statistics import Interval

_INCHES = (7.0, 2.4)  # of a panel
_DOTS_PER_INCH = 120


def plot_arms(panels: Mapping[str, Sequence[Interval]], output: Path, *, title: str) -> None:
    """Plots one panel for each quantity, over the numbers of the arms, from 0.

    Args:
      panels: from the name of a quantity to its mean and interval for each arm; an interval of NaN
        is not drawn.
      output: the PNG file to write; its directory is made if it does not exist.
      title: above the panels.

    Raises:
      ValueError: `output` does not end in `.png`.
    """
    check_png(output)
    # Imported here: it takes a second, and only plots need it. Not pyplot, which has global state.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    size = (_INCHES[0], _INCHES[1] * len(panels))
    figure = Figure(figsize=size, dpi=_DOTS_PER_INCH, layout="constrained")
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False).flatten()
    for axis, (name, values) in zip(axes, panels.items(), strict=True):
        arms = range(len(values))
        axis.plot(arms, [value.mean for value in values], "o-", color="C0")
        drawn = [arm for arm in arms if not math.isnan(values[arm].low)]
        low, high = ([values[arm][bound] for arm in drawn] for bound in (1, 2))
        axis.vlines(drawn, low, high, color="C0")
        axis.set_ylabel(name)
        axis.grid(alpha=0.3)
    axes[-1].set_xlabel("arm")
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.suptitle(title)
    with writing(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        FigureCanvasAgg(figure).print_png(output)
