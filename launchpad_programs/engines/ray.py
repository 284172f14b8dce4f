"""Runs a program's nodes in actors of Ray, and starts them again when they die.

Ray places, starts and ends the processes, and carries all data. What the nodes that others call and
the evaluator write is in the run directory, so they stay on the launcher's host; actors and workers
may be anywhere.
"""

import contextlib
import dataclasses
import functools
import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

import cloudpickle
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ...basics.writing import write_json
from ...training.snapshots import newest_snapshot
from ..config import RESTARTS, ProgramConfig
from ..kinds import NodeSpec, kinds_of, log_restart, nodes_of, process_env
from .engine import RunningNode
from .ray_peers import Host
from .ray_session import home_resources

Result = TypeVar("Result")
_STABLE_SECONDS = 60.0  # a process that ran for so long does not count as one of a row of failures
_NAME_SECONDS = 10.0  # until the name of a process that was killed is free again
_SPARE_THREADS, _THREADS_EACH = 8, 3  # of a node that others call, and for each actor
_DEATHS = {  # from what Ray says
    "node has died": "was lost with its host",
    "worker process has died": "was killed",
    "killed by `ray.kill`": "was killed",
}
_log = logging.getLogger("retrax")


class Connection:
    """Whether Ray's processes on this machine are still there.

    Attributes:
      lost: how every node ended that had not ended before Ray did; "" as long as it runs.
    """

    lost = ""

    def ask(self, call: Callable[[], Result]) -> Result | None:
        """What a function returns that calls Ray.

        None, and `lost` is set, where it fails because Ray has ended; Ray is not asked again then.
        """
        if self.lost:
            return None
        try:
            return call()
        except OSError as error:
            if error.errno is not None:  # of a file; Ray's own have no number
                raise
            self.lost = f"was lost, since Ray has ended on this machine ({error})"
            return None


class RayNode(RunningNode):
    """A node in a `Host`."""

    def __init__(
        self,
        name: str,
        start: Callable[[int], tuple[Any, Any]],
        *,
        max_failures: int,
        on_restart: Callable[[str, int], None],
        connection: Connection,
        progress: Callable[[], Any] | None = None,
    ):
        """Starts the node: `start(restarts)` returns a handle of a new `Host`, and its result.

        It is started again until it failed more than `max_failures` times in a row: less than a
        minute after its start, or as before while `progress()` has not changed.
        """
        self.name, self._start, self._on_restart = name, start, on_restart
        self._connection = connection
        self._max_failures, self._failures, self._restarts = max_failures, 0, 0
        self._first = ("", "")  # how the first of a row of failures ended, and its traceback
        self._how = self._traceback = self._address = ""
        self._progress, self._last = progress, ("", None)  # kind of the last failure, and progress
        self._pid: int | None = None
        connection.ask(self._begin)

    @property
    def pid(self) -> int | None:
        """Its process, as soon as it answers."""
        if self._pid is None:
            self._connection.ask(self._find)
        return self._pid

    def ended(self) -> str:
        """As `RunningNode.ended`."""
        if not self._how:
            self._connection.ask(self._poll)
        if self._connection.lost and self._how != "done":
            return self._connection.lost
        if self._how not in ("", "done") and self._failures > 1:
            return f"failed {self._failures} times in a row; at first, it {self._first[0]}"
        return self._how

    def revive(self) -> bool:
        """Starts the node again, unless it failed too often or Ray has ended; whether it did."""
        return self._connection.ask(self._revive) or False

    def stop(self) -> None:
        """Sets its stop event."""
        self._connection.ask(lambda: self._host.stop.remote())

    def kill(self) -> None:
        """Ends its process."""
        self._connection.ask(lambda: ray.kill(self._host))

    def traceback(self) -> str:
        """The first of a row of failures."""
        return self._first[1] or self._traceback

    def _poll(self) -> None:
        self._how, self._traceback = _ending(self._result)

    def _revive(self) -> bool:
        is_stable = time.monotonic() - self._started > _STABLE_SECONDS
        if self._progress is not None:  # a learner may die of each save, after minutes
            last, self._last = self._last, (self._how.partition(":")[0], self._progress())
            is_stable = is_stable and self._last != last
        if is_stable:
            self._failures = 0
        self._failures += 1
        if self._failures == 1:
            self._first = (self._how, self._traceback)
        if self._failures > self._max_failures:
            return False
        self._restarts += 1
        how = "ended too early" if self._how == "done" else self._how
        where = "" if self.pid is None else f" on {self._address}"
        _log.warning(f"{self.name} {how}{where}: restart {self._restarts}.")
        if self._traceback:
            _log.warning(self._traceback.rstrip(), extra={"file_only": True})
        self.kill()
        self._on_restart(self.name, self._restarts)
        self._begin()
        return True

    def _begin(self) -> None:
        self._host, self._result = self._start(self._restarts)
        self._place, self._pid = self._host.where.remote(), None
        self._started = time.monotonic()
        self._how = self._traceback = ""

    def _find(self) -> None:
        with contextlib.suppress(ray.exceptions.RayError):  # it still starts, or has died
            self._address, self._pid = ray.get(self._place, timeout=0)


