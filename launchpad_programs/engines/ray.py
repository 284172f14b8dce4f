"""Ray: a program's nodes in actors, which are started again when they die and call each other.

Nodes that write in the run directory stay on the launcher's host; actors and workers may be
anywhere. The process of a node may die and another one take its name: calls then find the new one.
"""

import contextlib
import logging
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ...replay.interface import REAL, PeerLost
from ...training.process import FILE_ONLY
from ...training.snapshots import newest_snapshot
from ..config import ProgramConfig, restarted
from ..kinds import kind_of, kinds_of, nodes_of, process_env
from ..node import AHEAD, EngineLost, RemotePeer, RunningNode, Starting, make_node, make_peers
from .ray_session import home_resources

_STABLE_SECONDS = 60.0  # a process that ran for so long does not count as one of a row of failures
_NAME_SECONDS = 10.0  # until the name of a process that was killed is free again
_MAKING_SECONDS = 1.0  # that a call waits for a node which is not made yet
_SPARE_THREADS, _THREADS_EACH = 8, 3  # of a node that others call, and for each actor
_DEATHS = {  # from what Ray says
    "node has died": "was lost with its host",
    "worker process has died": "was killed",
    "killed by `ray.kill`": "was killed",
    "owner has died": "was lost with Ray on this machine",
}
_log = logging.getLogger("retrax")


def start_actors(
    config: ProgramConfig, *, max_failures: int, ended: Callable[[], str]
) -> list[RunningNode]:
    """Starts every node of a program within a `ray_session`, which gives `ended`."""
    program = RayProgram(config, max_failures, ended)
    return [RayNode(name, program).running() for name in nodes_of(config)]


class RayProgram:
    """What the nodes of a program share: it starts their processes."""

    def __init__(self, config: ProgramConfig, max_failures: int, ended: Callable[[], str]):
        self.max_failures, self.config, self._ended = max_failures, config, ended
        self._restarts = dict[str, int]()
        self._home = ray.get_runtime_context().get_node_id()
        self._gpus = int(home_resources().get("GPU", 0) >= 1)  # for the learner
        # Once, not with every restart: it asks an environment what it shows.
        self._variables = {kind.label: process_env(kind, config) for kind in kinds_of(config.run)}

    @contextlib.contextmanager
    def calls(self) -> Iterator[None]:
        """A block that calls Ray; EngineLost if it has ended."""
        try:
            if reason := self._ended():
                raise OSError(reason)
            yield
        except OSError as error:
            if error.errno is not None:  # of a file; Ray's own have no number
                raise
            sentence = f"The program was lost, since Ray has ended on this machine ({error})."
            raise EngineLost(sentence) from None

    def start(self, name: str, restarts: int) -> tuple[Any, Any]:
        """A new process of a node: a handle of its `Host`, and its result."""
        kind, config = kind_of(name), self.config
        if restarts:
            self._restarts[name] = restarts
            config = restarted(config, self._restarts, name)
        # Callers wait in the threads of those that they call, for a second or so.
        threads = _SPARE_THREADS + _THREADS_EACH * config.run.num_actors
        groups = {"calls": threads if kind.is_called else 1}
        # `ps` and Ray's dashboard name a process by its class.
        host = ray.remote(concurrency_groups=groups)(type(name, (Host,), {}))
        here = NodeAffinitySchedulingStrategy(self._home, soft=False)
        options = host.options(
            name=name,
            max_concurrency=4,  # it runs, and answers the launcher
            num_cpus=kind.cpus,
            num_gpus=self._gpus if kind.sees_accelerator else 0,
            runtime_env={"env_vars": self._variables[kind.label]},
            scheduling_strategy="SPREAD" if kind.acts else here,
        )
        handle = _named(lambda: options.remote(self._home))
        log = config.directory / "logs" / name
        return handle, handle.run.remote(cloudpickle.dumps((name, config)), log)


