"""A node of a program, and what it has of the others, from which an engine keeps it apart."""

import abc
import contextlib
import importlib
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..datatypes import EnvironmentSpec, SequenceSpec
from ..replay.interface import Answer, PeerLost, Replay, Stopped, WaitTimeout, Writer
from ..replay.remote import NodeWriter, RemoteReplay
from ..training.process import StopEvent
from .config import ProgramConfig
from .kinds import NodeSpec, kind_of

# A save may take so long: of a replay of 100 GB, on a slow disk. Whoever waits for a node that may
# be saving waits as long.
SAVE_SECONDS = 3600.0
_SILENT_SECONDS = 120.0  # without an answer of another node, or of one that is not there
_ANSWER_SECONDS = 1.0  # between looks whether the program stops
_PAUSE_SECONDS = 0.1  # before a node that is not there is called again
_POLL_SECONDS = 0.1


class Peers:
    """How one node reaches the others: `peer("learner/0")` is a `replay.Peer`.

    All waits end with `stop`, the stop event of the node. The learner requests draws `ahead`.
    """

    def __init__(
        self,
        config: ProgramConfig,
        stop: StopEvent,
        peer: Callable[[str], Any],
        *,
        ahead: int = 0,
    ):
        self.peer, self.stop = peer, stop
        self._config, self._ahead = config, ahead

    def writer(
        self, spec: EnvironmentSpec, sequence: SequenceSpec, environments: Sequence[int]
    ) -> Writer:
        """A writer of the rows of some environments of the run."""
        peer, stop = self.peer("replay/0"), self.stop.is_set
        return NodeWriter(
            peer, spec, sequence, environments=environments, stop=stop, max_wait=SAVE_SECONDS
        )

    def replay(self, spec: EnvironmentSpec, sequence: SequenceSpec) -> tuple[Replay, Any]:
        """The learner's side of the replay, and what keeps the rest of its state, or None.

        That has `keep(steps)`, called before the snapshot at `steps` is saved, and `prune(steps)`,
        which removes the states of all snapshots but those at `steps`.
        """
        run, peer = self._config.run, self.peer("replay/0")
        replay = RemoteReplay(
            peer, spec, sequence, run.replay, num_envs=run.num_envs, ahead=self._ahead
        )
        return replay, replay


class Node:
    """A node is run by one thread of its own; its public methods may be called by other nodes."""

    def __init__(self, peers: Peers):
        self._stop = peers.stop

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
                    self._stop.wait(_POLL_SECONDS)
        self.close()


def make_node(spec: NodeSpec, config: ProgramConfig, peers: Peers) -> Node:
    """Makes a node, in its own process or thread, where its module's make_LABEL is imported."""
    kind = spec.kind
    module = importlib.import_module(f".{kind.module or kind.label}", __package__)
    factory: Callable[[ProgramConfig, int, Peers], Node] = getattr(module, f"make_{kind.label}")
    return factory(config, spec.index, peers)


class CounterClient:
    """Calls the counter, its `peer`, in a node's name. Repeated calls count as one."""

    def __init__(self, config: ProgramConfig, name: str, peers: Peers):
        self.peer, self._name, self._restarts = peers.peer("counter/0"), name, config.restarts
        self._granted = self._taken = 0
        self.total = 0  # steps counted since the start
        self._numbers = itertools.count()
        self._asked_at = time.monotonic()

    def report(self, taken: int | None = None, **values: Any) -> dict[str, Any]:
        """As `Counter.report`."""
        call = (self._restarts, next(self._numbers))
        answer: dict[str, Any] = self.peer.call("report", self._name, call, values, taken)
        return answer

    def is_granted(self, values: Callable[[], dict[str, Any]]) -> bool:
        """Whether a step may be taken; reports values, and asks for more, if none is left."""
        if self._taken >= self._granted:
            now, taken = time.monotonic(), self._taken
            rate = taken / max(now - self._asked_at, 1e-6)
            self._asked_at, self._taken = now, 0
            answer = self.report(taken, **values(), steps_per_second=rate)
            self._granted = answer["granted"]
        return self._taken < self._granted

    def count(self, taken: int) -> None:
        """Counts steps that were taken."""
        self._taken += taken
        self.total += taken


class Starting(PeerLost):
    """The node is being made: it lives, and the call must be made again."""


class RemoteAnswer(NamedTuple):
    """A `replay.interface.Answer`."""

    result: Callable[[float], Any]


class RemotePeer(abc.ABC):
    """A node in another process; a `replay.Peer`, which calls it until `stop` is set.

    A call is repeated until it is answered, also while the node is restarted. It is made at least
    once, even if the stop event is set. A node that ends last may be saving: its answer is waited
    for as long as it lives, even if the stop event is set.
    """

    def __init__(self, name: str, stop: StopEvent):
        label, _, index = name.partition("/")
        self.name, self.title = name, f"The {label.replace('_', ' ')}" if index == "0" else name
        self._stop = stop

    @abc.abstractmethod
    def send(self, method: str, *arguments: Any) -> Answer:
        """As `Peer.send`."""

    def call(self, method: str, *arguments: Any) -> Any:
        """As `Peer.call`; a call is made again only if the node was lost."""
        answer: Answer | None = None
        sent = seen = time.monotonic()
        while True:
            try:
                if answer is None:
                    answer, sent = self.send(method, *arguments), time.monotonic()
                return answer.result(_ANSWER_SECONDS)
            except TimeoutError:
                is_busy, pause = kind_of(self.name).ends_last, 0.0
            except PeerLost as error:
                answer, is_busy, pause = None, False, _PAUSE_SECONDS
                if isinstance(error, Starting):
                    seen = time.monotonic()
            if not is_busy and (self._stop.wait(pause) if pause else self._stop.is_set()):
                raise Stopped(f"{self.title} gave no answer before the program ended.")
            if is_busy:
                seen = time.monotonic()
            waited = time.monotonic() - (sent if is_busy else seen)
            if waited >= (SAVE_SECONDS if is_busy else _SILENT_SECONDS):
                raise WaitTimeout(f"{self.title} gave no answer for {waited:.0f} s.")
