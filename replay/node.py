"""A replay that other nodes call: rows in, draws out, priorities back."""

import copy
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .interface import REAL, Clock
from .local import LocalReplay
from .packing import PackedDraw

_COUNTERS = ("steps", "updates", "learning_since")
_LATE = 16  # draws whose priorities may arrive before an older draw's


class ReplayNode:
    """A `LocalReplay` for the writers of actors (`NodeWriter`) and one learner (`RemoteReplay`).

    Rows: each writer has environments of its own, whose rows it sends together. Those that arrive
    twice are dropped. Where rows are missing, or a writer or the node has restarted, episodes are
    cut as by a time limit, and the next rows are stored as the first ones of episodes.

    Pace: while a call of updates is due that the learner has not drawn, no more than `max_lead`
    rows are added after the one that made it due; writers wait. Nor does a round begin before the
    newest sequences of the last one are drawn. A call that the learner waits for is drawn by the
    very row that makes it due. So with a learner that has asked for enough draws ahead, and with
    `max_lead` 0, all is as in one process.

    Calls may come from any thread. `add` and `draw` wait up to their timeouts, so others must be
    answered beside them: by a thread for each writer, and `ahead` + 2 for the learner.

    Attributes:
      local: the replay.
      changed: held while anything changes, and notified when waits may go on.
    """

    def __init__(self, local: LocalReplay, *, max_lead: int, restarts: int, clock: Clock = REAL):
        """Serves an empty replay; the lead, at least 0, is in rows."""
        self.local = local
        self._max_lead, self._restarts = max_lead, restarts
        self._packing = local.packing
        # The next row, by a writer's first environment and the writer, in the order of their
        # beginnings: calls of earlier writers may be late.
        self._next: dict[tuple[int, int], int] = {}
        self._joined: set[tuple[int, int]] = set()  # those whose next row continues what is stored
        self.changed = clock.condition()
        self._rows = 0  # added so far
        # When each due call became due, in `_rows`: those on newest, and on replayed sequences.
        self._since: tuple[deque[int], deque[int]] = deque(), deque()
        self._number, self._used = 0, -1  # the next draw, and the newest that was used
        self._learned = 0  # updates of the learner's state, with all those used
        # By number, used ones too: draws without priorities, and the state of `rng` before.
        self._made: dict[int, tuple[PackedDraw, Any]] = {}
        self._request = 0  # the next one to be answered
        self._answers: dict[int, tuple[int, np.ndarray]] = {}  # by request: its last draw, and all
        self._waiting: dict[int, int] = {}  # from requests to the draws that they take at most

    def layout(self) -> str:
        """The layout of rows, which writers and learners compare with theirs."""
        return self._packing.layout

    def add(
        self,
        writer: int,
        number: int,
        environments: Sequence[int],
        rows: np.ndarray,
        timeout: float,
    ) -> bool:
        """Adds a chunk of rows; waits while its writer is too far ahead of the learner.

        Args:
          writer: the sender, unlike all others and its own earlier lives.
          number: the writer's number of the first time step.
          environments: `[n]`, always the same of a writer.
          rows: packed, uint8 `[T, n, row_bytes]`, of this `layout`.
          timeout: in seconds; if not all rows were added by then, the same chunk must arrive again.
        """
        chunk = writer, number, environments, rows
        with self.changed:
            return self.changed.wait_for(lambda: self._take_in(*chunk), timeout)

    def begin(self, updates: int) -> tuple[int, int]:
        """Begins with a learner of so many updates: restarts of the node, first request's number.

        Draws that an earlier learner did not use are rolled back. Updates that it made beyond those
        of this learner are due again.
        """
        with self.changed:
            for number, (draw, _) in self._made.items():  # used, but their priorities were lost
                if number > self._used and self._learned < updates:
                    self._used, self._learned = number, self._learned + draw.updates
            self.local.undo(self._unused)
            self.local.owe(max(0, self._learned - updates))
            self._used, self._learned = self._number - 1, updates
            self._note_due()
            return self._restarts, self._request

    def draw(
        self,
        restarts: int,
        request: int,
        timeout: float,
        priorities: Sequence[tuple[int, np.ndarray]] = (),
        count: int = 1,
    ) -> np.ndarray | None:
        """The next draws, one buffer for `SequencePacking.read_draws`; None if none is due in time.

        Their headers have the restarts and their numbers. A repeated request has the same draws.

        Args:
          restarts: of the node, as the learner knows them; for others the buffer has no sequences.
          request: one more than in the request before; ValueError if its draws have been used.
          timeout: seconds to wait for the first draw.
          priorities: for `set_priorities`, before: with numbers of draws, in their order.
          count: the most draws, of those that are due then.
        """
        if restarts != self._restarts:
            return self._packing.empty_draw(0).data
        self.set_priorities(restarts, priorities)
        with self.changed:
            self._waiting[request] = count
            self.changed.wait_for(lambda: self._serve() or request < self._request, timeout)
            self._waiting.pop(request, None)
            if request >= self._request:
                return None
            if request in self._answers:
                return self._answers[request][1]
        raise ValueError(
            f"The draws of request {request} have been used; the next request is {self._request}."
        )

    def set_priorities(self, restarts: int, priorities: Sequence[tuple[int, np.ndarray]]) -> None:
        """Sets the priorities of draws; they and those before them count as used.

        Does nothing if they were set before, or the draws were made before a restart.
        """
        with self.changed:
            if restarts != self._restarts:
                return
            newest = max((number for number, _ in priorities), default=-1)
            used = [draw.updates for n, (draw, _) in self._made.items() if self._used < n <= newest]
            self._used = max(self._used, newest)
            self._learned += sum(used)
            for number, values in priorities:
                if made := self._made.pop(number, None):
                    self.local.set_priorities(made[0].keys, values)
            self._made = {n: made for n, made in self._made.items() if n >= self._used - _LATE}
            self._answers = {r: x for r, x in self._answers.items() if x[0] > self._used}

    def status(self) -> tuple[Any, ...]:
        """The fields of a `ReplayStatus`."""
        return tuple(self.local.status())

    def state(self) -> dict[str, Any]:
        """Arrays for `restore`, without unused draws. Rows are views: hold `changed` meanwhile."""
        with self.changed:
            schedule = copy.deepcopy(self.local.schedule)
            rng = self.local.rng.bit_generator.state
            try:
                self.local.undo(self._unused)
                counters = [getattr(self.local.schedule, name) for name in _COUNTERS]
                writers = np.array([(*key, n) for key, n in self._next.items()], np.int64)
                node = {"counters": np.array(counters, np.int64), "writers": writers}
                return {**self.local.state(), **node}
            finally:
                self.local.schedule, self.local.rng.bit_generator.state = schedule, rng

    def restore(self, state: Mapping[str, Any], counters: Mapping[str, int] | None = None) -> None:
        """Restores a state of a node, or of a `LocalReplay` with counters; episodes are cut."""
        counters = counters or dict(zip(_COUNTERS, state["counters"].tolist(), strict=True))
        with self.changed:
            self.local.restore(state, counters)
            self.local.cut()
            kept = state.get("writers", np.empty(0)).tolist()  # calls of theirs may arrive again
            self._next = {(first, writer): number for first, writer, number in kept}
            self._joined.clear()
            self._used, self._learned = self._number - 1, 0
            self._made.clear()
            self._answers.clear()
            self._note_due()

    @property
    def _unused(self) -> list[tuple[PackedDraw, Any]]:
        return [made for number, made in self._made.items() if number > self._used]

    def _take_in(self, writer: int, number: int, envs: Sequence[int], rows: np.ndarray) -> bool:
        """Adds the rows of a chunk that are new; whether none had to wait."""
        key = envs[0], writer
        if key in self._next and key != next(x for x in reversed(self._next) if x[0] == envs[0]):
            return True
        if self._next.get(key, -1) < number:
            for environment in envs:
                self.local.cut(environment)
            self._next[key] = number
            self._joined.discard(key)
        for row in rows[self._next[key] - number :]:
            packed = self._packing.split(row if key in self._joined else row.copy())
            if key not in self._joined:
                self._packing.flags(packed[0])[0][:] = True
            if not self._add(packed, np.array(envs)):
                break
            self._next[key] += 1
            self._joined.add(key)
        return self._next[key] >= number + len(rows)

    def _add(self, packed: Sequence[np.ndarray], environments: np.ndarray) -> bool:
        """Adds rows unless they would be too far ahead; makes the draws that they make due."""
        rows = self._rows + len(environments)
        if any(since and rows - since[0] > self._max_lead for since in self._since):
            return False
        if self._since[0] and self.local.rounds(environments) > self.local.schedule.rounds:
            return False
        self.local.add_packed(packed, environments)
        self._rows = rows
        self._note_due()
        self._serve()
        return True

    def _note_due(self) -> None:
        for since, due in zip(self._since, self.local.schedule.calls, strict=True):
            since.extend([self._rows] * (due - len(since)))
            while len(since) > due:  # calls were made, the oldest first
                since.popleft()

    def _serve(self) -> bool:
        """Makes the draws that are due and waited for; False, as others may still be waited for."""
        while count := self._waiting.get(self._request):
            buffers: list[np.ndarray] = []
            while len(buffers) < count:
                rng, draw = self.local.rng.bit_generator.state, self.local.draw()
                if draw is None:
                    break
                draw.header[3:5] = self._restarts, self._number
                self._made[self._number] = draw, rng
                self._number += 1
                buffers.append(draw.data)
            if not buffers:
                break
            data = buffers[0] if len(buffers) == 1 else np.concatenate(buffers)
            self._answers[self._request] = self._number - 1, data
            self._request += 1
            self._note_due()
            self.changed.notify_all()
        return False
