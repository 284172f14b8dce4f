"""The actors' side of a `ReplayNode`."""

from collections.abc import Callable, Sequence

from ..datatypes import EnvironmentSpec, Row, SequenceSpec
from .peer import Peer
from .waiting import never


class NodeWriter:
    """A `Writer` that sends chunks of rows, in order, one call at a time."""

    def __init__(
        self,
        peer: Peer,
        environment_spec: EnvironmentSpec,
        sequence: SequenceSpec,
        *,
        environments: Sequence[int],
        chunk_rows: int = 16,
        chunk_seconds: float = 0.05,
        max_chunks: int = 4,
        stop: Callable[[], bool] = never,
        max_wait: float = 600.0,
    ):
        """Greets the node, which must keep rows of the same layout."""
        raise NotImplementedError

    def write(self, rows: Row, new_priority: float = 1.0) -> None:
        """Writes one row of each environment; waits while `max_chunks` are not taken in."""
        raise NotImplementedError

    def close(self) -> None:
        """Sends what is left, for a few seconds at most."""
        raise NotImplementedError
