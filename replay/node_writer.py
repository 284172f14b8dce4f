"""The actors' side of a `ReplayNode`."""

import contextlib
import time
from collections.abc import Callable, Sequence

import numpy as np

from ..datatypes import EnvironmentSpec, Row, SequenceSpec
from .interface import PeerLost, Stopped, WaitTimeout, never
from .packing import SequencePacking
from .peer import Answer, Peer, check_greeting

CHUNK_ROWS = 32  # of each environment, which are sent at once
MAX_CHUNKS = 2  # that are not taken in: `write` waits
_CHUNK_SECONDS = 0.05  # after these, the next `write` sends fewer rows
_HOLD_SECONDS = 1.0  # for which the node holds a chunk back before it answers
_POLL_SECONDS = 0.5  # between the checks of a wait for whether it must end
_PAUSE_SECONDS = 0.1  # before a node that died is called again
_CLOSE_SECONDS = 3.0


class NodeWriter:
    """A `Writer` that sends chunks of rows in their order, one call at a time.

    Rows that are written while a call is not answered travel together in the next one. A chunk
    that the node holds back, or that was on its way to a node that died, is sent again.
    """

    def __init__(
        self,
        peer: Peer,
        environment_spec: EnvironmentSpec,
        sequence: SequenceSpec,
        *,
        environments: Sequence[int],
        stop: Callable[[], bool] = never,
        max_wait: float = 600.0,
    ):
        """Greets the node, and waits for it if it is not there yet.

        Args:
          peer: a `ReplayNode`.
          environment_spec: of one environment.
          sequence: of the node's replay.
          environments: their numbers among all environments of the program, 0 ...
          stop: called twice a second while the writer waits.
          max_wait: seconds that rows may wait for the node.

        ValueError if the node's rows have another layout, or it has not all these environments.
        """
        self._peer, self._environments = peer, list(environments)
        self._packing = SequencePacking(environment_spec, sequence)
        self._stop, self._max_wait = stop, max_wait
        check_greeting(peer, self._packing, max(self._environments) + 1)
        self._writer = time.time_ns()
        self._number = 0  # of the first row that was sent
        self._rows: list[np.ndarray] = []  # not sent: a row of each environment
        self._sent: np.ndarray | None = None  # not taken in: uint8 [T, E, row_bytes]
        self._answer: Answer | None = None  # to it
        self._sent_at = time.monotonic()

    def write(self, rows: Row, new_priority: float = 1.0) -> None:
        """Writes rows, waiting while too many are not taken in; ignores the priority.

        Raises:
          ValueError: rows do not match the spec or the number of environments.
          Stopped, WaitTimeout: the node took nothing until `stop()`, or for `max_wait` seconds.
        """
        packed = np.concatenate(self._packing.pack(rows), axis=-1)
        if len(packed) != len(self._environments):
            raise ValueError(
                f"rows must be of {len(self._environments)} environments, got {len(packed)}."
            )
        self._rows.append(packed)
        late = time.monotonic() - self._sent_at >= _CHUNK_SECONDS
        if late or len(self._rows) % CHUNK_ROWS == 0:
            self._send()

    def close(self) -> None:
        """Sends the rest in a few seconds; rows that the node holds back at a stop are lost."""
        deadline = time.monotonic() + _CLOSE_SECONDS
        with contextlib.suppress(Stopped):
            while self._is_taken(deadline) and self._rows:
                self._next_chunk()

    def _send(self) -> None:
        """Sends the rows if the chunk before was taken in; waits for that if there are too many."""
        started = time.monotonic()
        while not self._is_taken(0.0):
            in_flight = len(self._rows) + (0 if self._sent is None else len(self._sent))
            if in_flight < MAX_CHUNKS * CHUNK_ROWS:
                return
            if self._stop():
                raise Stopped("Stopped while waiting for the replay to take rows.")
            waited = time.monotonic() - started
            if waited >= self._max_wait:
                raise WaitTimeout(
                    f"Waited {waited:.0f} s for the replay to take rows of the environments "
                    f"{self._environments[0]} to {self._environments[-1]}."
                )
            self._is_taken(min(time.monotonic() + _POLL_SECONDS, started + self._max_wait))
        self._next_chunk()
        self._is_taken(0.0)  # known at once where nodes share a process

    def _next_chunk(self) -> None:
        self._sent, self._rows = np.stack(self._rows), []
        self._sent_at = time.monotonic()

    def _is_taken(self, deadline: float) -> bool:
        """Whether the chunk that was sent is taken in; sends it, again if need be."""
        while self._sent is not None:
            try:
                if self._answer is None:
                    chunk = self._number, self._environments, self._sent
                    hold = 0.0 if self._stop() else _HOLD_SECONDS
                    self._answer = self._peer.send("add", self._writer, *chunk, hold)
                if self._answer.result(max(0.0, deadline - time.monotonic())):
                    self._number, self._sent = self._number + len(self._sent), None
            except TimeoutError:
                return False
            except PeerLost:
                time.sleep(min(_PAUSE_SECONDS, max(0.0, deadline - time.monotonic())))
            self._answer = None
            if self._sent is not None and (time.monotonic() >= deadline or self._stop()):
                return False
        return True
