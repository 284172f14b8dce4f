"""A `ReplayNode` as other nodes use it: the actors' side, and the learner's."""

import contextlib
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..datatypes import EnvironmentSpec, ReplayConfig, Row, SequenceSpec
from .interface import REAL, Answer, Clock, Draw, Peer, PeerLost, ReplayStatus, Stopped, WaitTimeout
from .local import LocalReplay
from .packing import PackedDraw, SequencePacking
from .rows import check_stored_as, sample_shapes, stored_as
from .selectors import check_priorities

CHUNK_ROWS = 32  # of each environment, which are sent at once
MAX_CHUNKS = 2  # that are not taken in: `write` waits
_CHUNK_SECONDS = 0.05  # after these, the next `write` sends fewer rows
_HOLD_SECONDS = 1.0  # for which the node holds a chunk back, or waits for a call to be due
_POLL_SECONDS = 0.5  # between the checks of a wait for whether it must end
_PAUSE_SECONDS = 0.1  # before a node that died is called again
_CLOSE_SECONDS = 3.0
_ANSWER_SECONDS = 1.0  # for the answer to a draw that is not made ahead
_STATUS_SECONDS = 0.5
# Draws of a request, and their bytes: where draws are small, the call costs more than the draw.
_DRAWS_EACH, REQUEST_BYTES = 4, 2**20


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
        stop: Callable[[], bool],
        max_wait: float = 600.0,
        clock: Clock = REAL,
    ):
        """Asks the `ReplayNode` for its layout, and waits for it if it is not there yet.

        Environments are numbered from 0 among all of the program. `stop` is called twice a second
        while rows wait for the node, for `max_wait` seconds at most. ValueError if the node's rows
        have another layout.
        """
        self._peer, self._environments = peer, list(environments)
        self._packing = SequencePacking(environment_spec, sequence)
        self._stop, self._max_wait, self._clock = stop, max_wait, clock
        _check_layout(peer, self._packing)
        self._writer = clock.time_ns()
        self._number = 0  # of the first row that was sent
        self._rows: list[np.ndarray] = []  # not sent: a row of each environment
        self._sent: Any = ()  # not taken in: uint8 [T, E, row_bytes]
        self._answer: Answer | None = None  # to it
        self._sent_at = self._clock.monotonic()

    def write(self, rows: Row, new_priority: float = 1.0) -> None:
        """Writes rows, waiting while too many are not taken in; ignores the priority.

        ValueError if they do not match the spec or the environments; Stopped or WaitTimeout if the
        node took nothing until `stop()`, or for `max_wait` seconds.
        """
        packed = np.concatenate(self._packing.pack(rows), axis=-1)
        if len(packed) != len(self._environments):
            raise ValueError(
                f"rows must be of {len(self._environments)} environments, got {len(packed)}."
            )
        self._rows.append(packed)
        late = self._clock.monotonic() - self._sent_at >= _CHUNK_SECONDS
        if not late and len(self._rows) % CHUNK_ROWS:
            return
        started = self._clock.monotonic()
        while not self._is_taken(0.0):
            if len(self._rows) + len(self._sent) < MAX_CHUNKS * CHUNK_ROWS:
                return
            if self._stop():
                raise Stopped("Stopped while waiting for the replay to accept rows.")
            waited = self._clock.monotonic() - started
            if waited >= self._max_wait:
                raise WaitTimeout(
                    f"Waited {waited:.0f} s for the replay to accept rows of environments "
                    f"{self._environments[0]} to {self._environments[-1]}."
                )
            self._is_taken(min(self._clock.monotonic() + _POLL_SECONDS, started + self._max_wait))
        self._next_chunk()
        self._is_taken(0.0)  # known at once where nodes share a process

    def close(self) -> None:
        """Sends the rest in a few seconds; rows that the node holds back at a stop are lost."""
        deadline = self._clock.monotonic() + _CLOSE_SECONDS
        with contextlib.suppress(Stopped):
            while self._is_taken(deadline) and self._rows:
                self._next_chunk()

    def _next_chunk(self) -> None:
        self._sent, self._rows = np.stack(self._rows), []
        self._sent_at = self._clock.monotonic()

    def _is_taken(self, deadline: float) -> bool:
        """Whether the chunk that was sent is taken in; sends it, again if need be."""
        while len(self._sent):
            try:
                if self._answer is None:
                    chunk = self._number, self._environments, self._sent
                    hold = 0.0 if self._stop() else _HOLD_SECONDS
                    self._answer = self._peer.send("add", self._writer, *chunk, hold)
                if self._answer.result(max(0.0, deadline - self._clock.monotonic())):
                    self._number, self._sent = self._number + len(self._sent), ()
            except TimeoutError:
                return False
            except PeerLost:
                self._clock.sleep(min(_PAUSE_SECONDS, max(0.0, deadline - self._clock.monotonic())))
            self._answer = None
            if len(self._sent) and (self._clock.monotonic() >= deadline or self._stop()):
                return False
        return True


class _Request(NamedTuple):
    answer: Answer
    priorities: list[tuple[int, np.ndarray]]  # sent with it


