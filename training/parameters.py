"""Acting parameters, from a learner to actors elsewhere; packed once for each version.

A version is the number of the learner's updates, -1 before the first. The first version is
published when the learner has compiled, so an actor that waits for it waits for the learner.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from ..agents.base import Agent, Params
from ..replay.interface import Stopped, WaitTimeout, never
from ..replay.packing import TreePacking

_POLL_SECONDS = 0.05
_CLOSE_SECONDS = 0.5
_KEPT = ("version", "staleness", "_steps", "_known", "blob")  # of a client's state

Get = Callable[[int], tuple[int, bytes | None]]


def packing_of(agent: Agent) -> TreePacking:
    """The packing of an agent's acting parameters, and of the priority of new sequences."""
    shapes = jax.eval_shape(lambda key: agent.acting_params(agent.init(key)), jax.random.key(0))
    tree = {"new_priority": np.float64(1.0), "params": shapes}
    return TreePacking("The learner's parameters", tree)


class ParameterServer:
    """The learner's side. `get` may be called by any thread, and by other processes.

    `wanted` says whether it was called since the last `publish`; if not, packing is not needed.
    """

    def __init__(self, packing: TreePacking, *, max_wait: float = 0.2):
        """Nothing is published yet; `get` waits for `max_wait` seconds, 0 in one thread."""
        self.packing, self._max_wait = packing, max_wait
        self._changed = threading.Condition()
        self.version, self.wanted = -1, True
        self._blob: bytes | None = None

    def state(self) -> dict[str, Any]:
        """What `restore` needs, in plain data."""
        return {"version": self.version, "wanted": self.wanted, "blob": self._blob}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Publishes again what was published."""
        self.version, self.wanted, self._blob = state["version"], state["wanted"], state["blob"]

    def publish(self, version: int, params: Params, new_priority: float = 1.0) -> None:
        """Makes a version available; called by the learner's thread between updates."""
        blob = self.packing.pack({"new_priority": np.float64(new_priority), "params": params})
        with self._changed:
            self.version, self._blob, self.wanted = version, blob, False
            self._changed.notify_all()

    def get(self, known_version: int) -> tuple[int, bytes | None]:
        """The newest version, for which it waits a moment, and its bytes if the caller lacks it."""
        with self._changed:
            self.wanted = True
            self._changed.wait_for(lambda: self.version > known_version, self._max_wait)
            return self.version, None if self.version == known_version else self._blob


class ParameterClient:
    """An actor's side, which fetches asynchronously, and continues with old parameters meanwhile.

    `params` are the newest that have arrived, None before the first; `staleness` is the number of
    versions by which they were old when they were last replaced.
    """

    def __init__(
        self,
        get: Get,
        packing: TreePacking,
        *,
        update_period: int,
        stop: Callable[[], bool] = never,
        threaded: bool = True,
    ):
        """Starts fetching by `ParameterServer.get`, which may take long and raise anything.

        There are `update_period` calls of `step` between fetches. Without a thread, which programs
        of one thread have not, they are within `step`. `stop` says whether the program must end.
        """
        self.params: Params = None
        self.version, self.new_priority = -1, 1.0
        self.staleness = self.failures = 0
        self._get, self._packing = get, packing
        self._period, self._stop = update_period, stop
        self._steps, self._reason = 0, "no call was made yet"
        self._arrived: tuple[int, bytes] | None = None
        self.blob: bytes | None = None  # of `params`
        self._known = -1  # the newest version that has arrived
        self._wake, self._closed = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        if threaded:
            self._thread = threading.Thread(target=self._run, name="parameters", daemon=True)
            self._thread.start()

    def wait(self, max_wait: float = 600.0) -> None:
        """Waits for the first parameters, for `max_wait` seconds, or until the program ends."""
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
        return {name: getattr(self, name) for name in _KEPT}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores parameters and counts."""
        for name in _KEPT:
            setattr(self, name, state[name])
        if self.blob is not None:
            self._unpack(self.blob)

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
        self.staleness = max(0, version - self.version) if self.params is not None else 0
        self._unpack(blob)
        self.version = version

    def _unpack(self, blob: bytes) -> None:
        self.blob, values = blob, self._packing.unpack(blob)
        self.params = jax.device_put(values["params"])
        self.new_priority = float(values["new_priority"])

    def _run(self) -> None:
        while not self._closed.is_set():
            self._wake.wait()
            self._wake.clear()
            if not self._closed.is_set():
                self._fetch()

    def _fetch(self) -> None:
        try:
            version, blob = self._get(self._known)
        except Exception as error:  # of many types; the learner may come back
            self.failures += 1
            self._reason = str(error) or type(error).__name__
            return
        self.failures, self._reason = 0, "the learner has not compiled yet"
        if blob is not None:
            self._known, self._arrived = version, (version, blob)
