"""The learner's side of a `ReplayNode`."""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..datatypes import EnvironmentSpec, ReplayConfig, SequenceSpec
from .interface import Draw, PeerLost, ReplayStatus
from .local import LocalReplay
from .packing import PackedDraw, SequencePacking
from .peer import Answer, Peer, check_greeting
from .rows import check_stored_as, sample_shapes, stored_as
from .selectors import check_priorities

_DUE_SECONDS = 1.0  # for which the node waits for a call to be due
_ANSWER_SECONDS = 1.0  # for the answer to a draw that is not made ahead
_STATUS_SECONDS = 0.5
# Draws of a request, and their bytes: where draws are small, the call costs more than the draw.
_DRAWS_EACH, REQUEST_BYTES = 4, 2**20


class _Keys(NamedTuple):
    """Identifies a draw of the node."""

    restarts: int
    number: int
    local: np.ndarray  # keys of the `LocalReplay`


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
    ):
        """Waits for the `ReplayNode`; `ahead` is the number of requests before draws are needed.

        Other arguments are as in its `LocalReplay`; ValueError if its rows have another layout.
        """
        self._peer, self._sequence, self._config, self._ahead = peer, sequence, config, ahead
        self.shapes = sample_shapes(environment_spec, sequence, config, num_envs=num_envs)
        self._packing = SequencePacking(environment_spec, sequence)
        check_greeting(peer, self._packing, num_envs)
        size = self._packing.draw_bytes(config.draw_size)
        self._count = max(1, min(_DRAWS_EACH, REQUEST_BYTES // size)) if ahead else 1
        self._requests: deque[_Request] = deque()  # the next one first
        self._arrived: deque[PackedDraw] = deque()
        self._priorities: list[tuple[int, np.ndarray]] = []  # of draws, not sent
        self._status: ReplayStatus | None = None
        self._status_until = 0.0
        self._updates = 0  # of the learner's state, with those of all draws
        self._restarts = self._number = -1  # until `_begin`

    def sample(self, timeout: float = 0.0) -> Draw | None:
        """The next draw, if it arrives in time; Stopped or WaitTimeout if the node stays away."""
        started = time.monotonic()
        deadline = started + timeout
        patience = deadline if self._ahead else max(deadline, started + _ANSWER_SECONDS)
        while True:
            if self._restarts < 0:
                self._begin()
            if self._arrived:
                draw = self._arrived.popleft()
                self._updates += draw.updates
                self._request(self._ahead, deadline)
                restarts, number = draw.header[3:5].tolist()
                keys = _Keys(restarts, number, draw.keys)
                return Draw(keys, self._packing.sample(draw), draw.updates)
            self._request(max(1, self._ahead), deadline)
            try:
                data = self._requests[0].answer.result(max(0.0, patience - time.monotonic()))
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
            if time.monotonic() >= deadline:
                return None

    def set_priorities(self, keys: _Keys, priorities: np.ndarray) -> None:
        """Sends priorities with the next request of a draw; of draws before a restart, none."""
        priorities = check_priorities(priorities, keys.local.shape[1])
        if keys.restarts == self._restarts:
            self._priorities.append((keys.number, priorities))

    def metrics(self, keys: _Keys) -> dict[str, float]:
        """See `LocalReplay`."""
        return LocalReplay.metrics(keys.local)

    def status(self) -> ReplayStatus:
        """The node's status, at most half a second old if draws are made ahead."""
        now = time.monotonic()
        if self._status is None or now >= self._status_until:
            self._status = ReplayStatus(*self._peer.call("status"))
            self._status_until = now + _STATUS_SECONDS * bool(self._ahead)
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
        """Begins to draw: the number is that of the first request."""
        self._restarts, self._number = self._peer.call("begin", self._updates)
        self._requests.clear()
        self._arrived.clear()
        self._priorities = []

    def _request(self, count: int, deadline: float) -> None:
        while len(self._requests) < count:
            self._requests.append(self._send(len(self._requests), deadline))

    def _send(self, index: int, deadline: float) -> _Request:
        """Requests the next draw, or a later one."""
        wait = _DUE_SECONDS
        if not self._ahead:
            wait = min(wait, max(0.0, deadline - time.monotonic()))
        priorities, self._priorities = self._priorities, []
        number = self._number + index
        answer = self._peer.send("draw", self._restarts, number, wait, priorities, self._count)
        return _Request(answer, priorities)
