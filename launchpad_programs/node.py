"""A node of a program, its calls of the others, and what it is to the launcher once it runs."""

import abc
import contextlib
import importlib
import itertools
import types
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from ..datatypes import EnvironmentSpec, SequenceSpec
from ..replay.interface import REAL, Answer, Clock, PeerLost, Replay, Stopped, WaitTimeout, Writer
from ..replay.remote import NodeWriter, RemoteReplay
from ..training.process import StopEvent
from .config import ProgramConfig
from .kinds import kind_of

# A save may take so long: of a replay of 100 GB, on a slow disk. Whoever waits for a node that may
# be saving waits as long.
SAVE_SECONDS = 3600.0
_SILENT_SECONDS = 120.0  # without an answer of another node, or of one that is not there
_ANSWER_SECONDS = 1.0  # between looks whether the program stops
_PAUSE_SECONDS = 0.1  # before a node that is not there is called again
POLL_SECONDS = 0.1  # where nothing wakes a wait
AHEAD = 2  # requests of draws by the learner, while it updates


class Peers(NamedTuple):
    """How one node reaches the others. All waits end with `stop`, the node's stop event."""

    stop: StopEvent
    peer: Callable[[str], Any]  # from the name of a node to a `replay.Peer`
    # Of the rows of some environments of the run.
    writer: Callable[[EnvironmentSpec, SequenceSpec, Sequence[int]], Writer]
    # The learner's side, and what keeps its state for snapshots: `keep(steps)` comes before the one
    # at `steps` is saved, `prune(steps)` removes the states of all snapshots but those.
    replay: Callable[[EnvironmentSpec, SequenceSpec], tuple[Replay, Any]]
    clock: Clock


def make_peers(
    config: ProgramConfig, stop: StopEvent, peer: Callable[[str], Any], ahead: int, clock: Clock
) -> Peers:
    """The peers of a node where the replay is a node too; the learner requests draws `ahead`."""

    def writer(spec: EnvironmentSpec, sequence: SequenceSpec, numbers: Sequence[int]) -> Writer:
        waits: Any = {"stop": stop.is_set, "max_wait": SAVE_SECONDS, "clock": clock}
        return NodeWriter(peer("replay/0"), spec, sequence, environments=numbers, **waits)

    def replay(spec: EnvironmentSpec, sequence: SequenceSpec) -> tuple[Replay, Any]:
        options: Any = {"num_envs": config.run.num_envs, "ahead": ahead, "clock": clock}
        found = RemoteReplay(peer("replay/0"), spec, sequence, config.run.replay, **options)
        return found, found

    return Peers(stop, peer, writer, replay, clock)


class Node:
    """A node is run by one thread of its own; its public methods may be called by other nodes."""

    def __init__(self, peers: Peers):
        self._stop, self._clock = peers.stop, peers.clock

    def start(self) -> None:
        """Prepares its work; raises `Stopped` if the program ends before."""

    def step(self) -> bool:
        """Works for about a second, or until it is stopped; whether there was anything to do."""
        return False

    def close(self) -> None:
        """Saves what it must, and closes its parts."""

    def run(self) -> None:
        """Starts, steps until the program ends, and closes, unless an error ends it."""
        with contextlib.suppress(Stopped):
            self.start()
            while not self._stop.is_set():
                if not self.step():
                    self._stop.wait(POLL_SECONDS)
        self.close()


def make_node(name: str, config: ProgramConfig, peers: Peers) -> Node:
    """Makes a node, in its own process or thread, where its module's make_LABEL is imported."""
    kind, index = kind_of(name), int(name.partition("/")[2])
    module = importlib.import_module(f".{kind.module or kind.label}", __package__)
    factory: Callable[[ProgramConfig, int, Peers], Node] = getattr(module, f"make_{kind.label}")
    with contextlib.suppress(Stopped):
        return factory(config, index, peers)
    return Node(peers)  # which ends at once


