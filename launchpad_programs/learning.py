"""An agent's update as Acme's learner."""

import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ..agents.base import Agent, updates_in_one_call
from ..datatypes import Sample
from ..experiments.loop import Window, check_finite
from ..experiments.snapshots import Snapshot
from ..replay.paced import LearnerReplay
from .acme_library import acme
from .parameters import ParameterServer


class Learner(acme.core.Learner):
    """Receives, samples, updates, sets priorities, publishes.

    Attributes:
      state: the agent's learner state. Its buffers are donated to the next update: copy it.
      updates: how many there have been, earlier parts of the run included.
      ready: whether it has compiled; nothing is published before.
    """

    def __init__(
        self,
        agent: Agent,
        replay: LearnerReplay,
        parameters: ParameterServer,
        *,
        key: jax.Array,
        updates_per_call: int = 1,
        wait: float = 1.0,
    ):
        """Makes the initial state.

        Args:
          agent: whose `init`, `update` and `acting_params` are used.
          replay: where the samples come from; used by the thread that calls `step` only.
          parameters: where the parameters go.
          key: a PRNG key, for `agent.init`.
          updates_per_call: as in `ReplayConfig`.
          wait: seconds that `step` waits for an update to be due; 0 in programs of one thread.
        """
        self._agent, self._replay, self._parameters = agent, replay, parameters
        self._per_call = updates_per_call
        update = updates_in_one_call(agent.update, updates_per_call)
        self._update = jax.jit(update, donate_argnums=0)
        self._wait = wait
        self.state = jax.jit(agent.init)(key)
        self.updates = 0
        self.ready = False
        self._next: tuple[Any, Sample] | None = None  # drawn while the update before it ran
        self._window = Window()
        self._idle_seconds, self._looked = 0.0, time.monotonic()

    def compile(self) -> None:
        """Compiles the update and publishes the first parameters: actors start then."""
        state = _copy(self.state)
        for shape in self._replay.sample_shapes():
            sample = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shape)
            for _ in range(
                2
            ):  # a state that was computed may be of another weak type than at first
                state, _ = self._update(state, jax.device_put(sample))
        jax.block_until_ready(state)
        self.ready = True
        self._publish()
        self._looked = time.monotonic()

    def step(self) -> None:
        """One call of updates if one is due within `wait` seconds; otherwise returns without.

        Raises:
          FloatingPointError: an update gave priorities that are not finite.
        """
        batch = self._next or self._draw(self._wait)
        if batch is None:
            if self.ready and self._parameters.wanted and self._parameters.version < self.updates:
                self._publish()
            return
        keys, sample = batch
        self.state, update = self._update(self.state, sample)
        self._next = self._draw(0.0)  # while the device works
        update = jax.device_get(update)
        check_finite(update, self.updates, self._per_call)
        self.updates += self._per_call
        self._replay.set_priorities(keys, update.priorities)
        self._window.add_updates(update, self._per_call)
        if self._parameters.wanted:
            self._publish()

    def look(self) -> dict[str, float]:
        """What happened since the last call.

        Returns:
          Means of the update's metrics, `updates_per_second`, and `idle_share`: the share of the
          time in which no update was due.
        """
        now = time.monotonic()
        seconds = max(now - self._looked, 1e-9)
        window, self._window = self._window, Window()
        rates = {
            "updates_per_second": window.updates / seconds,
            "idle_share": min(1.0, self._idle_seconds / seconds),
        }
        self._idle_seconds, self._looked = 0.0, now
        means = {name: total / window.updates for name, total in window.metrics.items()}
        return {**means, **rates}

    def get_variables(self, names: Sequence[str]) -> list[Any]:
        """The acting parameters, once for each name: Acme's `VariableSource`."""
        params = jax.device_get(self._agent.acting_params(self.state))
        return [params for _ in names]

    def save(self) -> Snapshot:
        """A snapshot of learner, replay and counters, as a run in one process leaves it.

        Where the replay does not see every row, `steps` is missing: the actors count them.
        """
        counters = {**self._replay.counters(), "updates": self.updates}
        return Snapshot(_copy(self.state), self._replay.state(), counters)

    def restore(self, state: Snapshot) -> None:
        """Goes on from `save`, or from a snapshot of a run in one process."""
        self._replay.restore(state.replay, state.counters)
        self.state = jax.device_put(_copy(state.learner))
        self.updates = state.counters["updates"]
        self._next = None
        if self.ready:
            self._publish()

    def _draw(self, wait: float) -> tuple[Any, Sample] | None:
        """A batch on the device, or None if no update is due within `wait` seconds."""
        started = time.monotonic()
        self._replay.receive(wait)
        ready = self._replay.ready
        if wait:
            self._idle_seconds += time.monotonic() - started
        if not ready:
            return None
        keys, sample = self._replay.sample()
        return keys, jax.device_put(sample)

    def _publish(self) -> None:
        notes = {"new_priority": self._replay.new_priority}
        self._parameters.publish(self.updates, self._agent.acting_params(self.state), notes)


def _copy(state: Any) -> Any:
    """The next update donates the buffers of the original."""
    return jax.tree.map(lambda x: x.copy(), state)