class RayNode:
    """A node in a `Host`, started again until it failed more than `max_failures` times in a row.

    These are failures less than a minute after its start, or as before and without a new snapshot.
    """

    def __init__(self, name: str, program: RayProgram):
        self._name, self._program = name, program
        self._failures = self._restarts = 0
        self._first = ("", "")  # how the first of a row of failures ended, and its traceback
        self._last: tuple[str, int | None] = ("", None)  # kind of the last failure, and snapshot
        self._how = self._traceback = ""
        with program.calls():
            self._begin()

    def running(self) -> RunningNode:
        """It, as the launcher sees it."""
        parts = self._ended, self._stop, self._kill, self._first_traceback, self._revive
        return RunningNode(self._name, *parts)

    def _ended(self) -> str:
        if not self._how:
            with self._program.calls():
                self._how, self._traceback = _ending(self._result)
        if self._how not in ("", "done") and self._failures > 1:
            return f"failed {self._failures} times in a row; the first time, it {self._first[0]}"
        return self._how

    def _stop(self) -> None:
        with self._program.calls():
            self._host.stop.remote()

    def _kill(self) -> None:
        with self._program.calls():
            ray.kill(self._host)

    def _first_traceback(self) -> str:
        return self._first[1] or self._traceback

    def _revive(self) -> bool:
        kind, begins = kind_of(self._name), ""
        is_stable = time.monotonic() - self._started > _STABLE_SECONDS
        if kind.publishes or kind.holds_rows:  # it may die of each save, after minutes
            last, newest = self._last, newest_snapshot(self._program.config.directory)
            self._last = self._how.partition(":")[0], newest
            is_stable = is_stable and self._last != last
            begins = " from the beginning"
            if newest is not None:
                begins = f" from the snapshot at {newest} steps"
        if is_stable:
            self._failures = 0
        self._failures += 1
        if self._failures == 1:
            self._first = (self._how, self._traceback)
        if self._failures > self._program.max_failures:
            return False
        self._restarts += 1
        how = "ended too early" if self._how == "done" else self._how
        where = ""
        with self._program.calls(), contextlib.suppress(ray.exceptions.RayError):
            where = f" on {ray.get(self._place, timeout=0)}"
        _log.warning(f"{self._name} {how}{where}: restart {self._restarts}{begins}.")
        if self._traceback:
            _log.warning(self._traceback.rstrip(), extra={FILE_ONLY: True})
        self._kill()
        with self._program.calls():
            self._begin()
        return True

    def _begin(self) -> None:
        self._host, self._result = self._program.start(self._name, self._restarts)
        self._place = self._host.where.remote()
        self._started = time.monotonic()
        self._how = self._traceback = ""


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
        reason = str(error)
        unknown = f"failed in Ray ({' '.join(reason.split()).rstrip('.')})"
        return next((how for sign, how in _DEATHS.items() if sign in reason), unknown), reason
    if not text:
        return "done", ""
    return f"failed with {text.rstrip().splitlines()[-1].rstrip('.')}", text


class Host:
    """The process of one node, placed by Ray."""

    def __init__(self, home: str):
        self._is_home = ray.get_runtime_context().get_node_id() == home
        self._stop, self._made = threading.Event(), threading.Event()
        self._node: Any = None

    def where(self) -> str:
        """The address of the machine."""
        return str(ray.util.get_node_ip_address())

    def run(self, pickled: bytes, log: Path) -> str:
        """Runs a node, pickled name and config, to its end; the traceback of its error, or ""."""
        try:
            if self._is_home:
                log.parent.mkdir(parents=True, exist_ok=True)
                with log.open("ab") as file:
                    os.dup2(file.fileno(), 1)
                    os.dup2(file.fileno(), 2)
            name, config = cloudpickle.loads(pickled)
            _add_nice(kind_of(name).nice)
            peers = make_peers(config, self._stop, lambda x: RayPeer(x, self._stop), AHEAD, REAL)
            self._node = make_node(name, config, peers)
            self._made.set()
            self._node.run()
        except BaseException:  # sys.exit() too
            text = traceback.format_exc()
            print(text, flush=True)
            return text
        return ""

    @ray.method(concurrency_group="calls")
    def call(self, method: str, *arguments: Any) -> tuple[Any, str | None]:
        """What a method of the node returns; or its traceback, "" before the node is made."""
        if not self._made.wait(_MAKING_SECONDS):
            return None, ""
        try:
            return getattr(self._node, method)(*arguments), None
        except Exception:  # Ray's own tracebacks have colours
            return None, traceback.format_exc()

    def stop(self) -> None:
        """Sets the node's stop event."""
        self._stop.set()


class RayPeer(RemotePeer):
    """A node in an actor of Ray."""

    _actor: Any = None  # its handle; None until the next call looks for it

    def _send(self, method: str, *arguments: Any) -> Any:
        try:
            self._actor = self._actor or ray.get_actor(self.name)
            return self._actor.call.remote(method, *arguments)
        except (ValueError, ray.exceptions.RayActorError):  # no actor has the name
            self._actor = None
            return None

    def _read(self, sent: Any, timeout: float) -> Any:
        if sent is None:
            raise PeerLost(f"{self.title} cannot be reached.")
        try:
            answer, failure = ray.get(sent, timeout=timeout)
        except ray.exceptions.GetTimeoutError:
            raise TimeoutError(f"{self.title} gave no answer for {timeout} s.") from None
        except ray.exceptions.RayError as error:
            self._actor = None
            raise PeerLost(f"{self.title} died before it answered.") from error
        if failure is None:
            return answer
        if failure:
            raise RuntimeError(f"{self.title} refused a call: {failure}")
        raise Starting(f"{self.title} is starting.")


def _add_nice(nice: int) -> None:
    """Lowers the priority of this process, whose other threads Ray has started already."""
    if not os.path.isdir("/proc/self/task"):
        os.nice(nice)
        return
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # it may end
            now = os.getpriority(os.PRIO_PROCESS, int(thread))
            os.setpriority(os.PRIO_PROCESS, int(thread), now + nice)
