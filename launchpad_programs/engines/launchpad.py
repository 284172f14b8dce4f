"""Launchpad: every node is a process on this machine; the first that dies ends the program.

Nodes reach each other by calls over Courier, and rows through Reverb where it has the selector.
"""

import concurrent.futures
import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import launchpad as lp
from absl import flags
from courier.python.client import StatusNotOk
from launchpad.launch import worker_manager
from launchpad.launch.run_locally import run_locally
from launchpad.nodes.python.local_multi_processing import PythonProcess

from ...datatypes import EnvironmentSpec, SequenceSpec
from ...replay.checkpoints import Checkpoints
from ...replay.interface import REAL, PeerLost, Replay, Writer
from ...replay.selectors import has_tables
from ...training.process import SignalEvent, StopEvent
from ..config import ProgramConfig
from ..kinds import NodeKind, kind_of, kinds_of, nodes_of, process_env
from ..node import AHEAD, SAVE_SECONDS, Peers, RemotePeer, RunningNode, make_node, make_peers

_LOG_LINES = 10  # shown of a node that left no traceback
_LIBC, _PR_SET_PDEATHSIG = ctypes.CDLL(None), 1  # linux/prctl.h
# Not `preexec_fn`, which forks a process that has used JAX.
_MORTAL = (
    f"import ctypes, os, sys; ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, 9); "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)
_WATCH_SECONDS, _ORPHAN_SECONDS = 0.5, 8.0  # for a last snapshot, after the launcher has died
_SPARE_THREADS = 8  # of Courier's servers, besides one for each actor
_NOTICE_SECONDS = 10  # between SIGTERM and the end of a node without a save, which kills itself
_CONNECT_SECONDS = 1.0
_NO_ANSWER = ("DEADLINE_EXCEEDED", "UNAVAILABLE")


def start_processes(config: ProgramConfig) -> list[RunningNode]:
    """Starts every node of a program; ValueError if a resumed run lacks Reverb's checkpoint."""
    if has_tables(config.run.replay) and not config.has_workers:
        Checkpoints(config.directory).prepare(config.resumed_at)
    logs = config.directory / "logs"
    local = {"grpc_proxy": ""}  # Courier and Reverb would call this machine through a proxy
    resources = {
        kind.label: PythonProcess(env={**process_env(kind, config), **local})
        for kind in kinds_of(config.run)
    }
    if not flags.FLAGS.is_parsed():
        flags.FLAGS(["retrax"])  # Launchpad would parse our command line
    # Launchpad would handle our signals, print paths, and wait for the processes at exit.
    run_locally.run_commands_locally = lambda commands, terminal: commands
    program = make_program(config, launcher=os.getpid())
    with temporary_files(logs / "jobs"):
        commands = lp.launch(program, "local_mp", local_resources=resources)
    return [
        start_process(each.title, each.command_as_list, logs, **each.env_overrides)
        for each in commands
    ]


def start_process(name: str, command: Sequence[str], logs: Path, **env: str) -> RunningNode:
    """Starts a process that dies with this one until `node_process`: it has nothing to save yet."""
    log = logs / name
    log.parent.mkdir(parents=True, exist_ok=True)
    mortal = [sys.executable, "-S", "-c", _MORTAL, *command]
    with log.open("wb") as file:
        process = subprocess.Popen(mortal, env={**os.environ, **env}, stdout=file, stderr=file)

    def ended() -> str:
        code = process.poll()
        if code is None:
            return ""
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"failed with exit code {code}" if code else "done"

    def newest_traceback() -> str:
        text = log.read_text(errors="replace")
        start = text.rfind("Traceback (most recent call last)")
        return text[start:] if start >= 0 else "".join(text.splitlines(True)[-_LOG_LINES:])

    return RunningNode(name, ended, process.terminate, process.kill, newest_traceback)


def make_program(config: ProgramConfig, *, launcher: int) -> lp.Program:
    """Adds the nodes, which end with the process `launcher`; makes nothing else."""
    program, handles = lp.Program("retrax"), dict[str, Any]()
    for name in nodes_of(config):
        kind = kind_of(name)
        if kind.holds_rows and has_tables(config.run.replay):
            handles[kind.label] = program.add_node(reverb_node(config, kind, launcher), kind.label)
        else:
            peers = {f"{label}/0": handles[label] for label in kind.calls if label in handles}
            handles[kind.label] = program.add_node(Node(config, name, peers, launcher), kind.label)
            handles[kind.label].set_client_kwargs(call_timeout=SAVE_SECONDS)
    return program


class Node(lp.CourierNode):
    """A node made by its factory; others call its public methods over Courier."""

    def __init__(self, config: ProgramConfig, name: str, handles: Mapping[str, Any], launcher: int):
        def make(**clients: Any) -> Any:  # in the node's own thread, which has its stop event
            return make_node(name, config, courier_peers(config, clients, lp.stop_event()))

        # Actors wait a moment for parameters, each in a thread of the learner's server.
        threads = _SPARE_THREADS + config.run.num_actors
        super().__init__(make, **handles, courier_kwargs={"thread_pool_size": threads})
        self._kind, self._launcher = kind_of(name), launcher

    def run(self) -> None:
        """Runs the node to its end."""
        run = lp.CourierNode.run if self._kind.is_called else lp.PyClassNode.run
        with node_process(self._kind, self._launcher):
            run(self)


