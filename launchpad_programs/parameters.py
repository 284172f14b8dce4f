"""Parameters on their way from the learner to the actors: pickled once for each version.

A version is the number of the learner's updates; -1 means none. The first version is published
once the learner has compiled, so an actor that waits for it waits for the learner.
"""

import pickle
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

from ..agents.base import Params
from ..replay.reverb_waiting import ReplayTimeout, Stopped, never

_PIECE_SECONDS = 0.5  # how long a wait goes on before it looks whether it must end

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
        self._version, self._blob = -1, None
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
        self, get: Get, *, update_period: int, stop: Callable[[], bool] = never, threaded: bool = True
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
        self._get, self._period, self._stop, self._threaded = get, update_period, stop, threaded

    def wait(self, patience: float = 600.0) -> None:
        """Waits for the first parameters.

        Raises:
          Stopped: the program is to end.
          ReplayTimeout: there were none for `patience` seconds.
        """
        raise NotImplementedError

    def step(self) -> None:
        """Counts one time step of the actor; takes over what has been fetched."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends the thread, which may take as long as a call does."""
        raise NotImplementedError


_ = (time, ReplayTimeout, Stopped, _PIECE_SECONDS)