class RemoteReplay:
    """A `Replay` in another node, with some draws requested ahead.

    With a `DirectPeer`, 0 ahead and calls of one thread it equals the `LocalReplay` draw by draw.
    """

    metric_names: tuple[str, ...] = LocalReplay.metric_names

    def __init__(
        self,
        peer: Peer,
        environment_spec: EnvironmentSpec,
        sequence: SequenceSpec,
        config: ReplayConfig,
        *,
        num_envs: int,
        ahead: int = 2,
        clock: Clock = REAL,
    ):
        """Waits for the `ReplayNode`; ValueError if its rows have another layout.

        `ahead` is the number of requests before draws are needed.
        """
        self._peer, self._sequence, self._config, self._ahead = peer, sequence, config, ahead
        self.shapes = sample_shapes(environment_spec, sequence, config, num_envs=num_envs)
        self._packing = SequencePacking(environment_spec, sequence)
        _check_layout(peer, self._packing)
        size = self._packing.draw_bytes(config.draw_size)
        self._count = max(1, min(_DRAWS_EACH, REQUEST_BYTES // size)) if ahead else 1
        self._requests: deque[_Request] = deque()  # the next one first
        self._arrived: deque[PackedDraw] = deque()
        self._priorities: list[tuple[int, np.ndarray]] = []  # of draws, not sent
        self._status: ReplayStatus  # asked for again after
        self._clock, self._status_until = clock, -math.inf
        self._updates = 0  # in the learner's state, once all draws are used
        self._restarts = self._number = -1  # until `_begin`

    def sample(self, timeout: float = 0.0) -> Draw | None:
        """The next draw, if it arrives in time; Stopped or WaitTimeout if the node stays away."""
        started = self._clock.monotonic()
        deadline = started + timeout
        patience = deadline if self._ahead else max(deadline, started + _ANSWER_SECONDS)
        while True:
            if self._restarts < 0:
                self._begin()
            if self._arrived:
                draw = self._arrived.popleft()
                self._updates += draw.updates
                self._request(self._ahead, deadline)
                return Draw(draw, self._packing.sample(draw), draw.updates)
            self._request(max(1, self._ahead), deadline)
            try:
                data = self._requests[0].answer.result(max(0.0, patience - self._clock.monotonic()))
            except TimeoutError:
                return None
            except PeerLost:
                self._begin()
                continue
            self._requests.popleft()
            if data is not None:
                self._number += 1
                self._arrived.extend(self._packing.read_draws(data))
                if len(self._arrived[0].weights):
                    continue
                self._begin()  # the node was restarted
            elif self._ahead:
                self._requests.appendleft(self._send(0, deadline))
            if self._clock.monotonic() >= deadline:
                return None

    def set_priorities(self, keys: PackedDraw, priorities: np.ndarray) -> None:
        """Sends priorities with the next request of a draw; of draws before a restart, none."""
        priorities = check_priorities(priorities, keys.keys.shape[1])
        restarts, number = keys.header[3:5].tolist()
        if restarts == self._restarts:
            self._priorities.append((number, priorities))

    def metrics(self, keys: PackedDraw) -> dict[str, float]:
        """See `LocalReplay`."""
        return LocalReplay.metrics(keys.keys)

    def status(self) -> ReplayStatus:
        """The node's status, at most half a second old if draws are made ahead."""
        if self._clock.monotonic() >= self._status_until:
            self._status = ReplayStatus(*self._peer.call("status"))
            self._status_until = self._clock.monotonic() + _STATUS_SECONDS * bool(self._ahead)
        return self._status

    def state(self) -> dict[str, Any]:
        """How sequences are cut and selected; the node keeps the rows (`keep`)."""
        return stored_as(self._sequence, self._config)

    def restore(self, state: Mapping[str, Any], counters: Mapping[str, int]) -> None:
        """Checks a state; see `Replay`. Rows that are in it go to the node, if it has none.

        A node restores by itself what it kept; after a run with Reverb it is filled again.
        """
        check_stored_as(state, self._sequence, self._config)
        self._updates = counters["updates"]
        if "heads" in state and not ReplayStatus(*self._peer.call("status")).num_rows:
            self._peer.call("restore", state, dict(counters))

    def keep(self, steps: int) -> None:
        """Has the node keep its state for a snapshot, after all priorities sent so far are set."""
        sent = [priorities for request in self._requests for priorities in request.priorities]
        self._peer.call("set_priorities", self._restarts, [*sent, *self._priorities])
        self._priorities = []
        self._peer.call("keep", steps)

    def prune(self, steps: Sequence[int]) -> None:
        """Has the node remove the states of all other snapshots."""
        self._peer.call("prune", list(steps))

    def close(self) -> None:
        """Leaves the node as it is."""

    def _begin(self) -> None:
        self._restarts, self._number = self._peer.call("begin", self._updates)
        self._requests.clear()
        self._arrived.clear()
        self._priorities = []

    def _request(self, count: int, deadline: float) -> None:
        while len(self._requests) < count:
            self._requests.append(self._send(len(self._requests), deadline))

    def _send(self, index: int, deadline: float) -> _Request:
        """Requests the next draw, or a later one."""
        left = max(0.0, deadline - self._clock.monotonic())
        wait = _HOLD_SECONDS if self._ahead else min(_HOLD_SECONDS, left)
        priorities, self._priorities = self._priorities, []
        number = self._number + index
        answer = self._peer.send("draw", self._restarts, number, wait, priorities, self._count)
        return _Request(answer, priorities)


def _check_layout(peer: Peer, packing: SequencePacking) -> None:
    """Refuses (ValueError) a `ReplayNode` with rows of another layout."""
    layout = peer.call("layout")
    if layout != packing.layout:
        raise ValueError(
            f"The replay's rows have the layout {layout}, those here {packing.layout}: all nodes "
            "need the same agent, environment, config and version."
        )
