"""Launchpad: every node is a process on this machine; the first that dies ends the program."""

import contextlib
import ctypes
import dataclasses
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import launchpad as lp
from absl import flags
from launchpad.launch import worker_manager
from launchpad.launch.run_locally import launch_local_output_to_files
from launchpad.nodes.python.local_multi_processing import PythonProcess

from ...replay.reverb import Checkpoints
from ..config import ProgramConfig
from ..kinds import NodeKind, kinds_of, nodes_of, process_env
from .courier import CALL_SECONDS, Execution, Node, has_checkpoints
from .reverb_server import ReplayServer

_LOG_LINES = 10  # shown of a node that left no traceback
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_SPARE_THREADS = 8  # of Courier's servers, besides one for each actor
# Seconds between SIGTERM and the end of a node, which then kills itself. There may be a large
# replay to save.
_SAVE_SECONDS, _NOTICE_SECONDS = 600, 10


class LaunchpadEngine:
    """Starts the nodes of a program as processes; an `Engine`."""

    def start(self, config: ProgramConfig) -> "list[ProcessNode]":
        """As of `Engine`.

        Raises:
          ValueError: the Reverb checkpoint of a resumed run is missing or incomplete.
        """
        if has_checkpoints(config):
            Checkpoints(config.directory).prepare(config.resumed_at)
        program = make_program(config, Processes(os.getpid()))
        env = {kind.label: process_env(kind, config) for kind in kinds_of(config.run)}
        return start_processes(program, env, config.directory / "logs")


def make_program(config: ProgramConfig, execution: Execution) -> lp.Program:
    """Adds the nodes; makes nothing else."""
    program, handles = lp.Program("retrax"), {}
    first, called = config.port, (kind.label for kind in kinds_of(config.run) if kind.is_called)
    ports = {} if first is None else {label: first + index for index, label in enumerate(called)}
    for spec in nodes_of(config):
        port = ports.get(spec.kind.label)
        if spec.kind.holds_rows:
            server = ReplayServer(execution, config, spec.kind, port=port)
            handles[spec.name] = program.add_node(server, spec.kind.label)
            continue
        node = Node(
            execution,
            config,
            spec,
            {name: handles[name] for name in spec.peers},
            port=port,
            # Actors wait a moment for parameters, each in a thread of the learner's server.
            courier_kwargs={"thread_pool_size": _SPARE_THREADS + config.run.num_actors},
        )
        handles[spec.name] = program.add_node(node, spec.kind.label)
        handles[spec.name].set_client_kwargs(call_timeout=CALL_SECONDS)
    return program


@dataclasses.dataclass(frozen=True)
class Processes:
    """Nodes are processes, started by the process `launcher`, which Launchpad stops by SIGTERM."""

    launcher: int

    def stop_event(self) -> threading.Event:
        """The stop event of the node in whose thread this is called."""
        event: threading.Event = lp.stop_event()
        return event

    @contextlib.contextmanager
    def node_context(self, kind: NodeKind) -> Iterator[None]:
        """Sets up a node's process, which exits at the end of the block."""
        _exit_with(self.launcher)
        # A terminal sends these to all processes; the launcher alone handles them.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.nice(kind.nice)
        notice = _SAVE_SECONDS if kind.saves else _NOTICE_SECONDS
        worker_manager.get_worker_manager()._termination_notice_secs = notice
        try:
            yield
        except BaseException:
            traceback.print_exc()
            _exit(1)
        _exit(0)


class ProcessNode:
    """A node in a process of its own; a `RunningNode`."""

    def __init__(self, name: str, process: "subprocess.Popen[bytes]", log: Path):
        self.name, self._process, self._log = name, process, log

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def ended(self) -> str:
        """As of `RunningNode`."""
        code = self._process.poll()
        if code is None:
            return ""
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"failed with exit code {code}" if code else "done"

    def revive(self) -> bool:
        """Never: Launchpad restarts nothing."""
        return False

    def stop(self) -> None:
        """Sends SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        """Sends SIGKILL."""
        self._process.kill()

    def traceback(self) -> str:
        """The newest traceback in the node's log, or the end of it."""
        text = self._log.read_text(errors="replace") if self._log.is_file() else ""
        start = text.rfind("Traceback (most recent call last)")
        return text[start:] if start >= 0 else "".join(text.splitlines(True)[-_LOG_LINES:])


def start_processes(
    program: lp.Program, env: Mapping[str, Mapping[str, str]], logs: Path
) -> list[ProcessNode]:
    """Starts every node as a process, with the variables `env[label]` and output `logs/LABEL/N`."""
    launch_local_output_to_files._LOGGING_DIR = str(logs)  # else read once, on import
    resources = {label: PythonProcess(env=variables) for label, variables in env.items()}
    with _temporary_files(logs / "jobs"):
        manager = _launch(program, resources)
    processes = _take_over(manager)
    return [ProcessNode(name, process, logs / name) for name, process in processes.items()]


@contextlib.contextmanager
def _temporary_files(folder: Path) -> Iterator[None]:
    """Keeps Launchpad's pickled nodes here: a launcher that is killed leaves them behind.

    Only their owner may read and write them: to unpickle them is to execute them.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before
        for path in folder.rglob("*"):
            path.chmod(0o700 if path.is_dir() else 0o600)


def _launch(program: lp.Program, resources: Mapping[str, PythonProcess]) -> Any:
    if not flags.FLAGS.is_parsed():
        flags.FLAGS(["retrax"])  # Launchpad would parse our command line
    # Our own handlers stay: Launchpad's kill everything, this process too, after ten seconds.
    kept = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)}
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints the path of each log
            return lp.launch(
                program, "local_mp", terminal="output_to_files", local_resources=resources
            )
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def _take_over(manager: Any) -> dict[str, Any]:
    """Takes the processes out of Launchpad's manager, which would wait for them at exit."""
    processes = {}
    for title, group in manager._active_workers.items():
        for number, process in enumerate(group):
            name = title if "/" in title else f"{title}/{number}"
            processes[name] = process
    manager._active_workers.clear()
    return processes


def _exit_with(launcher: int) -> None:
    """Requests SIGTERM for when the launcher dies; exits at once if it has died already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != launcher:
        _exit(1)


def _exit(status: int) -> None:
    """Exits without waiting for threads that are blocked in C++."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