def reverb_node(config: ProgramConfig, kind: NodeKind, launcher: int) -> Any:
    """The replay: a Reverb server that ends as the other nodes do."""
    # Only where it is needed: with Reverb comes TensorFlow, for ten seconds of each process.
    from ...replay.reverb import Layout, make_tables
    from ...replay.reverb.library import reverb

    def tables() -> list[Any]:
        sequence = config.make_agent(config.spec).sequence
        layout = Layout(config.spec, sequence, config.run.replay)
        return make_tables(layout, num_envs=config.run.num_envs)

    def checkpointer() -> Any:  # without one a server leaves a folder in /tmp behind
        return reverb.checkpointers.DefaultCheckpointer(str(Checkpoints(config.directory).live))

    class ReplayServer(lp.ReverbNode):
        def run(self) -> None:
            with node_process(kind, launcher):
                super().run()

    return ReplayServer(tables, checkpointer)


@contextlib.contextmanager
def node_process(kind: NodeKind, launcher: int) -> Iterator[None]:
    """Sets up a node's process, which exits at the end of the block, or soon after its launcher."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != launcher:  # it has died already
        _exit(1)
    threading.Thread(target=_end_soon_after, args=(launcher,), daemon=True).start()
    # A terminal sends these to all processes; the launcher alone handles them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.nice(kind.nice)
    notice = int(SAVE_SECONDS) if kind.saves or kind.ends_last else _NOTICE_SECONDS
    manager = worker_manager.get_worker_manager()
    manager._termination_notice_secs = notice
    # Launchpad's own event would never be set if SIGTERM came where `wait` holds its lock.
    before, manager._stop_event = manager._stop_event, SignalEvent()
    if before.is_set():
        manager._stop_event.set()
    try:
        yield
    except BaseException:
        traceback.print_exc()
        _exit(1)
    _exit(0)


@contextlib.contextmanager
def temporary_files(folder: Path) -> Iterator[None]:
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


def _end_soon_after(launcher: int) -> None:
    """Ends a process that waits, or saves, for seconds after its launcher has died."""
    while os.getppid() == launcher:
        time.sleep(_WATCH_SECONDS)
    time.sleep(_ORPHAN_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def _exit(status: int) -> None:
    """Exits without waiting for threads that are blocked in C++."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def courier_peers(config: ProgramConfig, clients: Mapping[str, Any], stop: StopEvent) -> Peers:
    """The peers of a node over Courier; over Reverb where the replay has tables."""
    run = config.run
    peers = make_peers(config, stop, lambda x: CourierPeer(clients[x], x, stop), AHEAD, REAL)
    if not has_tables(run.replay):
        return peers

    def writer(spec: EnvironmentSpec, sequence: SequenceSpec, numbers: Sequence[int]) -> Writer:
        from ...replay.reverb import Layout, ReverbWriter

        client, layout = clients["replay/0"], Layout(spec, sequence, run.replay)
        waits: Any = {"stop": stop.is_set, "max_wait": SAVE_SECONDS}
        return ReverbWriter(client, layout, environments=numbers, **waits)

    def replay(spec: EnvironmentSpec, sequence: SequenceSpec) -> tuple[Replay, Any]:
        from ...replay.reverb import Layout, ReverbReplay

        address, layout = clients["replay/0"].server_address, Layout(spec, sequence, run.replay)
        found = ReverbReplay(address, layout, num_envs=run.num_envs, max_wait=SAVE_SECONDS)
        return found, Checkpoints(config.directory)

    return peers._replace(writer=writer, replay=replay)


class CourierPeer(RemotePeer):
    """A node with a server of Courier, whose client may wait as long as a save takes."""

    def __init__(self, client: Any, name: str, stop: StopEvent):
        super().__init__(name, stop)
        self._client = client

    def _send(self, method: str, *arguments: Any) -> Any:
        return getattr(self._client.futures, method)(*arguments)

    def _read(self, sent: "concurrent.futures.Future[Any]", timeout: float) -> Any:
        try:
            return sent.result(timeout)
        except concurrent.futures.TimeoutError:
            if not timeout or self._is_there():  # a look must cost nothing
                raise TimeoutError(f"{self.title} gave no answer for {timeout} s.") from None
        except StatusNotOk as error:
            if error.code.name not in _NO_ANSWER:
                raise RuntimeError(f"{self.title} refused a call: {error}") from None
        sent.cancel()
        raise PeerLost(f"{self.title} cannot be reached.")

    def _is_there(self) -> bool:
        """Whether the node's port is open: Courier does not say that a server has died."""
        host, _, port = self._client.address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
        except OSError as error:
            return isinstance(error, TimeoutError)  # it is too busy
        return True
