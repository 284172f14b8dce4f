"""The progress of a running program, on the screen and in the log."""

import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from ..training.log import FILE_ONLY
from .config import STATUS, ProgramConfig, read_json
from .engines.engine import RunningNode
from .kinds import kind_of

_STATUS_SECONDS = 0.5
_LINE_SECONDS = 10.0  # between log lines, at least
_SILENT_SECONDS = 15.0  # without a report, after which a node is shown as silent
_SHOWN = {  # of a node's values
    "steps_per_second": "{:.1f} steps/s",
    "updates_per_second": "{:.1f} updates/s",
    "return": "return {:.3g}",
    "replay_rows": "{} rows",
    "replay_sequences": "{} sequences",
    "idle_share": "{:.0%} idle",
    "staleness": "{:.3g} versions behind",
    "restarts": "restarts: {}",
}
_log = logging.getLogger("retrax")


class Progress(contextlib.ExitStack):
    """Follows status.json; a context manager.

    The status is a live table in a terminal, and lines of the log elsewhere.
    """

    def __init__(
        self, config: ProgramConfig, nodes: Sequence[RunningNode], *, plain: bool, notes: bool
    ):
        """Without a table if `plain`; with `notes` the warnings of the counter are logged here."""
        super().__init__()
        self._directory, self._nodes = config.directory, nodes
        self._notes, self._told = notes, set[str]()
        console = Console(stderr=True)
        self._live: Live | None = None
        if console.is_terminal and not plain:
            self._live = self.enter_context(Live(console=console, auto_refresh=False))
        self._next, self._last_line = 0.0, time.monotonic()
        self._change = ""  # what the last line was about
        self._is_finished = False

    def finished(self) -> bool:
        """Whether the run has reached its last step, or a logger ends it; called often."""
        now = time.monotonic()
        if now < self._next:
            return self._is_finished
        self._next = now + _STATUS_SECONDS
        status = read_json(self._directory / STATUS)
        self._is_finished = status.get("phase") == "finished" or status.get("stop", False)
        self.show(status)
        self.tell()
        return self._is_finished

    def tell(self) -> None:
        """Logs the warnings of the counter's process that are new, unless it is this one."""
        for note, is_hidden in read_json(self._directory / STATUS).get("notes", []):
            if self._notes and note not in self._told:
                self._told.add(note)
                _log.warning(note, extra={FILE_ONLY: is_hidden})

    def show(self, status: Mapping[str, Any]) -> None:
        """Updates the table; or logs a line, unless there was one just now about the same."""
        if self._live:
            self._live.update(table(status, self._nodes), refresh=True)
            return
        now, phase = time.monotonic(), status.get("phase", "starting")
        is_starting = phase == "starting"
        text = _starting(status, self._nodes) if is_starting else line(status)
        change = text if is_starting else phase
        is_recent = is_starting or now - self._last_line < _LINE_SECONDS
        if change != self._change or not is_recent:
            self._last_line, self._change = now, change
            _log.info(text)


def table(status: Mapping[str, Any], running: Sequence[RunningNode]) -> Table:
    """The live table: one row for each node, the state of the run in the title."""
    title = "starting"
    if status.get("phase", "starting") != "starting":
        title = f"{line(status)} | elapsed {_time(status['seconds'])}"
    table = Table(title=title, title_justify="left")
    for column in ("node", "pid", "state", "newest report"):
        table.add_column(column)
    restarts = status.get("restarts", {})
    for node in running:
        values = status.get("nodes", {}).get(node.name, {})
        silent = values.get("silent_seconds", 0.0)
        silence = f" (silent for {silent:.0f} s)" if silent > _SILENT_SECONDS else ""
        values = {**values, "restarts": restarts.get(node.name)}
        shown = [text.format(values[k]) for k, text in _SHOWN.items() if values.get(k) is not None]
        table.add_row(
            node.name,
            "-" if node.pid is None else str(node.pid),
            node.ended() or _state(status, node.name) + silence,
            ", ".join(shown),
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
    rows = sum(values.get("replay_rows", 0) for _, values in nodes)
    idle = f"{learner['idle_share']:.0%}" if "idle_share" in learner else "-"
    restarts = sum(status.get("restarts", {}).values())
    return (
        f"{status['phase']} | {status['steps']}/{status['last_step']} steps | "
        f"{status['steps_per_second']:.0f} steps/s | "
        f"{status['updates']} updates, {status['updates_per_second']:.1f}/s, idle {idle} | "
        f"replay {rows} rows | "
        f"staleness {_mean(actors, 'staleness')} | "
        f"return {_mean(actors, 'return')}, "
        f"evaluator {_mean(others, 'return')} | "
        + (f"restarts: {restarts} | " if restarts else "")
        + f"ETA {_time(status['eta_seconds'])}"
    )


def _state(status: Mapping[str, Any], name: str) -> str:
    """What a node reported; nodes that report nothing serve the others."""
    values = status.get("nodes", {}).get(name, {})
    serves = kind_of(name).ends_last and status.get("phase", "starting") != "starting"
    return str(values.get("state", "serving" if serves else "starting"))


def _mean(nodes: Sequence[Mapping[str, Any]], name: str) -> str:
    """Of a value of those nodes that have it."""
    values = [node[name] for node in nodes if name in node]
    return f"{sum(values) / len(values):.3g}" if values else "-"


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else str(timedelta(seconds=round(seconds)))
