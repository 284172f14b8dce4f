"""A replay that other nodes call: rows in, draws out, priorities back."""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from .arrivals import Arrivals
from .draws import PackedDraw
from .local import LocalReplay
from .packing import SequencePacking
from .peer import Peer
from .schedule import CallsDue

Priorities: TypeAlias = Sequence[tuple[int, np.ndarray]]  # numbers of draws, in their order
_LATE = 16  # draws by which priorities may be later than those of newer draws


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
    """A draw whose priorities have not been set."""

    draw: PackedDraw
    rng: Any  # the state of the generator before it


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
        self._newest, self._replayed = CallsDue(), CallsDue()  # that are due, see `UpdateSchedule`
        self._number = 0  # of the next draw
        self._used = -1  # the newest draw that was used
        self._made: dict[int, _Made] = {}  # by number, those that were used too
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
            self._used = self._number - 1
            self._note_due()
            return self._life, self._number

    def draw(
        self, life: int, number: int, timeout: float, priorities: Priorities = ()
    ) -> np.ndarray | None:
        """The draw of a number, one buffer for `DrawPacking.read`; None if it is not due in time.

        The header has the life and the number besides.

        Args:
          life: of the node, as known to the learner. For another one the buffer is empty.
          number: one more than that of the draw before.
          timeout: seconds to wait.
          priorities: for `set_priorities`, before.

        Raises:
          ValueError: draws of larger numbers have been used, or a priority is wrong.
        """
        if life != self._life:
            return self.local.draws.empty(0).data
        self.set_priorities(life, priorities)
        with self._changed:
            self._waiting[number] += 1
            self._wait(lambda: self._serve() or number < self._number, timeout)
            self._waiting[number] -= 1
            self._waiting += Counter()  # forgets zeros
            if number >= self._number:
                return None
            if number in self._made:
                return self._made[number].draw.data
        raise ValueError(f"Draw {number} has been used, the next one is {self._number}.")

    def set_priorities(self, life: int, priorities: Priorities) -> None:
        """Sets the priorities of draws, which are thereby used, as are those before them.

        Nothing happens if they are of another life, or were set before.

        Args:
          life: of the node when the draws were made.
          priorities: of the sequences of draws.

        Raises:
          ValueError: a priority is NaN, infinite or negative.
        """
        with self._changed:
            if life != self._life:
                return
            for number, values in priorities:
                if number in self._made:
                    self.local.set_priorities(self._made.pop(number).draw.keys, values)
                self._used = max(self._used, number)
            for number in [n for n in self._made if n < self._used - _LATE]:
                del self._made[number]

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
            self._used = self._number - 1
            self._made.clear()
            self._note_due()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """In this block nothing changes but by calls of its own thread."""
        with self._changed:
            yield

    @property
    def _unused(self) -> list[tuple[PackedDraw, Any]]:
        return [made for number, made in self._made.items() if number > self._used]

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
            self._made[self._number] = _Made(draw, rng)
            self._number += 1
            self._note_due()
            self._changed.notify_all()
        return False