class CounterClient:
    """Calls the counter, its `peer`, in a node's name. Repeated calls count as one."""

    def __init__(self, config: ProgramConfig, name: str, peers: Peers):
        self.peer, self._name, self._restarts = peers.peer("counter/0"), name, config.restarts
        self._granted = self._taken = 0
        self.total, self.phase = 0, ""  # steps since the start; of the run, as answered last
        self._numbers = itertools.count()
        self._clock, self._asked_at = peers.clock, peers.clock.monotonic()

    def report(self, taken: int | None = None, **values: Any) -> dict[str, Any]:
        """As `Counter.report`."""
        call = (self._restarts, next(self._numbers))
        answer: dict[str, Any] = self.peer.call("report", self._name, call, values, taken)
        self.phase = answer["phase"]
        return answer

    def is_granted(self, values: Callable[[], dict[str, Any]]) -> bool:
        """Whether a step may be taken; reports values, and asks for more, if none is left."""
        if self._taken >= self._granted:
            now, taken = self._clock.monotonic(), self._taken
            rate = taken / max(now - self._asked_at, 1e-6)
            self._asked_at, self._taken = now, 0
            self._granted = self.report(taken, **values(), steps_per_second=rate)["granted"]
        return self._taken < self._granted

    def count(self, taken: int) -> None:
        """Counts steps that were taken."""
        self._taken += taken
        self.total += taken


class Starting(PeerLost):
    """The node is being made: it lives, and the call must be made again."""


class RemotePeer(abc.ABC):
    """A node in another process, as a `replay.Peer`.

    A call is made at least once, and repeated until it is answered, also while the node is
    restarted, or until `stop` is set. A node that ends last may be saving: its answer is waited for
    as long as it lives, even if the stop event is set.
    """

    def __init__(self, name: str, stop: StopEvent, clock: Clock = REAL):
        label, _, index = name.partition("/")
        self.name, self.title = name, f"The {label.replace('_', ' ')}" if index == "0" else name
        self._stop, self._clock = stop, clock

    @abc.abstractmethod
    def _send(self, method: str, *arguments: Any) -> Any:
        """What `_read` reads."""

    @abc.abstractmethod
    def _read(self, sent: Any, timeout: float) -> Any:
        """As `Answer.result`."""

    def send(self, method: str, *arguments: Any) -> Answer:
        """As `Peer.send`."""
        sent = self._send(method, *arguments)
        answer: Any = types.SimpleNamespace(result=lambda timeout: self._read(sent, timeout))
        return answer

    def call(self, method: str, *arguments: Any) -> Any:
        """As `Peer.call`; a call is made again only if the node was lost."""
        answer: Answer | None = None
        sent = seen = self._clock.monotonic()
        while True:
            try:
                if answer is None:
                    answer, sent = self.send(method, *arguments), self._clock.monotonic()
                return answer.result(_ANSWER_SECONDS)
            except TimeoutError:
                lives = is_busy = kind_of(self.name).ends_last
            except PeerLost as error:
                answer, is_busy, lives = None, False, isinstance(error, Starting)
            if not is_busy and self._stop.wait(_PAUSE_SECONDS if answer is None else 0.0):
                raise Stopped(f"{self.title} gave no answer before the program ended.")
            now = self._clock.monotonic()
            seen = now if lives else seen
            waited = now - (sent if is_busy else seen)
            if waited >= (SAVE_SECONDS if is_busy else _SILENT_SECONDS):
                raise WaitTimeout(f"{self.title} gave no answer for {waited:.0f} s.")


class EngineLost(Exception):  # noqa: N818 - an end of the program
    """What runs the nodes has ended, and every node with it."""


class RunningNode(NamedTuple):
    """A node that an engine has started."""

    name: str  # LABEL/INDEX
    ended: Callable[[], str]  # how: "done" if without an error, "" while it runs
    stop: Callable[[], None]  # requests its end
    kill: Callable[[], None]
    traceback: Callable[[], str]  # of its error, or the end of its output
    # Starts it again, if the engine does; whether it did.
    revive: Callable[[], bool] = lambda: False


# Starts every node of a program. What processes print goes to `logs/LABEL/INDEX` of the run.
Engine: TypeAlias = Callable[[ProgramConfig], Sequence[RunningNode]]
