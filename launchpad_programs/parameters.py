"""Parameters on their way from the learner to the actors: pickled once for each version.

A version is the number of the learner's updates; -1 means none. The first version is published
once the learner has compiled, so an actor that waits for it waits for the learner.
"""

import pickle
import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax

from ..agents.base import Params
from ..replay.waiting import ReplayTimeout, Stopped, never

_PIECE_SECONDS = 0.5  # how long closing waits; waiting looks more often

Get = Callable[[int], tuple[int, bytes | None]]


class Published(NamedTuple):
    """What travels.

    Attributes:
      params: what actors need to act; NumPy arrays.
      notes: what actors should know besides: `new_priority`, for one.
    """

    params: Params
    notes: Mapping[str, float]


class ParameterServer:
    """The learner's end; `get` may be called by any thread, over Courier for one."""

    def __init__(self, *, patience: float = 0.2):
        """Has nothing to give yet.

        Args:
          patience: seconds for which `get` waits for a newer version; 0 in programs of one thread.
        """
        self._patience = patience
        self._changed = threading.Condition()
        self._version = -1
        self._blob: bytes | None = None
        self._wanted = True

    @property
    def wanted(self) -> bool:
        """Whether somebody has asked since the last `publish`: if not, spare the pickling."""
        return self._wanted

    @property
    def version(self) -> int:
        """The newest published version, -1 before the first."""
        return self._version

    def publish(
        self, version: int, params: Params, notes: Mapping[str, float] | None = None
    ) -> None:
        """Makes a version available; the learner's thread calls it between updates."""
        blob = pickle.dumps(
            Published(jax.device_get(params), dict(notes or {})), pickle.HIGHEST_PROTOCOL
        )
        with self._changed:
            self._version, self._blob, self._wanted = version, blob, False
            self._changed.notify_all()

    def get(self, version_known: int) -> tuple[int, bytes | None]:
        """The newest version, and its bytes unless it is the one that is known.

        Waits a moment for a newer one. May be repeated without harm.
        """
        with self._changed:
            self._wanted = True
            self._changed.wait_for(lambda: self._version > version_known, self._patience)
            return self._version, None if self._version == version_known else self._blob


class ParameterClient:
    """An actor's end: the newest parameters it has, fetched behind its back.

    Attributes:
      params: the newest parameters; None before the first.
      version: theirs, -1 before.
      notes: what the learner sent along.
      staleness: versions by which the parameters had fallen behind when they were replaced last.
      failures: calls that failed since one succeeded; while they fail, the actor goes on.
    """

    def __init__(
        self,
        get: Get,
        *,
        update_period: int,
        stop: Callable[[], bool] = never,
        threaded: bool = True,
    ):
        """Starts fetching.

        Args:
          get: `ParameterServer.get`, over Courier with a call timeout; may raise anything.
          update_period: calls of `step` between fetches.
          stop: whether the program is to end.
          threaded: False fetches within `step`, for programs of one thread.
        """
        self.params: Params = None
        self.version = -1
        self.notes: Mapping[str, float] = {}
        self.staleness = 0
        self.failures = 0
        self._get, self._period, self._stop = get, update_period, stop
        self._steps, self._reason = 0, "none was called yet"
        self._arrived: tuple[int, bytes] | None = None
        self._known = -1  # the newest version that has arrived
        self._wake, self._closed = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        if threaded:
            self._thread = threading.Thread(target=self._run, name="parameters", daemon=True)
            self._thread.start()

    def wait(self, patience: float = 600.0) -> None:
        """Waits for the first parameters.

        Raises:
          Stopped: the program is to end.
          ReplayTimeout: there were none for `patience` seconds.
        """
        started = time.monotonic()
        while self.params is None:
            self._ask()
            self._take_over()
            if self.params is not None:
                return
            if self._stop():
                raise Stopped("Stopped while waiting for the first parameters.")
            waited = time.monotonic() - started
            if waited > patience:
                raise ReplayTimeout(
                    f"Waited {waited:.0f} s for the learner's first parameters: {self.failures} "
                    f"calls failed, and the last said: {self._reason}."
                )
            time.sleep(_PIECE_SECONDS / 10)

    def step(self) -> None:
        """Counts one time step of the actor; takes over what has been fetched."""
        self._steps += 1
        if self._steps % self._period == 0:
            self._ask()
        self._take_over()

    def close(self) -> None:
        """Ends the thread, or leaves it to itself if a call takes long."""
        self._closed.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_PIECE_SECONDS)

    def _ask(self) -> None:
        if self._thread is None:
            self._fetch()
        else:
            self._wake.set()

    def _take_over(self) -> None:
        arrived, self._arrived = self._arrived, None
        if arrived is None:
            return
        version, blob = arrived
        published: Published = pickle.loads(blob)
        self.staleness = max(0, version - self.version) if self.params is not None else 0
        self.params, self.notes = jax.device_put(published.params), published.notes
        self.version = version

    def _run(self) -> None:
        while not self._closed.is_set():
            self._wake.wait()
            self._wake.clear()
            if not self._closed.is_set():
                self._fetch()

    def _fetch(self) -> None:
        try:
            version, blob = self._get(self._known)
        except Exception as error:  # Courier raises what it likes; the learner may come back
            self.failures += 1
            self._reason = str(error) or type(error).__name__
            return
        self.failures, self._reason = 0, "the learner has not compiled yet"
        if blob is not None:
            self._known, self._arrived = version, (version, blob)
