"""What a node has of its program: the other nodes, and its side of the replay. An engine makes it.

A node is made in its own process by the factory of its kind (see `kinds`).
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..datatypes import EnvironmentSpec, SequenceSpec
from ..replay.interface import PeerLost, Replay, Stopped, WaitTimeout, Writer
from ..replay.node_writer import NodeWriter
from ..replay.remote import RemoteReplay
from ..training.stop import StopEvent
from .config import ProgramConfig

_PAUSE_SECONDS = 0.1  # before a node that is not there is called again


class KeptReplay(Protocol):
    """The states of a replay that belong to the learner's snapshots."""

    def keep(self, steps: int, /) -> None:
        """Keeps the replay's state for the snapshot at `steps`, which is saved next."""
        ...

    def prune(self, steps: list[int], /) -> None:
        """Removes the states of all snapshots but those at `steps`."""
        ...


class Peers:
    """How one node reaches the others, which are named LABEL/INDEX: "counter/0", "learner/0".

    Attributes:
      peer: gives a `replay.peer.Peer` for a name. Its calls are repeated until they are answered,
        also while the node is restarted. A call is made at least once, even if the stop event of
        the caller is set: nodes that end last answer those that save at their end. It raises
        `Stopped` if the event is set and there was no answer.
    """

    def __init__(
        self,
        config: ProgramConfig,
        stop: StopEvent,
        peer: Callable[[str], Any],
        *,
        ahead: int = 0,
    ):
        """Takes the program, the stop event of the node, `peer`, and draws requested ahead."""
        self.peer = peer
        self._config, self._stop, self._ahead = config, stop, ahead

    def writer(
        self, spec: EnvironmentSpec, sequence: SequenceSpec, environments: Sequence[int]
    ) -> Writer:
        """A writer of the rows of some environments of the run."""
        peer, stop = self.peer("replay/0"), self._stop.is_set
        return NodeWriter(peer, spec, sequence, environments=environments, stop=stop)

    def replay(
        self, spec: EnvironmentSpec, sequence: SequenceSpec
    ) -> tuple[Replay, KeptReplay | None]:
        """The learner's side of the replay, and where its states are kept.

        None if `Replay.state` has all of it.
        """
        run, peer = self._config.run, self.peer("replay/0")
        replay = RemoteReplay(
            peer, spec, sequence, run.replay, num_envs=run.num_envs, ahead=self._ahead
        )
        return replay, replay


class Starting(PeerLost):
    """The node is being made: it lives, and the call must be made again."""


def title_of(name: str) -> str:
    """A node in messages: "The learner", "actor/1"."""
    label, _, index = name.partition("/")
    return f"The {label.replace('_', ' ')}" if index == "0" else name


def until_answered(
    attempt: Callable[[], Any], title: str, stop: StopEvent, *, max_wait: float = 120.0
) -> Any:
    """The answer to a call, for which it is attempted again and again.

    Args:
      attempt: the answer. TimeoutError if there is none after about a second, PeerLost if the node
        is not there.
      title: of the other node, for messages.
      stop: when to give up.
      max_wait: seconds without a sign of life after which it is an error.

    Raises:
      Stopped: the program ended before there was an answer.
      WaitTimeout: there was none for too long.
    """
    started = time.monotonic()
    while True:
        pause = 0.0
        try:
            return attempt()
        except TimeoutError:
            pass
        except PeerLost as error:
            pause = _PAUSE_SECONDS
            if isinstance(error, Starting):
                started = time.monotonic()
        if stop.wait(pause) if pause else stop.is_set():
            raise Stopped(f"{title} gave no answer before the program ended.")
        waited = time.monotonic() - started
        if waited >= max_wait:
            raise WaitTimeout(f"{title} gave no answer for {waited:.0f} s.")
