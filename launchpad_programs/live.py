"""What a person sees while a program runs: one live table in a terminal, log lines elsewhere."""

import time
import types
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

_LINE_SECONDS = 10.0  # log lines are at least this far apart
_SILENT_SECONDS = 15.0  # a node that reports nothing for so long is said to be silent


class View:
    """Shows statuses."""

    def __init__(self, *, plain: bool):
        """Args: `plain`, never a table."""
        console = Console(stderr=True)
        self._live: Live | None = None
        if console.is_terminal and not plain:
            self._live = Live(console=console, auto_refresh=False)
        self._last_line = time.monotonic()
        self._phase = ""

    def __enter__(self) -> "View":
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
        """Brings the table up to date, or gives a line for the log ("" if there was one just now).

        Args:
          status: as `counting.read_status` gave it.
          ended: how nodes ended, of those that did.
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
    """The live table: a row for each node, the run's state above."""
    eta = _time(status["eta_seconds"])
    table = Table(
        title=(
            f"{status['phase']}: {status['steps']}/{status['last_step']} steps, "
            f"{status['updates']} updates, {_time(status['seconds'])}, ETA {eta}"
        ),
        title_justify="left",
    )
    for column in ("node", "state", "rate", "return", "more"):
        table.add_column(column, justify="right" if column in ("rate", "return") else "left")
    for name, values in {"replay/0": _replay(status), **status["nodes"]}.items():
        state = (ended or {}).get(name) or _state(values)
        mean = _number(values.get("return"))
        table.add_row(name, state, _rate(values), mean, _more(values))
    return table


def line(status: Mapping[str, Any]) -> str:
    """The same in one line."""
    learner, evaluator = _of(status, "learner/"), _of(status, "evaluator/")
    actors = [v for name, v in status["nodes"].items() if name.startswith("actor/")]
    returns = [v["return"] for v in actors if "return" in v]
    staleness = [v["staleness"] for v in actors if "staleness" in v]
    return (
        f"{status['phase']} | {status['steps']}/{status['last_step']} steps | "
        f"{status['steps_per_second']:.0f} steps/s | "
        f"{status['updates']} updates, {status['updates_per_second']:.1f}/s, "
        f"idle {_share(learner.get('idle_share'))} | "
        f"replay {_replay(status)['replay_rows']} rows | "
        f"staleness {_number(_mean(staleness))} | "
        f"return {_number(_mean(returns))}, "
        f"evaluator {_number(evaluator.get('return'))} | ETA {_time(status['eta_seconds'])}"
    )


def _of(status: Mapping[str, Any], prefix: str) -> Mapping[str, Any]:
    return next((v for name, v in status["nodes"].items() if name.startswith(prefix)), {})


def _replay(status: Mapping[str, Any]) -> dict[str, Any]:
    """The replay says nothing itself: the learner knows."""
    learner = _of(status, "learner/")
    rows = learner.get("replay_rows", 0)
    return {
        "state": "serving" if learner else "starting",
        "replay_rows": rows,
        "replay_sequences": learner.get("replay_sequences", 0),
        "rows_per_second": status["steps_per_second"],
    }


def _state(values: Mapping[str, Any]) -> str:
    silent = values.get("silent_seconds", 0.0)
    state = str(values.get("state", "starting"))
    return f"{state} (silent for {silent:.0f} s)" if silent > _SILENT_SECONDS else state


def _rate(values: Mapping[str, Any]) -> str:
    for name, unit in (
        ("steps_per_second", "steps/s"),
        ("updates_per_second", "updates/s"),
        ("rows_per_second", "rows/s"),
    ):
        if name in values:
            return f"{values[name]:.1f} {unit}"
    return ""


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
    return ", ".join(parts)


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else str(timedelta(seconds=round(seconds)))
