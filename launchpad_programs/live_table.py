"""The state of a running program on the screen: a live table in a terminal, log lines elsewhere."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from .engines.engine import RunningNode
from .kinds import kind_of

_LINE_SECONDS = 10.0  # between log lines, at least
_SILENT_SECONDS = 15.0  # without a report, after which a node is shown as silent
_RATES = (
    ("steps_per_second", "steps/s"),
    ("updates_per_second", "updates/s"),
)


class LiveTable(contextlib.ExitStack):
    """Shows statuses; a context manager."""

    def __init__(self, *, plain: bool):
        """With `plain` there are log lines in a terminal, too."""
        super().__init__()
        console = Console(stderr=True)
        self._live: Live | None = None
        if console.is_terminal and not plain:
            self._live = self.enter_context(Live(console=console, auto_refresh=False))
        self._last_line = time.monotonic()
        self._change = ""  # what the last line was about

    def show(self, status: Mapping[str, Any], running: Sequence[RunningNode]) -> str:
        """Updates the table, or returns a line for the log ("" if there was one just now).

        Args:
          status: as `read_status` returns it.
          running: the nodes.
        """
        if self._live:
            self._live.update(table(status, running), refresh=True)
            return ""
        now, phase = time.monotonic(), status.get("phase", "starting")
        change = _starting(status, running) if phase == "starting" else phase
        if change == self._change and (
            phase == "starting" or now - self._last_line < _LINE_SECONDS
        ):
            return ""
        self._last_line, self._change = now, change
        return change if phase == "starting" else line(status)


def table(status: Mapping[str, Any], running: Sequence[RunningNode]) -> Table:
    """The live table: one row for each node, the state of the run in the title."""
    title = "starting"
    if status:
        title = (
            f"{status['phase']}: {status['steps']}/{status['last_step']} steps, "
            f"{status['steps_per_second']:.0f} steps/s, {status['updates']} updates, "
            f"{_time(status['seconds'])}, ETA {_time(status['eta_seconds'])}"
        )
    table = Table(title=title, title_justify="left")
    for column in ("node", "pid", "state", "rate", "return", "more"):
        is_number = column in ("pid", "rate", "return")
        table.add_column(column, justify="right" if is_number else "left")
    restarts = status.get("restarts", {})
    for node in running:
        values = status.get("nodes", {}).get(node.name, {})
        rates = [f"{values[rate]:.1f} {unit}" for rate, unit in _RATES if rate in values]
        table.add_row(
            node.name,
            "-" if node.pid is None else str(node.pid),
            node.ended() or _state(status, node.name) + _silence(values),
            "".join(rates[:1]),
            _number(values.get("return")),
            _more({**values, "restarts": restarts.get(node.name, 0)}),
        )
    return table


def _starting(status: Mapping[str, Any], running: Sequence[RunningNode]) -> str:
    """What the nodes do until the clock runs."""
    states: dict[str, list[str]] = {}
    for node in running:
        states.setdefault(node.ended() or _state(status, node.name), []).append(node.name)
    return "starting | " + " | ".join(f"{', '.join(names)}: {s}" for s, names in states.items())


def line(status: Mapping[str, Any]) -> str:
    """The state of the run in one line."""
    nodes = [(kind_of(name), values) for name, values in status["nodes"].items()]
    learner: Mapping[str, Any] = next((values for kind, values in nodes if kind.publishes), {})
    actors = [values for kind, values in nodes if kind.acts]
    others = [values for kind, values in nodes if not kind.acts]
    evaluated = next((values["return"] for values in others if "return" in values), None)
    rows = sum(values.get("replay_rows", 0) for _, values in nodes)
    staleness = _mean([v["staleness"] for v in actors if "staleness" in v])
    mean_return = _mean([v["return"] for v in actors if "return" in v])
    restarts = sum(status.get("restarts", {}).values())
    return (
        f"{status['phase']} | {status['steps']}/{status['last_step']} steps | "
        f"{status['steps_per_second']:.0f} steps/s | "
        f"{status['updates']} updates, {status['updates_per_second']:.1f}/s, "
        f"idle {_share(learner.get('idle_share'))} | "
        f"replay {rows} rows | "
        f"staleness {_number(staleness)} | "
        f"return {_number(mean_return)}, "
        f"evaluator {_number(evaluated)} | "
        + (f"restarts: {restarts} | " if restarts else "")
        + f"ETA {_time(status['eta_seconds'])}"
    )


def _state(status: Mapping[str, Any], name: str) -> str:
    """What a node reported; nodes that report nothing serve the others."""
    values = status.get("nodes", {}).get(name, {})
    serves = kind_of(name).ends_last and status.get("phase", "starting") != "starting"
    return str(values.get("state", "serving" if serves else "starting"))


def _silence(values: Mapping[str, Any]) -> str:
    silent = values.get("silent_seconds", 0.0)
    return f" (silent for {silent:.0f} s)" if silent > _SILENT_SECONDS else ""


def _more(values: Mapping[str, Any]) -> str:
    parts = []
    if "replay_rows" in values:
        parts.append(f"{values['replay_rows']} rows, {values['replay_sequences']} sequences")
    if "idle_share" in values:
        parts.append(f"{_share(values['idle_share'])} idle")
    if "staleness" in values:
        parts.append(f"{values['staleness']} versions behind")
    if values.get("restarts"):
        parts.append(f"restarts: {values['restarts']}")
    return ", ".join(parts)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else str(timedelta(seconds=round(seconds)))
