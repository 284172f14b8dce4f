"""Acting parameters, from a learner to actors elsewhere; pickled once for each version.

A version is the number of the learner's updates, -1 before the first. The first version is
published when the learner has compiled, so an actor that waits for it waits for the learner.
"""

import pickle
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ..agents.base import Params
from ..replay.waiting import Stopped, WaitTimeout, never

_POLL_SECONDS = 0.05
_CLOSE_SECONDS = 0.5
_KEPT = ("version", "new_priority", "staleness", "_steps", "_known")  # of a client's state

Get = Callable[[int], tuple[int, bytes | None]]


class Published(NamedTuple):
    """What is pickled.

    Attributes:
      params: acting parameters as NumPy arrays.
      new_priority: what actors give new sequences, where the replay takes a priority from them.
    """

    params: Params
    new_priority: float


class ParameterServer:
    """The learner's side. `get` may be called by any thread, and over Courier."""

    def __init__(self, *, max_wait: float = 0.2):
        """Nothing is published yet.

        Args:
          max_wait: seconds for which `get` waits for a newer version; 0 in programs of one thread.
        """
        self._max_wait = max_wait
        self._changed = threading.Condition()
        self._version = -1
        self._blob: bytes | None = None
        self._wanted = True

    @property
    def wanted(self) -> bool:
        """Whether `get` was called since the last `publish`; if not, pickling is not needed."""
        return self._wanted

    @property
    def version(self) -> int:
        """The newest published version, -1 before the first."""
        return self._version

    def state(self) -> dict[str, Any]:
        """What `restore` needs, in plain data."""
        published = None if self._blob is None else pickle.loads(self._blob)
        return {
            "version": self._version,
            "wanted": self._wanted,
            "published": published and (_leaves(published.params), published.new_priority),
        }

    def restore(self, state: Mapping[str, Any], like: Params) -> None:
        """Publishes again what was published; `like` has the structure of the parameters."""
        if state["published"] is not None:
            leaves, new_priority = state["published"]
            self.publish(state["version"], _with_leaves(like, leaves), new_priority)
        self._wanted = state["wanted"]

    def publish(self, version: int, params: Params, new_priority: float = 1.0) -> None:
        """Makes a version available; called by the learner's thread between updates."""
        published = Published(jax.device_get(params), new_priority)
        blob = pickle.dumps(published, pickle.HIGHEST_PROTOCOL)
        with self._changed:
            self._version, self._blob, self._wanted = version, blob, False
            self._changed.notify_all()

    def get(self, known_version: int) -> tuple[int, bytes | None]:
        """The newest version, and its bytes unless the caller has it already.

        Waits a moment for a newer version. Calling it twice does no harm.
        """
        with self._changed:
            self._wanted = True
            self._changed.wait_for(lambda: self._version > known_version, self._max_wait)
            return self._version, None if self._version == known_version else self._blob


class ParameterClient:
    """An actor's side: a `ParameterSource` that fetches asynchronously.

    Attributes:
      params: the newest parameters that have arrived; None before the first.
      version: theirs, -1 before.
      new_priority: as published with them.
      staleness: versions by which the parameters were old when they were last replaced.
      failures: calls that failed since the last success. The actor continues meanwhile.
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
          stop: whether the program must end.
          threaded: False fetches within `step`, for programs of one thread.
        """
        self.params: Params = None
        self.version = -1
        self.new_priority = 1.0
        self.staleness = 0
        self.failures = 0
        self._get, self._period, self._stop = get, update_period, stop
        self._steps, self._reason = 0, "no call was made yet"
        self._arrived: tuple[int, bytes] | None = None
        self._known = -1  # the newest version that has arrived
        self._wake, self._closed = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        if threaded:
            self._thread = threading.Thread(target=self._run, name="parameters", daemon=True)
            self._thread.start()

    def wait(self, max_wait: float = 600.0) -> None:
        """Waits for the first parameters.

        Raises:
          Stopped: the program must end.
          WaitTimeout: there were none for `max_wait` seconds.
        """
        started = time.monotonic()
        while self.params is None:
            self._ask()
            self._replace()
            if self.params is not None:
                return
            if self._stop():
                raise Stopped("Stopped while waiting for the first parameters.")
            waited = time.monotonic() - started
            if waited > max_wait:
                raise WaitTimeout(
                    f"Waited {waited:.0f} s for the learner's first parameters: {self.failures} "
                    f"calls failed, the last one with: {self._reason}."
                )
            time.sleep(_POLL_SECONDS)

    def step(self) -> None:
        """Counts one time step of the actor; replaces the parameters if newer ones arrived."""
        self._steps += 1
        if self._steps % self._period == 0:
            self._ask()
        self._replace()

    def state(self) -> dict[str, Any]:
        """What `restore` needs, in plain data, of a client without a thread between two steps."""
        kept = {name: getattr(self, name) for name in _KEPT}
        return {"params": None if self.params is None else _leaves(self.params), **kept}

    def restore(self, state: Mapping[str, Any], like: Params) -> None:
        """Restores parameters and counts; `like` has the structure of the parameters."""
        for name in _KEPT:
            setattr(self, name, state[name])
        if state["params"] is not None:
            self.params = jax.device_put(_with_leaves(like, state["params"]))

    def close(self) -> None:
        """Ends the thread, or abandons it if a call takes long."""
        self._closed.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_SECONDS)

    def _ask(self) -> None:
        if self._thread is None:
            self._fetch()
        else:
            self._wake.set()

    def _replace(self) -> None:
        arrived, self._arrived = self._arrived, None
        if arrived is None:
            return
        version, blob = arrived
        published: Published = pickle.loads(blob)
        self.staleness = max(0, version - self.version) if self.params is not None else 0
        self.params, self.new_priority = jax.device_put(published.params), published.new_priority
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
        except Exception as error:  # Courier raises many types; the learner may come back
            self.failures += 1
            self._reason = str(error) or type(error).__name__
            return
        self.failures, self._reason = 0, "the learner has not compiled yet"
        if blob is not None:
            self._known, self._arrived = version, (version, blob)


def _leaves(params: Params) -> list[np.ndarray]:
    return [np.array(leaf) for leaf in jax.tree.leaves(params)]


def _with_leaves(like: Params, leaves: Sequence[np.ndarray]) -> Params:
    """Parameters of the structure of others."""
    return jax.tree.unflatten(jax.tree.structure(like), leaves)
