"""The state of a running program on the screen: a live table in a terminal, log lines elsewhere."""

import time
import types
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

_LINE_SECONDS = 10.0  # between log lines, at least
_SILENT_SECONDS = 15.0  # without a report, after which a node is shown as silent
_RATES = (
    ("steps_per_second", "steps/s"),
    ("updates_per_second", "updates/s"),
    ("rows_per_second", "rows/s"),
)


class LiveTable:
    """Shows statuses."""

    def __init__(self, *, plain: bool):
        """With `plain` there are log lines in a terminal, too."""
        console = Console(stderr=True)
        self._live: Live | None = None
        if console.is_terminal and not plain:
            self._live = Live(console=console, auto_refresh=False)
        self._last_line = time.monotonic()
        self._phase = ""

    def __enter__(self) -> "LiveTable":
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        if self._live:
            self._live.stop()

    def show(self, status: Mapping[str, Any], ended: Mapping[str, str]) -> str:
        """Updates the table, or returns a line for the log ("" if there was one just now).

        Args:
          status: as `read_status` returns it.
          ended: of the nodes that have ended, how they did.
        """
        if not status:
            return ""
        if self._live:
            self._live.update(table(status, ended), refresh=True)
            return ""
        now = time.monotonic()
        if now - self._last_line < _LINE_SECONDS and status["phase"] == self._phase:
            return ""
        self._last_line, self._phase = now, status["phase"]
        return line(status)


def table(status: Mapping[str, Any], ended: Mapping[str, str] | None = None) -> Table:
    """The live table: one row for each node, the state of the run in the title."""
    table = Table(
        title=(
            f"{status['phase']}: {status['steps']}/{status['last_step']} steps, "
            f"{status['updates']} updates, {_time(status['seconds'])}, "
            f"ETA {_time(status['eta_seconds'])}"
        ),
        title_justify="left",
    )
    for column in ("node", "state", "rate", "return", "more"):
        table.add_column(column, justify="right" if column in ("rate", "return") else "left")
    restarts = status.get("restarts", {})
    nodes = status["nodes"]
    if "parameter_server/0" not in nodes:
        nodes = {"replay/0": _replay(status), **nodes}
    for name, values in nodes.items():
        state = (ended or {}).get(name) or _state(values)
        rates = [f"{values[rate]:.1f} {unit}" for rate, unit in _RATES if rate in values]
        more = _more({**values, "restarts": restarts.get(name, 0)})
        table.add_row(name, state, "".join(rates[:1]), _number(values.get("return")), more)
    return table


def line(status: Mapping[str, Any]) -> str:
    """The state of the run in one line."""
    learner = _first(status, "learner/") or _first(status, "parameter_server/")
    evaluator, nodes = _first(status, "evaluator/"), status["nodes"].items()
    actors = [v for name, v in nodes if name.startswith(("actor/", "worker/"))]
    staleness = _mean([v["staleness"] for v in actors if "staleness" in v])
    mean_return = _mean([v["return"] for v in actors if "return" in v])
    restarts = sum(status.get("restarts", {}).values())
    return (
        f"{status['phase']} | {status['steps']}/{status['last_step']} steps | "
        f"{status['steps_per_second']:.0f} steps/s | "
        f"{status['updates']} updates, {status['updates_per_second']:.1f}/s, "
        f"idle {_share(learner.get('idle_share'))} | "
        f"replay {_replay(status)['replay_rows']} rows | "
        f"staleness {_number(staleness)} | "
        f"return {_number(mean_return)}, "
        f"evaluator {_number(evaluator.get('return'))} | "
        + (f"restarts: {restarts} | " if restarts else "")
        + f"ETA {_time(status['eta_seconds'])}"
    )


def _first(status: Mapping[str, Any], prefix: str) -> Mapping[str, Any]:
    return next((v for name, v in status["nodes"].items() if name.startswith(prefix)), {})


def _replay(status: Mapping[str, Any]) -> dict[str, Any]:
    """The row of the replay, from the reports of the learner or the workers: it makes none."""
    nodes = status["nodes"].items()
    owners = [values for name, values in nodes if name.startswith(("learner/", "worker/"))]
    return {
        "state": "serving" if owners else "starting",
        "replay_rows": sum(values.get("replay_rows", 0) for values in owners),
        "replay_sequences": sum(values.get("replay_sequences", 0) for values in owners),
        "rows_per_second": status["steps_per_second"],
    }


def _state(values: Mapping[str, Any]) -> str:
    silent = values.get("silent_seconds", 0.0)
    state = str(values.get("state", "starting"))
    return f"{state} (silent for {silent:.0f} s)" if silent > _SILENT_SECONDS else state


def _more(values: Mapping[str, Any]) -> str:
    parts = []
    if "rows_per_second" in values:
        parts.append(f"{values['replay_rows']} rows, {values['replay_sequences']} sequences")
    if "idle_share" in values:
        parts.append(f"{_share(values['idle_share'])} idle")
    if "staleness" in values:
        parts.append(f"{values['staleness']} versions behind")
    if values.get("failures"):
        parts.append("learner away")
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
