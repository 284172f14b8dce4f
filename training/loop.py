"""The loop of one process, without files: act, store, learn, in a fixed order.

With one actor it is `retrax train`. With several, each with environments of its own, and with
parameters of its own where the run has an `actor_update_period`, it is a program in one thread:
`retrax train --num-actors N`.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from ..agents.base import LearnerState, Params
from ..replay.interface import RowStore
from .actor import Actor
from .learner import Snapshot
from .metrics import Counters, MetricsAccumulator


class LoopLearner(Protocol):
    """What a loop, and the run that has it, ask of whatever learns."""

    metrics: MetricsAccumulator  # means over updates since the last flush

    @property
    def state(self) -> LearnerState:
        """The learner state; its buffers may be donated to the next update."""

    @property
    def params(self) -> Params:
        """The newest acting parameters."""

    @property
    def updates(self) -> int:
        """Updates of the state, those before a resumed snapshot included."""

    @property
    def learning_since(self) -> int:
        """Steps of the run at which learning began, -1 before."""

    @property
    def metric_names(self) -> Sequence[str]:
        """Names of the metrics."""

    def publish(self) -> None:
        """Makes the newest parameters available to the actors."""

    def step(self) -> bool:
        """One call of updates where one is due; whether there was any."""

    def finish(self) -> None:
        """Reads the outputs of all calls of updates."""

    def snapshot(self) -> Snapshot:
        """The state, that of the replays, and `updates`; the loop adds the rest."""

    def restore(self, snapshot: Snapshot) -> None:
        """Restores a snapshot with all counters; `publish` or `restore_running` must follow."""

    def running(self) -> Any:
        """The parameters that the actors have, in plain data; None if they are the newest."""

    def restore_running(self, state: Any) -> None:
        """Gives the actors the parameters that `running` returned."""

    def close(self) -> None:
        """Ends threads, and closes the replays."""


class Loop:
    """Actors and a learner, stepped in turn; deterministic for a seed.

    Attributes:
      counters: steps and updates so far.
      learner: the learner.
      replays: to which the actors write.
      seconds: spent acting and learning.
    """

    def __init__(
        self,
        actors: Sequence[Actor],
        learner: LoopLearner,
        replays: Sequence[RowStore],
        *,
        order: np.random.Generator | None = None,
    ):
        """Begins at 0 steps.

        Args:
          actors: at least one.
          learner: of the replays.
          replays: all those to which the actors write.
          order: draws the order of the actors at each step; None keeps theirs.
        """
        self.counters = Counters()
        self._actors, self.learner, self.replays = list(actors), learner, replays
        self._order = order
        self._episodes = MetricsAccumulator()
        self._since = Counters()
        self._continues = False  # with the parameters that the actors had
        self._acting_seconds = self._learning_seconds = self.seconds = 0.0
        self._is_advancing = False

    @property
    def is_consistent(self) -> bool:
        """Whether `snapshot` makes sense: between steps, and while an environment takes one."""
        return not self._is_advancing or any(actor.is_stepping for actor in self._actors)

    def doing(self) -> str:
        """What a stop has to wait for now, as the end of a sentence."""
        if any(actor.is_stepping for actor in self._actors):
            return f"the environments' step after {self.counters.steps} steps"
        if self._is_advancing:
            return "decisions and updates to be computed"
        return "the evaluation or the snapshot"

    @property
    def has_new_steps(self) -> bool:
        """Whether steps were taken since the last `flush`."""
        return self.counters.steps > self._since.steps

    @property
    def flushed_at(self) -> int:
        """Steps at the last `flush`."""
        return self._since.steps

    def reset(self) -> None:
        """Starts a new episode in every environment, if one cannot wait for the first step."""
        for actor in self._actors:
            actor.reset()

    def start(self) -> None:
        """Gives the actors their first parameters; call it before `advance`."""
        if self._continues:
            return
        self.learner.publish()
        for actor in self._actors:
            actor.start()

    def announce(self, until: int) -> None:
        """Says until which step `advance` will be called, for seeds that are computed together."""

    def advance(self, until: int = 0) -> None:
        """One time step in every environment, and all updates that are due after it.

        Args:
          until: ignored: steps of the run at which a loop of several time steps must return.
        """
        del until
        started, self._is_advancing = time.perf_counter(), True
        self.act()
        acted = time.perf_counter()
        while self.learner.step():
            pass
        self._count_updates()
        learned = time.perf_counter()
        self._acting_seconds += acted - started
        self._learning_seconds += learned - acted
        self.seconds += learned - started
        self._is_advancing = False

    def act(self) -> None:
        """One time step in every environment; the learner is stepped by something else."""
        indices = range(len(self._actors))
        for index in indices if self._order is None else self._order.permutation(len(indices)):
            actor = self._actors[index]
            self.counters.steps += actor.step()
            episodes = actor.take_episodes()
            self.counters.episodes += len(episodes["return"])
            self._episodes.add_episodes(episodes)

    def flush(self) -> tuple[dict[str, float], dict[str, float]]:
        """Means of metrics, and rates per second, since the last call."""
        steps = self.counters.steps - self._since.steps
        updates = self.counters.updates - self._since.updates
        clock = {
            "acting_steps_per_second": _rate(steps, self._acting_seconds),
            "learning_updates_per_second": _rate(updates, self._learning_seconds),
            "steps_per_second": _rate(steps, self._acting_seconds + self._learning_seconds),
        }
        self._since = Counters(**vars(self.counters))
        self._acting_seconds = self._learning_seconds = 0.0
        return {**self._episodes.flush(), **self.learner.metrics.flush()}, clock

    @property
    def returns(self) -> Sequence[float]:
        """Returns of the episodes that ended since the last `flush`."""
        return self._episodes.returns

    def take_episodes(self) -> dict[str, list[float]]:
        """As `Actor.take_episodes`: of the episodes that ended since the last call or `flush`."""
        return self._episodes.take_episodes()

    def snapshot(self) -> Snapshot:
        """Everything but the environments."""
        snapshot = self.learner.snapshot()
        self._count_updates()
        return snapshot._replace(counters=dict(vars(self.counters)), actors=self.actor_states())

    def actor_states(self) -> Any:
        """The states of all actors, `[num_envs, ...]`; valid until the next step."""
        states = [actor.state for actor in self._actors]
        return jax.tree.map(lambda *x: jnp.concatenate(x), *states)

    def open_metrics(self) -> list[Any]:
        """What was added to the metrics since the last `flush`, for `restore`; not copied."""
        self.learner.finish()
        return [vars(self._since), self._episodes.state(), self.learner.metrics.state()]

    def running(self) -> dict[str, Any]:
        """The running episodes, for `restore`: plain data, not copied.

        Raises:
          ValueError: an environment has no state.
        """
        return {
            "actors": [actor.running() for actor in self._actors],
            "order": self._order,
            "learner": self.learner.running(),
        }

    def restore(
        self,
        snapshot: Snapshot,
        open_metrics: Sequence[Any] | None = None,
        running: Mapping[str, Any] | None = None,
    ) -> None:
        """Restores a snapshot.

        Args:
          snapshot: as `snapshot` gave it.
          open_metrics: of the same moment; empty if None.
          running: of the same moment, whose environments have been restored. If None, they begin
            new episodes.
        """
        self.learner.restore(snapshot)
        first = 0
        for actor in self._actors:
            count = len(jax.tree.leaves(actor.state)[0])
            mine = slice(first, first + count)
            actor.state = jax.tree.map(lambda x, mine=mine: x[mine].copy(), snapshot.actors)
            first += count
        self.counters = Counters(**snapshot.counters)
        self._since = Counters(**snapshot.counters)
        if open_metrics is not None:
            since, episodes, updates = open_metrics
            self._since = Counters(**since)
            self._episodes.restore(episodes)
            self.learner.metrics.restore(updates)
        if running is None:
            for replay in self.replays:
                replay.cut()
            return
        for actor, state in zip(self._actors, running["actors"], strict=True):
            actor.restore_running(state)
        self._order = running["order"]
        self.learner.restore_running(running["learner"])
        self._continues = True

    def close(self) -> None:
        """Closes actors and learner."""
        for actor in self._actors:
            actor.close()
        self.learner.close()

    def _count_updates(self) -> None:
        self.counters.updates = self.learner.updates
        self.counters.learning_since = self.learner.learning_since


def _rate(count: int, seconds: float) -> float:
    return count / seconds if count and seconds else float("nan")
