"""The progress of a grid: a live table in a terminal, a line for each event elsewhere."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

from rich.console import Console
from rich.live import Live
from rich.table import Table

from .grid import Cell, Progress
from .parsing import tell


@contextlib.contextmanager
def grid_screen(cells: Sequence[Cell], *, plain: bool) -> Iterator[Callable[[Progress], None]]:
    """Shows progress: a live table in a terminal, a line for each event elsewhere."""
    console = Console(stderr=True)
    if console.is_terminal and not plain:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda progress: live.update(_table(cells, progress), refresh=True)
        return
    before: dict[str, str] = {}

    def lines(progress: Progress) -> None:
        for cell in cells:
            state = progress.states[cell.name]
            if state not in ("waiting", before.get(cell.name)):
                score = "" if state != "complete" else f", return {cell.score:.6g}"
                tell(f"{cell.name}: {state}{score}{_left(progress)}")
            before[cell.name] = state

    yield lines


def _table(cells: Sequence[Cell], progress: Progress) -> Table:
    title = f"{progress.complete} of {len(cells)} runs{_left(progress)}"
    table = Table(title=title, title_justify="left")
    for column in ("run", "state", "steps", "return"):
        table.add_column(column, justify="left" if column in ("run", "state") else "right")
    for cell in cells:
        score = cell.score
        steps = f"{progress.steps[cell.name]}/{cell.config.steps}"
        state = progress.states[cell.name]
        table.add_row(cell.name, state, steps, "" if score is None else f"{score:.6g}")
    return table


def _left(progress: Progress) -> str:
    if progress.eta is None or not progress.eta:
        return ""
    return f" (ETA {timedelta(seconds=math.ceil(progress.eta))})"
