"""The actor's node as a plain class: `step` does a little, `run` steps until told to stop."""

import itertools
import time
from collections.abc import Mapping

import numpy as np
from dm_env import StepType

from ..datatypes import TimeStep, VectorEnvironment
from ..evaluation.episodes import RunningReturns
from ..replay.waiting import Stopped
from .acting import VectorActor
from .actor_states import ActorStates
from .calls import CounterCalls
from .lifecycle import StopEvent
from .parameters import ParameterClient

_POLL_SECONDS = 0.1


class ActorNode:
    """Some environments, acted in as often as the counter grants."""

    def __init__(
        self,
        name: str,
        environment: VectorEnvironment,
        actor: VectorActor,
        client: ParameterClient,
        counter: CounterCalls,
        *,
        states: ActorStates,
        save_every: int,
        stop: StopEvent,
    ):
        """Takes its parts.

        Args:
          name: of the node.
          environment: its own.
          actor: writes rows.
          client: the actor's.
          counter: grants steps.
          states: where the actor's state is kept for a resumed run.
          save_every: own steps between that.
          stop: when to end.
        """
        self._name, self._environment, self._actor = name, environment, actor
        self._client, self._counter, self._stop = client, counter, stop
        self._states, self._save_every, self._next_save = states, save_every, save_every
        self._timesteps: TimeStep = environment.reset()
        self._granted = self._taken = 0
        self._calls = itertools.count()
        self._total = 0  # steps taken, ever
        self._running = RunningReturns(environment.num_envs)
        self._ended: dict[str, list[float]] = {}  # of episodes, by the name of what it is
        self._seen = time.monotonic()

    def start(self) -> None:
        """Compiles, and waits for the learner's first parameters."""
        self._state("compiling")
        self._actor.compile(self._timesteps)
        self._state("waiting for the learner")
        self._client.wait()

    def step(self) -> bool:
        """One time step in each environment, if it is granted; whether it was."""
        if self._taken >= self._granted and not self._claim():
            return False
        before = self._timesteps
        actions = self._actor.act(before)
        self._note(self._actor.episode_extras)
        self._timesteps = self._environment.step(actions)
        self._count(before, self._timesteps)
        self._actor.update()
        if self._total >= self._next_save:
            self._save()
        return True

    def run(self) -> None:
        """Waits for the learner, then steps until told to stop."""
        try:
            self.start()
            while not self._stop.is_set():
                if not self.step():
                    self._stop.wait(_POLL_SECONDS)
        except Stopped:
            pass
        finally:
            self.close()

    def close(self) -> None:
        """Keeps the actor's state; ends the environments and what the actor fetches."""
        self._save()
        self._client.close()
        self._environment.close()

    def _claim(self) -> bool:
        now = time.monotonic()
        values = {
            "state": "acting",
            "staleness": self._client.staleness,
            "failures": self._client.failures,
            "steps_per_second": self._taken / max(now - self._seen, 1e-6),
            "episodes": self._ended,
        }
        self._seen = now
        self._ended = {}
        taken, self._taken = self._taken, 0
        self._granted = self._counter.claim(self._name, next(self._calls), taken, values)
        return self._granted > 0

    def _count(self, before: TimeStep, after: TimeStep) -> None:
        taken = int(np.sum(before.step_type != StepType.LAST))
        self._taken += taken
        self._total += taken
        _, returns, lengths = self._running.add(after)
        self._note({"return": returns.tolist(), "length": lengths.tolist()})

    def _note(self, ended: Mapping[str, list[float]]) -> None:
        for name, values in ended.items():
            self._ended.setdefault(name, []).extend(values)

    def _save(self) -> None:
        self._next_save = self._total + self._save_every
        self._states.save(self._actor.state)

    def _state(self, state: str) -> None:
        self._counter.report(self._name, {"state": state})
