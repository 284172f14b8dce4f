"""A learner in a thread of its own, beside what acts in another one."""

import contextlib
import threading
from collections.abc import Iterator

from ..learner import Learner


class LearningThread:
    """Calls `Learner.step` as long as updates are due, whenever it is woken.

    Reactor's workers act and learn so (Gruslys et al. 2018, section 3.5). The learner's replay is
    a `LocalReplay`, which other threads may write to.
    """

    def __init__(self, learner: Learner):
        """Starts the thread, which waits for `wake`."""
        self._learner = learner
        self._changed = threading.Condition()
        self._is_woken = self._is_learning = self._is_paused = self._is_closed = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="learning", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Tells that updates may be due."""
        with self._changed:
            self._is_woken = True
            self._changed.notify_all()

    def check(self) -> None:
        """Raises what ended the thread, if anything has."""
        if self._error is not None:
            raise self._error

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """No update runs in this block; it begins when the running one has ended."""
        with self._changed:
            self._is_paused = True
            self._changed.wait_for(lambda: not self._is_learning)
        try:
            yield
        finally:
            self._is_paused = False
            self.wake()

    def close(self) -> None:
        """Waits for the running update, and ends the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._begin():
                try:
                    while not (self._is_paused or self._is_closed) and self._learner.step():
                        pass
                finally:
                    self._end()
        except BaseException as error:  # `check` raises it in the thread that acts
            self._error = error

    def _begin(self) -> bool:
        """Waits until there is something to do; False at the end."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_closed or (self._is_woken and not self._is_paused)
            )
            self._is_woken = False
            self._is_learning = not self._is_closed
            return self._is_learning

    def _end(self) -> None:
        with self._changed:
            self._is_learning = False
            self._changed.notify_all()
