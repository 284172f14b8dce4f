"""A learner in a thread of its own, beside what acts in another one."""

import contextlib
import threading
from collections.abc import Iterator

from .learner import Learner


class LearningThread:
    """Calls `Learner.step` as long as updates are due, whenever it is woken.

    Reactor's workers act and learn so (Gruslys et al. 2018, section 3.5). The learner's replay is
    a `LocalReplay`, which other threads may write to.
    """

    def __init__(self, learner: Learner):
        """Starts the thread, which waits for `wake`."""
        self._learner, self._is_learning = learner, threading.Lock()
        self._woken = threading.Event()
        self._is_paused = self._is_closed = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="learning", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Tells that updates may be due."""
        self._woken.set()

    def check(self) -> None:
        """Raises what ended the thread, if anything has."""
        if self._error is not None:
            raise self._error

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """No update runs in this block; it begins when the running one has ended."""
        self._is_paused = True
        try:
            with self._is_learning:
                yield
        finally:
            self._is_paused = False
            self.wake()

    def close(self) -> None:
        """Waits for the running update, and ends the thread."""
        self._is_closed = True
        self.wake()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._is_closed:  # set before the thread is woken for the last time
                self._woken.wait()
                self._woken.clear()
                while not self._is_paused and self._has_learned():
                    pass
        except BaseException as error:  # `check` raises it in the thread that acts
            self._error = error

    def _has_learned(self) -> bool:
        with self._is_learning:
            return not self._is_closed and self._learner.step()
