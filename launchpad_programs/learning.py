"""An agent's update as Acme's learner."""

from collections.abc import Sequence
from typing import Any

import acme
import jax

from ..agents.base import Agent
from ..experiments.snapshots import Snapshot
from ..replay.paced import LearnerReplay
from .parameters import ParameterServer


class Learner(acme.core.Learner):
    """Receives, samples, updates, sets priorities, publishes.

    Attributes:
      state: the agent's learner state. Its buffers are donated to the next update: copy it.
      updates: how many there have been, earlier parts of the run included.
      ready: whether it has compiled; nothing is published before.
    """

    state: Any
    updates: int
    ready: bool

    def __init__(
        self,
        agent: Agent,
        replay: LearnerReplay,
        parameters: ParameterServer,
        *,
        key: jax.Array,
        wait: float = 1.0,
    ):
        """Makes the initial state.

        Args:
          agent: whose `init`, `update` and `acting_params` are used.
          replay: where the samples come from; used by the thread that calls `step` only.
          parameters: where the parameters go.
          key: a PRNG key, for `agent.init`.
          wait: seconds that `step` waits for an update to be due; 0 in programs of one thread.
        """
        raise NotImplementedError

    def compile(self) -> None:
        """Compiles the update and publishes the first parameters: actors start then."""
        raise NotImplementedError

    def step(self) -> None:
        """One update if one is due within `wait` seconds; otherwise returns without."""
        raise NotImplementedError

    def look(self) -> dict[str, float]:
        """Metrics since the last call: the update's means, `updates_per_second`, `idle_share`."""
        raise NotImplementedError

    def get_variables(self, names: Sequence[str]) -> list[Any]:
        """The acting parameters, once for each name: Acme's `VariableSource`."""
        raise NotImplementedError

    def save(self) -> Snapshot:
        """A snapshot of learner, replay and counters, as a run in one process leaves it."""
        raise NotImplementedError

    def restore(self, state: Snapshot) -> None:
        """Goes on from `save`, or from a snapshot of a run in one process."""
        raise NotImplementedError
