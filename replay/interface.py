"""A replay as learners and actors see it, how nodes call each other, and how waits end.

`B` denotes the batch, `n` a number of environments. Imports nothing of the distributed tier.
"""

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..datatypes import Row, Sample


class Clock(NamedTuple):
    """Time, waits and threads of a node: the system's, or a simulation's."""

    monotonic: Callable[[], float] = time.monotonic
    process_time: Callable[[], float] = time.process_time
    time_ns: Callable[[], int] = time.time_ns
    sleep: Callable[[float], None] = time.sleep
    event: Callable[[], Any] = threading.Event
    condition: Callable[[], Any] = threading.Condition
    thread: Callable[..., Any] = threading.Thread
    executor: Callable[..., Any] = ThreadPoolExecutor


REAL = Clock()


class Stopped(Exception):  # noqa: N818
    """A wait ended because the program stops: no error."""


class WaitTimeout(RuntimeError):  # noqa: N818
    """A wait took too long; the message describes the state of what was waited for."""


class PeerLost(RuntimeError):  # noqa: N818
    """The node that was called died before it answered; it may come back."""


def never() -> bool:
    """A stop callable of a program that is never stopped."""
    return False


class ReplayStatus(NamedTuple):
    """How much a replay holds and has received."""

    num_rows: int  # that are kept now
    num_sequences: int  # that can be drawn now
    steps: int | None  # transitions received; None if the replay does not see every row
    learning_since: int | None  # steps at which learning began, -1 before; None if unknown
    new_priority: float  # that writers should give new sequences, where they give any


class Draw(NamedTuple):
    """The sequences of one call of updates."""

    keys: Any  # for `Replay.set_priorities`
    sample: Sample  # `[B, ...]`, NumPy arrays: the batches of all updates, one after the other
    updates: int  # in the call; divides B


class Replay(Protocol):
    """A learner's side of a replay; used by one thread at a time.

    Attributes:
      shapes: all samples that `sample` may return, as `jax.ShapeDtypeStruct`s: first of
        `ReplayConfig.updates_per_call` updates on replayed sequences, then, with on-policy updates,
        of one on the newest.
      metric_names: of `metrics`.
    """

    shapes: list[Sample]
    metric_names: tuple[str, ...]

    def sample(self, timeout: float = 0.0) -> Draw | None:
        """Draws the sequences of the next call of updates, which counts as made from then on.

        None if no call becomes due within `timeout` seconds.
        """

    def set_priorities(self, keys: Any, priorities: np.ndarray) -> None:
        """Sets priorities `[B]`; ignores priorities of overwritten sequences.

        ValueError if one is NaN, infinite or negative; nothing is set then.
        """

    def metrics(self, keys: Any) -> dict[str, float]:
        """Metrics of the sequences of one call of updates."""

    def status(self) -> ReplayStatus:
        """How much the replay holds and has received."""

    def state(self) -> Any:
        """What `restore` needs, a pytree of arrays."""

    def restore(self, state: Any, counters: Mapping[str, int]) -> None:
        """Restores the state of a replay that was made with the same arguments; else ValueError.

        `counters` has `steps`, `updates` and `learning_since` when the state was saved.
        """

    def close(self) -> None:
        """Ends the replay's threads."""


class Writer(Protocol):
    """An actor's side of a replay, for the rows of some environments."""

    def write(self, rows: Row, new_priority: float = 1.0) -> None:
        """Writes one row of each environment: NumPy arrays `[n, ...]`, in time order, all extras.

        New sequences get a priority, where the replay does not choose it itself.
        """

    def close(self) -> None:
        """Sends what is left, in bounded time."""


class RowStore(Protocol):
    """The store of the actors' rows in the run's own process, or on its device."""

    @property
    def capacity(self) -> int:
        """The maximal number of rows, over all environments."""

    @property
    def nbytes(self) -> int:
        """Bytes of the rows when it is full."""


class Answer(Protocol):
    """The answer to a call, which may not be there yet."""

    def result(self, timeout: float) -> Any:
        """Waits `timeout` seconds, or not at all, for the answer; may be called again.

        TimeoutError if there is none yet; PeerLost if the node died before, and the call must be
        made again; RuntimeError, with the traceback of the other node, if the call failed.
        """


class Peer(Protocol):
    """Another node, whatever carries the calls.

    Arguments and results are numbers, text, bytes, NumPy arrays, and tuples, lists and dictionaries
    of these. The node that answers may change nothing in the arguments, and the caller nothing in
    the result. A call that is made twice must do no harm.
    """

    def call(self, method: str, *arguments: Any) -> Any:
        """Calls a method and waits for the answer, across restarts of the node.

        Stopped if the program stops; WaitTimeout, which names what was waited for, if there was no
        answer for too long; RuntimeError as `Answer.result`.
        """

    def send(self, method: str, *arguments: Any) -> Answer:
        """Calls a method, and does not wait for the answer, which raises what goes wrong."""


class DirectPeer:
    """A `Peer` in this process; `send` makes the call at once, errors are raised as they are."""

    def __init__(self, node: Any):
        self._node = node

    def call(self, method: str, *arguments: Any) -> Any:
        """See `Peer`."""
        return getattr(self._node, method)(*arguments)

    def send(self, method: str, *arguments: Any) -> Answer:
        """See `Peer`."""
        answer: Future[Any] = Future()
        answer.set_result(self.call(method, *arguments))
        return answer