def start_actors(config: ProgramConfig, *, max_failures: int) -> list[RayNode]:
    """Starts every node of a program within a `ray_session`; see `EngineOptions.max_failures`."""
    connection, restarts = Connection(), dict[str, int]()
    home = ray.get_runtime_context().get_node_id()
    gpus = int(home_resources().get("GPU", 0) >= 1)  # for the learner
    # Once, not with every restart: it asks an environment what it shows.
    variables = {kind.label: process_env(kind, config) for kind in kinds_of(config.run)}
    # The processes of other hosts have other working directories.
    config = dataclasses.replace(config, directory=config.directory.absolute())

    def on_restart(name: str, number: int) -> None:
        restarts[name] = number
        write_json(config.directory / RESTARTS, restarts)

    return [
        RayNode(
            spec.name,
            functools.partial(_start, config, spec, variables[spec.kind.label], home, gpus),
            max_failures=max_failures,
            on_restart=on_restart,
            connection=connection,
            progress=functools.partial(newest_snapshot, config.directory)
            if spec.kind.publishes or spec.kind.holds_rows
            else None,
        )
        for spec in nodes_of(config)
    ]


def _start(
    config: ProgramConfig,
    spec: NodeSpec,
    variables: dict[str, str],
    home: str,
    gpus: int,
    restarts: int,
) -> tuple[Any, Any]:
    """A new process of a node: its handle, and its result."""
    kind = spec.kind
    if restarts:
        newest = newest_snapshot(config.directory)
        config = dataclasses.replace(config, restarts=restarts, resumed_at=newest)
        log_restart(kind, newest)
    # Callers wait in the threads of those that they call, for a second or so.
    threads = _SPARE_THREADS + _THREADS_EACH * config.run.num_actors
    host = ray.remote(concurrency_groups={"calls": threads if kind.is_called else 1})(Host)
    options = host.options(
        name=spec.name,
        max_concurrency=4,  # it runs, and answers the launcher
        num_cpus=kind.cpus,
        num_gpus=gpus if kind.sees_accelerator else 0,
        runtime_env={"env_vars": variables},
        scheduling_strategy="SPREAD"
        if kind.acts
        else NodeAffinitySchedulingStrategy(home, soft=False),
    )
    handle = _named(lambda: options.remote(home))
    log = config.directory / "logs" / kind.label / str(spec.index)
    return handle, handle.run.remote(cloudpickle.dumps((spec, config)), log)


def _named(create: Callable[[], Any]) -> Any:
    """A new actor, as soon as the one that had its name has ended."""
    deadline = time.monotonic() + _NAME_SECONDS
    while True:
        try:
            return create()
        except ValueError:  # the name is taken
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def _ending(result: Any) -> tuple[str, str]:
    """How a node ended, as `RunningNode.ended`, and its traceback."""
    if not ray.wait([result], timeout=0)[0]:
        return "", ""
    try:
        text = ray.get(result)
    except ray.exceptions.OutOfMemoryError:
        return "ran out of memory", ""
    except ray.exceptions.RayError as error:
        return _death(str(error)), str(error)
    if not text:
        return "done", ""
    return f"failed with {text.rstrip().splitlines()[-1].rstrip('.')}", text


def _death(reason: str) -> str:
    """How a node ended without an answer, from Ray's reason."""
    for sign, how in _DEATHS.items():
        if sign in reason:
            return how
    return f"failed in Ray ({' '.join(reason.split()).rstrip('.')})"
