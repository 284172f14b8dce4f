"""A replay that other nodes call: rows in, draws out, priorities back."""

import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .arrivals import Arrivals
from .draws import PackedDraw
from .local import LocalReplay
from .packing import SequencePacking
from .peer import Peer


def check_greeting(peer: Peer, packing: SequencePacking, num_environments: int) -> None:
    """Compares a node's replay with the rows of this process.

    Args:
      peer: a `ReplayNode`.
      packing: of the sequences, here.
      num_environments: that it must have at least.

    Raises:
      ValueError: it has rows of another layout, or fewer environments.
    """
    greeting = peer.call("greet")
    if greeting["layout"] != packing.layout:
        raise ValueError(
            f"The replay's rows have the layout {greeting['layout']}, those here {packing.layout}: "
            "all nodes need the same agent, environment, config and version."
        )
    if greeting["num_environments"] < num_environments:
        raise ValueError(
            f"The replay was made for {greeting['num_environments']} environments, numbered from "
            f"0, but those of this node end with number {num_environments - 1}."
        )


class _Made(NamedTuple):
    """A draw that was made, and is not known to be used."""

    number: int
    draw: PackedDraw
    rng: Any  # the state of the generator before it


class _Calls:
    """How many calls of one kind are due, and since when.

    Attributes:
      oldest: rows that had been added when the first of them became due; None if none is.
    """

    def __init__(self) -> None:
        self.oldest: int | None = None
        self._count = 0
        self._since: deque[tuple[int, int]] = deque()  # rows, and calls that became due then

    def note(self, count: int, rows: int) -> None:
        """Records how many are due after so many rows."""
        if count > self._count:
            self._since.append((rows, count - self._count))
        made, self._count = self._count - count, count
        while made > 0:
            since, calls = self._since.popleft()
            if calls > made:
                self._since.appendleft((since, calls - made))
            made -= calls
        self.oldest = self._since[0][0] if self._since else None


