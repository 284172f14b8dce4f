"""Runs a program's nodes in actors of Ray, and starts them again when they die.

Ray places, starts and ends the processes; Courier and Reverb carry all data, as under Launchpad.
What the nodes that serve and the evaluator write is in the run directory, so they stay on the
launcher's host; actors and workers may be anywhere.
"""

import dataclasses
import functools
import logging
import os
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import cloudpickle
import launchpad as lp
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ..replay.reverb import Checkpoints
from ..runtime.actor_states import ActorStates
from ..runtime.numbered_folders import newest_snapshot
from .config import ProgramConfig
from .ports import free_port, wait_until_free
from .process import RayActors, bind_port
from .program import make_program, process_env
from .ray_files import FileCopy, write_file
from .ray_session import CPUS, Connection, RaySession
from .status import write_restarts

_ANYWHERE = ("actor", "worker")
_STABLE_SECONDS = 60.0  # a process that ran for so long does not count as one of a row of failures
_log = logging.getLogger("retrax")


class Host:
    """The process of one node, placed by Ray."""

    def __init__(self, home: str):
        """Takes Ray's id of the launcher's host."""
        self._is_home = ray.get_runtime_context().get_node_id() == home

    def where(self) -> str:
        """The address of the machine."""
        return str(ray.util.get_node_ip_address())

    def read(self, path: Path) -> bytes | None:
        """A file of this host; None if there is none, or on the launcher's host."""
        return path.read_bytes() if path.is_file() and not self._is_home else None

    def run(self, pickled: bytes, log: Path, port: int | None, files: Mapping[Path, bytes]) -> str:
        """Runs a node to its end.

        Args:
          pickled: the node.
          log: gets its output, if this is the launcher's host.
          port: on which it will listen; None if it does not.
          files: that it needs; they are there already on the launcher's host.

        Returns:
          The traceback of its error, "" if there was none.
        """
        try:
            if self._is_home:
                _redirect_output(log)
            else:
                for path, content in files.items():
                    write_file(path, content)
            if port is not None:
                wait_until_free(port)
            cloudpickle.loads(pickled).run()
        except BaseException:  # sys.exit() too
            text = traceback.format_exc()
            print(text, flush=True)
            return text
        return ""

    def stop(self) -> None:
        """Sets the node's stop event."""
        RayActors().stop_event("").set()


class RayWorker:
    """A node in a `Host`; a `Worker`."""

    def __init__(
        self,
        name: str,
        start: Callable[[int], tuple[Any, Any]],
        *,
        max_failures: int,
        on_restart: Callable[[str, int], None],
        connection: Connection,
        copy: FileCopy | None = None,
    ):
        """Starts the node.

        Args:
          name: LABEL/N.
          start: given the number of restarts, returns a handle of a new `Host`, and its result.
          max_failures: in a row, after which the node is not started again.
          on_restart: given the name and the number of restarts.
          connection: of all nodes of a program.
          copy: of the file that the node keeps its state in.
        """
        self.name, self._start, self._on_restart, self._copy = name, start, on_restart, copy
        self._connection = connection
        self._max_failures, self._failures, self._restarts = max_failures, 0, 0
        self._first = ("", "")  # how the first of a row of failures ended, and its traceback
        self._how = self._traceback = ""
        connection.ask(self._begin)

    def ended(self) -> str:
        """As `Worker.ended`."""
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
        if self._copy is not None:
            self._copy.finish() if self._how == "done" else self._copy.poll()

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
        _log.warning(f"{self.name} {how}{self._where()}: restart {self._restarts}.")
        if self._traceback:
            _log.warning(self._traceback.rstrip(), extra={"file_only": True})
        self.kill()
        self._on_restart(self.name, self._restarts)
        self._begin()
        return True

    def _begin(self) -> None:
        self._host, self._result = self._start(self._restarts)
        self._place = self._host.where.remote()
        if self._copy is not None:
            self._copy.begin(self._host)
        self._started = time.monotonic()
        self._how = self._traceback = ""

    def _where(self) -> str:
        try:
            return f" on {ray.get(self._place, timeout=0.1)}"
        except ray.exceptions.RayError:
            return ""


