"""Launchpad: every node is a process on this machine; the first that dies ends the program.

Nodes reach each other by calls over Courier, and rows through Reverb where it has the selector.
"""

import concurrent.futures
import contextlib
import ctypes
import functools
import io
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
from launchpad.address import get_port_from_address
from launchpad.launch import worker_manager
from launchpad.launch.run_locally import launch_local_output_to_files
from launchpad.nodes.python.local_multi_processing import PythonProcess

from ...datatypes import EnvironmentSpec, SequenceSpec
from ...replay.interface import PeerLost, Replay, Writer
from ...replay.reverb import (
    Checkpoints,
    Layout,
    ReverbReplay,
    ReverbWriter,
    make_tables,
)
from ...replay.reverb.library import reverb
from ...replay.selectors import has_tables
from ...training.process import StopEvent
from ..config import ProgramConfig
from ..kinds import NodeKind, NodeSpec, kinds_of, nodes_of, process_env
from ..node import SAVE_SECONDS, Peers, RemoteAnswer, RemotePeer, make_node
from .engine import RunningNode

_LOG_LINES = 10  # shown of a node that left no traceback
_LIBC, _PR_SET_PDEATHSIG = ctypes.CDLL(None), 1  # linux/prctl.h
_WATCH_SECONDS, _ORPHAN_SECONDS = 0.5, 8.0  # for a last snapshot, after the launcher has died
_SPARE_THREADS = 8  # of Courier's servers, besides one for each actor
_NOTICE_SECONDS = 10  # between SIGTERM and the end of a node without a save, which kills itself
_AHEAD = 2  # requests of draws
_CONNECT_SECONDS = 1.0
_NO_ANSWER = ("DEADLINE_EXCEEDED", "UNAVAILABLE")


def start_processes(config: ProgramConfig) -> "list[ProcessNode]":
    """Starts every node of a program; ValueError if a resumed run lacks Reverb's checkpoint."""
    if has_tables(config.run.replay) and not config.has_workers:
        Checkpoints(config.directory).prepare(config.resumed_at)
    logs = config.directory / "logs"
    launch_local_output_to_files._LOGGING_DIR = str(logs)  # else read once, on import
    local = {"grpc_proxy": ""}  # Courier and Reverb would call this machine through a proxy
    resources = {
        kind.label: PythonProcess(env={**process_env(kind, config), **local})
        for kind in kinds_of(config.run)
    }
    with _temporary_files(logs / "jobs"):
        manager = _launch(make_program(config, launcher=os.getpid()), resources)
    # Taken out of Launchpad's manager, which would wait for them at exit.
    groups = dict(manager._active_workers)
    manager._active_workers.clear()
    nodes = []
    for title, group in groups.items():
        for number, process in enumerate(group):
            name = title if "/" in title else f"{title}/{number}"
            nodes.append(ProcessNode(name, process, logs / name))
    return nodes


def make_program(config: ProgramConfig, *, launcher: int) -> lp.Program:
    """Adds the nodes, which end with the process `launcher`; makes nothing else."""
    program, handles = lp.Program("retrax"), {}
    for spec in nodes_of(config):
        if spec.kind.holds_rows and has_tables(config.run.replay):
            server = ReplayServer(config, spec, launcher)
            handles[spec.name] = program.add_node(server, spec.kind.label)
        else:
            node = Node(config, spec, {name: handles[name] for name in spec.peers}, launcher)
            handles[spec.name] = program.add_node(node, spec.kind.label)
            handles[spec.name].set_client_kwargs(call_timeout=SAVE_SECONDS)
    return program


class Node(lp.CourierNode):
    """A node made by its factory; others call its public methods over Courier."""

    def __init__(
        self, config: ProgramConfig, spec: NodeSpec, handles: Mapping[str, Any], launcher: int
    ):
        def make(**clients: Any) -> Any:  # in the node's own thread, which has its stop event
            return make_node(spec, config, CourierPeers(config, clients, lp.stop_event()))

        # Actors wait a moment for parameters, each in a thread of the learner's server.
        threads = _SPARE_THREADS + config.run.num_actors
        super().__init__(make, **handles, courier_kwargs={"thread_pool_size": threads})
        self._kind, self._launcher = spec.kind, launcher

    def run(self) -> None:
        """Runs the node to its end."""
        with node_process(self._kind, self._launcher):
            if self._kind.is_called:
                super().run()
            else:
                lp.PyClassNode.run(self)


