"""What a node has of its program: the other nodes, and its side of the replay. An engine makes it.

A node is made in its own process by the factory of its kind (see `kinds`).
"""

import abc
import time
from collections.abc import Callable, Sequence
from typing import Any

from ..datatypes import EnvironmentSpec, SequenceSpec
from ..replay.interface import PeerLost, Replay, Stopped, WaitTimeout, Writer
from ..replay.node_writer import NodeWriter
from ..replay.peer import Answer
from ..replay.remote import RemoteReplay
from ..training.stop import StopEvent
from .config import ProgramConfig

# A save may take so long: of a replay of 100 GB, on a slow disk. Whoever waits for a node that may
# be saving waits as long.
SAVE_SECONDS = 3600.0
_SILENT_SECONDS = 120.0  # without an answer of another node, or of one that is not there
_ANSWER_SECONDS = 1.0  # between looks whether the program stops
_PAUSE_SECONDS = 0.1  # before a node that is not there is called again


class Peers:
    """How one node reaches the others, which are named LABEL/INDEX: "counter/0", "learner/0".

    Attributes:
      peer: gives a `replay.peer.Peer` for a name, see `RemotePeer`. The learner requests draws
        `ahead`; all waits end with the stop event of the node.
    """

    def __init__(
        self,
        config: ProgramConfig,
        stop: StopEvent,
        peer: Callable[[str], Any],
        *,
        ahead: int = 0,
    ):
        self.peer = peer
        self._config, self._stop, self._ahead = config, stop, ahead

    def writer(
        self, spec: EnvironmentSpec, sequence: SequenceSpec, environments: Sequence[int]
    ) -> Writer:
        """A writer of the rows of some environments of the run."""
        peer, stop = self.peer("replay/0"), self._stop.is_set
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


class Starting(PeerLost):
    """The node is being made: it lives, and the call must be made again."""


class RemotePeer(abc.ABC):
    """A node in another process; a `replay.peer.Peer`.

    A call is repeated until it is answered, also while the node is restarted. It is made at least
    once, even if the stop event is set.
    """

    def __init__(self, name: str, stop: StopEvent, *, ends_last: bool):
        """Calls the node `name` until `stop` is set.

        With `ends_last` the other node lives until all those have ended that save: it may be
        saving, so its answer is waited for as long as it lives, even if the stop event is set.
        """
        label, _, index = name.partition("/")
        self.title = f"The {label.replace('_', ' ')}" if index == "0" else name
        self._stop, self._ends_last = stop, ends_last

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
                is_busy, pause = self._ends_last, 0.0
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