class RayEngine:
    """Starts the nodes of a program within a session of Ray."""

    def __init__(self, session: RaySession, *, max_failures: int):
        """Takes a running session, and failures of a node in a row before the program ends."""
        self._session, self._max_failures = session, max_failures

    def start(self, config: ProgramConfig) -> list[RayWorker]:
        """Starts every node; its output goes to `logs/LABEL/N` of the run directory."""
        host, restarts = self._session.host, {}
        # The processes of other hosts have other working directories.
        config = dataclasses.replace(config, directory=config.directory.absolute())
        ports = config.ports or {label: free_port() for label in config.serving}

        def on_restart(name: str, number: int) -> None:
            restarts[name] = number
            write_restarts(config.directory, restarts)

        workers, connection = [], Connection()
        groups = _bound_program(config, ports, host).groups
        for label, nodes in groups.items():
            for index in range(len(nodes)):
                start = functools.partial(self._start, config, ports, label, index)
                state = ActorStates(config.directory, index).path
                workers.append(
                    RayWorker(
                        f"{label}/{index}",
                        start,
                        max_failures=self._max_failures,
                        on_restart=on_restart,
                        connection=connection,
                        copy=FileCopy(state) if label == "actor" else None,
                    )
                )
        return workers

    def _start(
        self, config: ProgramConfig, ports: Mapping[str, int], label: str, index: int, restarts: int
    ) -> tuple[Any, Any]:
        """A new process of a node: its handle, and its result."""
        if restarts:
            newest = newest_snapshot(config.directory)
            config = dataclasses.replace(config, restarts=restarts, resumed_at=newest)
            if told := describe_restart(config, label):
                _log.info(told)
        node = _bound_program(config, ports, self._session.host).groups[label][index]
        host = ray.remote(Host).options(
            max_concurrency=4,  # it runs, and answers
            num_cpus=CPUS[label],
            num_gpus=self._session.gpus if label == "learner" else 0,
            runtime_env={"env_vars": process_env(config)[label]},
            scheduling_strategy="SPREAD" if label in _ANYWHERE else self._at_home(),
        )
        handle = host.remote(self._session.node_id)
        log = config.directory / "logs" / label / str(index)
        state = ActorStates(config.directory, index).path
        files = {state: state.read_bytes()} if label == "actor" and state.is_file() else {}
        pickled = cloudpickle.dumps(node)
        return handle, handle.run.remote(pickled, log, ports.get(label), files)

    def _at_home(self) -> NodeAffinitySchedulingStrategy:
        return NodeAffinitySchedulingStrategy(self._session.node_id, soft=False)


def describe_restart(config: ProgramConfig, label: str) -> str:
    """A sentence for the log: what a restarted node continues with; "" for small states."""
    if label in ("learner", "parameter_server"):
        name = label.replace("_", " ")
        if config.resumed_at is None:
            return f"There is no snapshot yet: the {name} begins anew."
        return f"The {name} restores the snapshot at {config.resumed_at} steps."
    if label == "worker":
        return "The worker restores its own newest snapshot on its host, or else begins anew."
    if label == "replay":
        if not config.keeps_sequences:
            return "The rows that were on their way through the replay's queue are lost."
        if not Checkpoints(config.directory).is_live:
            return "There is no checkpoint yet: the replay is empty, and refills."
        return "The replay restores its newest checkpoint, which was made with a snapshot."
    return ""


def _bound_program(config: ProgramConfig, ports: Mapping[str, int], host: str) -> lp.Program:
    program = make_program(config, RayActors())
    for label, port in ports.items():
        for address in program.groups[label][0].addresses:
            bind_port(address, port, host)
    return program


def _ending(result: Any) -> tuple[str, str]:
    """How a node ended, as `Worker.ended`, and its traceback."""
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
