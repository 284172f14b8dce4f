"""What one worker learns with, and how it learns in a thread of its own."""

import concurrent.futures
import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from ...replay.local import LocalReplay
from ..learner import Learner
from .remote_updates import RemoteUpdates


class Worker(NamedTuple):
    """What one worker learns with.

    Attributes:
      learner: of the replay; its updates are `updates`.
      updates: computes gradients.
      replay: of this worker alone.
    """

    learner: Learner
    updates: RemoteUpdates
    replay: LocalReplay


class LearningThread:
    """Makes a learner's updates in a thread of its own, beside the thread that acts.

    Reactor's workers act and learn so (Gruslys et al. 2018, section 3.5). The acting thread calls
    the methods. The learner's replay is a `LocalReplay`, which other threads may write to.
    """

    def __init__(self, learner: Learner):
        """Starts the thread."""
        self._learner, self._is_paused = learner, False
        self._pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="learning")
        self._work = self._pool.submit(self._learn)

    def wake(self) -> None:
        """Lets the thread make all updates that are due. Raises what ended the last ones.

        An update that becomes due while the thread comes to its end waits for the next call.
        """
        if self._work.done():
            self._work.result()
            self._work = self._pool.submit(self._learn)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """No update runs in this block; it begins when the running one has ended."""
        self._is_paused = True
        try:
            concurrent.futures.wait([self._work])
            yield
        finally:
            self._is_paused = False

    def close(self) -> None:
        """Waits for the running update, and ends the thread."""
        self._is_paused = True
        self._pool.shutdown()

    def _learn(self) -> None:
        while not self._is_paused and self._learner.step():
            pass
