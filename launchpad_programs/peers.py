"""What a node has of its program: the other nodes, and its side of the replay. An engine makes it.

A node is made in its own process by the factory of its kind (see `kinds`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..datatypes import EnvironmentSpec, SequenceSpec
from ..replay.interface import Replay, Writer
from ..runtime.stop import StopEvent
from .node import Node

if TYPE_CHECKING:
    from .config import ProgramConfig


class Caller(Protocol):
    """Another node, as a node sees it: the half of a `Peer` that waits."""

    def call(self, method: str, *arguments: Any) -> Any:
        """As `Peer.call`."""
        ...


class KeptReplay(Protocol):
    """The states of a replay that belong to the learner's snapshots."""

    def keep(self, steps: int, /) -> None:
        """Keeps the replay's state for the snapshot at `steps`, which is saved next."""
        ...

    def prune(self, steps: list[int], /) -> None:
        """Removes the states of all snapshots but those at `steps`."""
        ...


class Peers(Protocol):
    """How one node reaches the others, which are named LABEL/INDEX: "counter/0", "learner/0"."""

    def peer(self, name: str) -> Caller:
        """A node whose calls are repeated until they are answered, also while it is restarted.

        A call is made at least once, even if the node's stop event is set: nodes that end last
        answer those that save at their end. It raises `Stopped` if the event is set and there was
        no answer.
        """
        ...

    def once(self, name: str) -> Caller:
        """A node whose `call` is one attempt of about a second, which may raise anything.

        For callers that can go on without an answer.
        """
        ...

    def writer(
        self, spec: EnvironmentSpec, sequence: SequenceSpec, environments: Sequence[int]
    ) -> Writer:
        """A writer of the rows of some environments of the run."""
        ...

    def replay(
        self, spec: EnvironmentSpec, sequence: SequenceSpec
    ) -> tuple[Replay, KeptReplay | None]:
        """The learner's side of the replay, and where its states are kept.

        None if `Replay.state` has all of it.
        """
        ...


class MakeNode(Protocol):
    """The factory of a kind of nodes."""

    def __call__(
        self, config: "ProgramConfig", index: int, peers: Peers, *, stop: StopEvent
    ) -> Node:
        """Makes node number `index` of its kind."""
        ...