class ReplayNode:
    """A `LocalReplay` for the writers of actors (`NodeWriter`) and one learner (`RemoteReplay`).

    Pace: while a call of updates is due that the learner has not drawn, no more than `max_lead`
    rows are added after the one that made it due; writers wait. Nor does a round begin before the
    newest sequences of the last one are drawn. A call that the learner waits for
    is drawn by the very row that makes it due. So with a learner that has asked for enough draws
    ahead, and with `max_lead` 0, all is as in one process.

    Calls may come from any thread. `add` and `draw` wait up to their timeouts, so others must be
    answered beside them: by a thread for each writer, and `ahead` + 2 for the learner.
    """

    def __init__(self, local: LocalReplay, *, max_lead: int, life: int = 0):
        """Takes an empty replay.

        Args:
          local: holds the rows.
          max_lead: rows, at least 0.
          life: restarts of this node.

        Raises:
          ValueError: `max_lead` is negative.
        """
        if max_lead < 0:
            raise ValueError(f"max_lead must be at least 0 rows, got {max_lead}.")
        self.local = local
        self._max_lead, self._life = max_lead, life
        self._packing = local.packing
        self._arrivals = Arrivals(local.num_environments, local.cut)
        self._changed = threading.Condition()
        self._rows = 0  # added so far
        self._newest, self._replayed = _Calls(), _Calls()  # that are due, see `UpdateSchedule`
        self._number = 0  # of the next draw
        self._made: deque[_Made] = deque()
        self._waiting: Counter[int] = Counter()  # numbers of draws that are waited for

    def greet(self) -> dict[str, Any]:
        """What writers and learners compare with their own: `layout` and `num_environments`."""
        return {"layout": self._packing.layout, "num_environments": self.local.num_environments}

    def add(
        self,
        writer: int,
        number: int,
        environments: Sequence[int],
        rows: np.ndarray,
        timeout: float,
    ) -> bool:
        """Takes in a chunk of rows; waits while its writer is too far ahead of the learner.

        Args:
          writer: an actor's, unlike that of all others and of its earlier lives.
          number: of the first row, by the writer.
          environments: `[n]`, whose rows they are.
          rows: packed, uint8 `[T, n, row_bytes]`.
          timeout: seconds to wait.

        Returns:
          Whether all rows were taken in; if not, the same chunk must be sent again.

        Raises:
          ValueError: rows are of another layout, or of environments that do not exist.
        """
        shape = (len(rows), len(environments), self._packing.row_bytes)
        if rows.shape != shape or rows.dtype != np.uint8:
            raise ValueError(f"Rows must be uint8 {shape}, got {rows.dtype} {rows.shape}.")
        return self._wait(lambda: self._take_in(writer, number, environments, rows), timeout)

    def begin(self) -> tuple[int, int]:
        """A learner begins: the node's life, and the number of the first draw.

        Draws that were not used by an earlier learner are not made after all.
        """
        with self._changed:
            self.local.undo(self._unused)
            self._made.clear()
            self._note_due()
            return self._life, self._number

    def draw(self, life: int, number: int, timeout: float) -> np.ndarray | None:
        """The draw of a number, one buffer for `DrawPacking.read`; None if it is not due in time.

        The header has the life and the number besides.

        Args:
          life: of the node, as known to the learner. For another one the buffer is empty.
          number: one more than that of the draw before.
          timeout: seconds to wait.

        Raises:
          ValueError: draws of larger numbers have been used.
        """
        if life != self._life:
            return self.local.draws.empty(0).data
        with self._changed:
            self._waiting[number] += 1
            self._wait(lambda: self._serve() or number < self._number, timeout)
            self._waiting[number] -= 1
            self._waiting += Counter()  # forgets zeros
            if number >= self._number:
                return None
            for made in self._made:
                if made.number == number:
                    return made.draw.data
        raise ValueError(f"Draw {number} has been used, the next one is {self._number}.")

    def set_priorities(self, life: int, number: int, priorities: np.ndarray) -> None:
        """Sets the priorities of a draw, which is thereby used, as are those before it.

        Nothing happens if the draw is of another life, or its priorities were set before.

        Raises:
          ValueError: a priority is NaN, infinite or negative.
        """
        with self._changed:
            while life == self._life and self._made and self._made[0].number <= number:
                made = self._made.popleft()
                if made.number == number:
                    self.local.set_priorities(made.draw.keys, priorities)

    def status(self) -> tuple[Any, ...]:
        """The fields of a `ReplayStatus`."""
        return tuple(self.local.status())

    def state(self) -> dict[str, Any]:
        """What `restore` needs, a pytree of arrays, as if draws that are not used were not made.

        Its rows are views: to be written within `paused`.
        """
        with self._changed, self.local.undone(self._unused):
            return {**self.local.state(), "counters": np.array(self.local.counters, np.int64)}

    def restore(self, state: Mapping[str, Any], counters: Mapping[str, int] | None = None) -> None:
        """Restores a state; rows are added from the first ones of new episodes on.

        Args:
          state: of a node, or of a `LocalReplay` with its counters.
          counters: of `Replay.restore`; None for those of the state.
        """
        if counters is None:
            names = ("steps", "updates", "learning_since")
            counters = dict(zip(names, state["counters"].tolist(), strict=True))
        with self._changed:
            self.local.restore(state, counters)
            self.local.cut()
            self._arrivals.clear()
            self._made.clear()
            self._note_due()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """In this block nothing changes but by calls of its own thread."""
        with self._changed:
            yield

    @property
    def _unused(self) -> list[tuple[PackedDraw, Any]]:
        return [(made.draw, made.rng) for made in self._made]

    def _wait(self, attempt: Callable[[], bool], timeout: float) -> bool:
        """Repeats an attempt after each change until it succeeds; whether it did in time."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while not attempt():
                if (left := deadline - time.monotonic()) <= 0:
                    return False
                self._changed.wait(left)
            return True

    def _take_in(
        self, writer: int, number: int, environments: Sequence[int], rows: np.ndarray
    ) -> bool:
        """Adds the rows that the pace permits; whether these are all."""
        is_first, _ = self._packing.flags(self._packing.split(rows)[0])
        begins = [
            self._arrivals.begin(environment, writer, number, is_first[:, column])
            for column, environment in enumerate(environments)
        ]
        index = min(begins)
        columns, starts = np.array(environments), np.array(begins)
        while index < len(rows):
            added = starts <= index
            if self._is_held(columns[added]):
                break
            self.local.add_packed(self._packing.split(rows[index, added]), columns[added])
            self._rows += int(np.count_nonzero(added))
            self._note_due()
            self._serve()
            index += 1
        for environment, begin in zip(environments, begins, strict=True):
            self._arrivals.passed(environment, number + index, added=begin < index)
        return index == len(rows)

    def _is_held(self, environments: np.ndarray) -> bool:
        """Whether further rows of these would be too far ahead of a call that is due."""
        rows = self._rows + len(environments)
        for calls in (self._newest, self._replayed):
            if calls.oldest is not None and rows - calls.oldest > self._max_lead:
                return True
        return self._newest.oldest is not None and self.local.begins_round(environments)

    def _note_due(self) -> None:
        newest, replayed = self.local.calls
        self._newest.note(newest, self._rows)
        self._replayed.note(replayed, self._rows)

    def _serve(self) -> bool:
        """Makes the draws that are due and waited for; False, as `_wait` may go on."""
        while self._waiting[self._number] and self.local.is_due:
            rng = self.local.rng
            draw = self.local.draw()
            assert draw is not None
            draw.header[3:5] = self._life, self._number
            self._made.append(_Made(self._number, draw, rng))
            self._number += 1
            self._note_due()
            self._changed.notify_all()
        return False