class ReplayServer(lp.ReverbNode):
    """The replay: a Reverb server that ends as the other nodes do."""

    def __init__(self, config: ProgramConfig, spec: NodeSpec, launcher: int):
        super().__init__(self._make_tables)
        self._config, self._kind, self._launcher = config, spec.kind, launcher

    def run(self) -> None:
        """Serves until the program ends."""
        with node_process(self._kind, self._launcher):
            stop, tables = lp.stop_event(), self._make_tables()
            # Without a checkpointer a server leaves a folder in /tmp behind.
            live = str(Checkpoints(self._config.directory).live)
            checkpointer = reverb.checkpointers.DefaultCheckpointer(live)
            port = get_port_from_address(self.reverb_address.resolve())
            # Kept: without a reference to the server its port closes.
            self._server = reverb.Server(tables, port=port, checkpointer=checkpointer)
            while not stop.wait(1.0):
                pass

    def _make_tables(self) -> list[Any]:
        config = self._config
        sequence = config.make_agent(config.spec).sequence
        layout = Layout(config.spec, sequence, config.run.replay)
        return make_tables(layout, num_envs=config.run.num_envs)


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
    worker_manager.get_worker_manager()._termination_notice_secs = notice
    try:
        yield
    except BaseException:
        traceback.print_exc()
        _exit(1)
    _exit(0)


class ProcessNode(RunningNode):
    """A node in a process of its own."""

    def __init__(self, name: str, process: "subprocess.Popen[bytes]", log: Path):
        self.name, self._process, self._log = name, process, log

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def ended(self) -> str:
        """As `RunningNode.ended`."""
        code = self._process.poll()
        if code is None:
            return ""
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"failed with exit code {code}" if code else "done"

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
        with contextlib.redirect_stdout(io.StringIO()), dies_with_launcher():  # it prints paths
            return lp.launch(
                program, "local_mp", terminal="output_to_files", local_resources=resources
            )
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def dies_with_launcher() -> Iterator[None]:
    """Starts processes that die with this one until `node_process`: they have nothing to save."""
    start = worker_manager.WorkerManager.process_worker
    die = functools.partial(_LIBC.prctl, _PR_SET_PDEATHSIG, signal.SIGKILL)
    worker_manager.WorkerManager.process_worker = functools.partialmethod(start, preexec_fn=die)
    try:
        yield
    finally:
        worker_manager.WorkerManager.process_worker = start


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


class CourierPeers(Peers):
    """`Peers` over Courier; over Reverb where the replay has tables."""

    def __init__(self, config: ProgramConfig, clients: Mapping[str, Any], stop: StopEvent):
        super().__init__(
            config, stop, lambda name: CourierPeer(clients[name], name, stop), ahead=_AHEAD
        )
        self._clients = clients

    def writer(
        self, spec: EnvironmentSpec, sequence: SequenceSpec, environments: Sequence[int]
    ) -> Writer:
        """As `Peers.writer`."""
        config, stop = self._config.run.replay, self.stop.is_set
        if not has_tables(config):
            return super().writer(spec, sequence, environments)
        client, layout = self._clients["replay/0"], Layout(spec, sequence, config)
        return ReverbWriter(
            client, layout, environments=environments, stop=stop, max_wait=SAVE_SECONDS
        )

    def replay(self, spec: EnvironmentSpec, sequence: SequenceSpec) -> tuple[Replay, Any]:
        """As `Peers.replay`."""
        run, client = self._config.run, self._clients["replay/0"]
        if not has_tables(run.replay):
            return super().replay(spec, sequence)
        layout = Layout(spec, sequence, run.replay)
        address, num_envs = client.server_address, run.num_envs
        replay = ReverbReplay(address, layout, num_envs=num_envs, max_wait=SAVE_SECONDS)
        return replay, Checkpoints(self._config.directory)


class CourierPeer(RemotePeer):
    """A node with a server of Courier, whose client may wait as long as a save takes."""

    def __init__(self, client: Any, name: str, stop: StopEvent):
        super().__init__(name, stop)
        self._client = client

    def send(self, method: str, *arguments: Any) -> RemoteAnswer:
        """As `Peer.send`."""
        future = getattr(self._client.futures, method)(*arguments)
        return RemoteAnswer(functools.partial(self._read, future))

    def _read(self, future: "concurrent.futures.Future[Any]", timeout: float) -> Any:
        """As `Answer.result`."""
        try:
            return future.result(timeout)
        except concurrent.futures.TimeoutError:
            if not timeout or self._is_there():  # a look must cost nothing
                raise TimeoutError(f"{self.title} gave no answer for {timeout} s.") from None
        except StatusNotOk as error:
            if error.code.name not in _NO_ANSWER:
                raise RuntimeError(f"{self.title} refused a call: {error}") from None
        future.cancel()
        raise PeerLost(f"{self.title} is not there.")

    def _is_there(self) -> bool:
        """Whether the node's port is open: Courier does not say that a server has died."""
        host, _, port = self._client.address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
        except TimeoutError:  # it is too busy
            return True
        except OSError:
            return False
        return True
