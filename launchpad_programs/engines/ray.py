"""Runs a program's nodes in actors of Ray, and starts them again when they die.

Ray places, starts and ends the processes, and carries all data. What the nodes that others call and
the evaluator write is in the run directory, so they stay on the launcher's host; actors and workers
may be anywhere.
"""

import contextlib
import dataclasses
import functools
import logging
import os
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ...run_directory.snapshots import newest_snapshot
from ..config import ProgramConfig
from ..kinds import NodeSpec, log_restart, make_node, nodes_of, process_env
from ..status import write_restarts
from .ray_peers import NoResult, RayPeers
from .ray_session import Connection

_STABLE_SECONDS = 60.0  # a process that ran for so long does not count as one of a row of failures
_MAKING_SECONDS = 1.0  # that a call waits for a node which is not made yet
_NAME_SECONDS = 10.0  # until the name of a process that was killed is free again
_SPARE_THREADS, _THREADS_EACH = 8, 3  # of a node that others call, and for each actor
_log = logging.getLogger("retrax")


class Host:
    """The process of one node, placed by Ray."""

    def __init__(self, home: str):
        """Takes Ray's id of the launcher's host."""
        self._is_home = ray.get_runtime_context().get_node_id() == home
        self._stop, self._made = threading.Event(), threading.Event()
        self._node: Any = None

    def where(self) -> tuple[str, int]:
        """The address of the machine, and the process."""
        return str(ray.util.get_node_ip_address()), os.getpid()

    def run(self, pickled: bytes, log: Path) -> str:
        """Runs a node to its end.

        Args:
          pickled: the node's spec and the program's config.
          log: gets its output, if this is the launcher's host.

        Returns:
          The traceback of its error, "" if there was none.
        """
        try:
            if self._is_home:
                _redirect_output(log)
            spec, config = cloudpickle.loads(pickled)
            _add_nice(spec.kind.nice)
            self._node = make_node(spec, config, RayPeers(config, self._stop), stop=self._stop)
            self._made.set()
            self._node.run()
        except BaseException:  # sys.exit() too
            text = traceback.format_exc()
            print(text, flush=True)
            return text
        return ""

    @ray.method(concurrency_group="calls")
    def call(self, method: str, *arguments: Any) -> Any:
        """Calls a method of the node."""
        if not self._made.wait(_MAKING_SECONDS):
            return NoResult("")
        try:
            return getattr(self._node, method)(*arguments)
        except Exception:  # Ray's own tracebacks have colours
            return NoResult(traceback.format_exc())

    def stop(self) -> None:
        """Sets the node's stop event."""
        self._stop.set()


class RayNode:
    """A node in a `Host`; a `RunningNode`."""

    def __init__(
        self,
        name: str,
        start: Callable[[int], tuple[Any, Any]],
        *,
        max_failures: int,
        on_restart: Callable[[str, int], None],
        connection: Connection,
    ):
        """Starts the node.

        Args:
          name: LABEL/N.
          start: given the number of restarts, returns a handle of a new `Host`, and its result.
          max_failures: in a row, after which the node is not started again.
          on_restart: given the name and the number of restarts.
          connection: of all nodes of a program.
        """
        self.name, self._start, self._on_restart = name, start, on_restart
        self._connection = connection
        self._max_failures, self._failures, self._restarts = max_failures, 0, 0
        self._first = ("", "")  # how the first of a row of failures ended, and its traceback
        self._how = self._traceback = self._address = ""
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
        if time.monotonic() - self._started > _STABLE_SECONDS:
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


class RayEngine:
    """Starts the nodes of a program within a `ray_session`."""

    def __init__(self, *, max_failures: int):
        """Takes the failures of a node in a row that it forgives."""
        self._max_failures = max_failures
        self._home = ray.get_runtime_context().get_node_id()
        self._gpus = int(ray.cluster_resources().get("GPU", 0) >= 1)  # for the learner

    def start(self, config: ProgramConfig) -> list[RayNode]:
        """Starts every node; its output goes to `logs/LABEL/N` of the run directory."""
        connection, restarts = Connection(), dict[str, int]()
        # The processes of other hosts have other working directories.
        config = dataclasses.replace(config, directory=config.directory.absolute())

        def on_restart(name: str, number: int) -> None:
            restarts[name] = number
            write_restarts(config.directory, restarts)

        return [
            RayNode(
                spec.name,
                functools.partial(self._start, config, spec),
                max_failures=self._max_failures,
                on_restart=on_restart,
                connection=connection,
            )
            for spec in nodes_of(config)
        ]

    def _start(self, config: ProgramConfig, spec: NodeSpec, restarts: int) -> tuple[Any, Any]:
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
            num_gpus=self._gpus if kind.sees_accelerator else 0,
            runtime_env={"env_vars": process_env(kind, config)},
            scheduling_strategy="SPREAD"
            if kind.may_leave
            else NodeAffinitySchedulingStrategy(self._home, soft=False),
        )
        handle = _named(lambda: options.remote(self._home))
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
        return "was lost with its host" if "node has died" in str(error) else "was killed", ""
    if not text:
        return "done", ""
    return f"failed with {text.rstrip().splitlines()[-1].rstrip('.')}", text


def _redirect_output(log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


def _add_nice(nice: int) -> None:
    """Lowers the priority of this process, whose other threads Ray has started already."""
    if not os.path.isdir("/proc/self/task"):
        os.nice(nice)
        return
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # it may end
            now = os.getpriority(os.PRIO_PROCESS, int(thread))
            os.setpriority(os.PRIO_PROCESS, int(thread), now + nice)
