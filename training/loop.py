"""The loop of one process, without files: act, store, learn, in a fixed order.

With several actors, which may have parameters of their own, it is a program in one thread.
"""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ..agents.base import LearnerState, Params
from ..replay.interface import RowStore
from ..replay.local import LocalReplay
from .actor import Actor
from .learner import Counters, Learner, MetricsAccumulator, Snapshot

if TYPE_CHECKING:
    from .workers import WorkersInTurn


class Tally:
    """What every loop counts, and its means of metrics; if it takes many steps, `until` so many."""

    def __init__(
        self, replays: Sequence[RowStore], metrics: MetricsAccumulator, names: Sequence[str]
    ):
        """Begins at 0 steps; `metrics` are those of updates since the last `flush`."""
        self.replays, self.metric_names = replays, names
        self.counters, self.until = Counters(), 0
        self._since = self._timed_since = Counters()
        self._episodes, self._metrics = MetricsAccumulator(), metrics
        self._acting_seconds = self._learning_seconds = 0.0
        self._is_advancing = False

    @property
    def is_consistent(self) -> bool:
        """Whether `snapshot` makes sense: between steps, and while an environment takes one."""
        return not self._is_advancing

    def doing(self) -> str:
        """What a stop has to wait for now, as the end of a sentence."""
        if self._is_advancing:
            return "decisions and updates to be computed"
        return "the evaluation or the snapshot"

    @property
    def flushed_at(self) -> int:
        """Steps at the last `flush`."""
        return self._since.steps

    @property
    def returns(self) -> Sequence[float]:
        """Returns of the episodes that ended since the last `flush`."""
        return self._episodes.returns

    def flush(self) -> tuple[dict[str, float], dict[str, float]]:
        """Means of metrics, and rates per second, since the last call."""
        steps = self.counters.steps - self._timed_since.steps
        updates = self.counters.updates - self._timed_since.updates
        clock = {
            "acting_steps_per_second": _rate(steps, self._acting_seconds),
            "learning_updates_per_second": _rate(updates, self._learning_seconds),
            "steps_per_second": _rate(steps, self._acting_seconds + self._learning_seconds),
        }
        self._since = self._timed_since = Counters(**vars(self.counters))
        self._acting_seconds = self._learning_seconds = 0.0
        return {**self._episodes.flush(), **self._metrics.flush()}, clock

    def open_metrics(self) -> list[Any]:
        """What was added to the metrics since the last `flush`, for `restore`; not copied."""
        return [vars(self._since), self._episodes.open, self._metrics.open]

    def _restore(self, counters: Mapping[str, Any], open_metrics: Sequence[Any] | None) -> None:
        self.counters = Counters(**counters)
        self._since = Counters(**counters)
        self._timed_since = self._since  # seconds are not restored
        if open_metrics is not None:
            since, self._episodes.open, self._metrics.open = open_metrics
            self._since = Counters(**since)


class Loop(Tally):
    """Actors and a learner, stepped in turn; deterministic for a seed."""

    def __init__(
        self,
        actors: Sequence[Actor],
        learner: "Learner | WorkersInTurn",
        replays: Sequence[LocalReplay],
        *,
        order: np.random.Generator | None = None,
    ):
        """Begins at 0 steps; `order` draws the order of the actors at each step, None keeps it."""
        super().__init__(replays, learner.metrics, learner.metric_names)
        self._actors, self.learner, self._order = list(actors), learner, order
        self._replays, self._is_started = replays, False

    @property
    def learner_state(self) -> LearnerState:
        """The learner state; its buffers may be donated to the next update."""
        return self.learner.state

    @property
    def params(self) -> Params:
        """The newest acting parameters."""
        return self.learner.params

    @property
    def is_consistent(self) -> bool:
        """See `Tally`."""
        return super().is_consistent or any(actor.is_stepping for actor in self._actors)

    def doing(self) -> str:
        """See `Tally`."""
        if any(actor.is_stepping for actor in self._actors):
            return f"the environments' step after {self.counters.steps} steps"
        return super().doing()

    def reset(self) -> None:
        """Starts a new episode in every environment, if one cannot wait for the first step."""
        for actor in self._actors:
            actor.reset()

    def start(self) -> None:
        """Gives the actors their first parameters, if they have none; `advance` does, too."""
        if not self._is_started:
            self._is_started = True
            self.learner.publish()
            for actor in self._actors:
                actor.start()

    def advance(self) -> None:
        """One time step in every environment, and all updates that are due after it."""
        started, self._is_advancing = time.perf_counter(), True
        self.start()
        self.act()
        acted = time.perf_counter()
        while self.learner.step():
            pass
        self._count_updates()
        learned = time.perf_counter()
        self._acting_seconds += acted - started
        self._learning_seconds += learned - acted
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
        """See `Tally`."""
        self.learner.finish()
        return super().open_metrics()

    def running(self) -> dict[str, Any]:
        """The running episodes, for `restore`: plain data, not copied; see `Actor.running`."""
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
        """Restores a snapshot, and what `open_metrics` and `running` returned at its moment.

        Without `running`, for which environments were restored, they begin new episodes.
        """
        self.learner.restore(snapshot)
        first = 0
        for actor in self._actors:
            count = len(jax.tree.leaves(actor.state)[0])
            mine = slice(first, first + count)
            actor.state = jax.tree.map(lambda x, mine=mine: x[mine].copy(), snapshot.actors)
            first += count
        self._restore(snapshot.counters, open_metrics)
        if running is None:
            for replay in self._replays:
                replay.cut()
            return
        for actor, state in zip(self._actors, running["actors"], strict=True):
            actor.restore_running(state)
        self._order = running["order"]
        self.learner.restore_running(running["learner"])
        self._is_started = True

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
