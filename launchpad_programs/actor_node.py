"""The actor's node as a plain class: `step` does a little, `run` steps until told to stop."""

import itertools
import time

import dm_env

from ..replay.waiting import Stopped
from .acting import Actor
from .calls import CounterCalls
from .lifecycle import StopEvent
from .parameters import ParameterClient

_POLL_SECONDS = 0.1


class ActorNode:
    """One environment, acted in as often as the counter grants."""

    def __init__(
        self,
        name: str,
        environment: dm_env.Environment,
        actor: Actor,
        client: ParameterClient,
        counter: CounterCalls,
        *,
        stop: StopEvent,
    ):
        """Takes its parts.

        Args:
          name: of the node.
          environment: its own.
          actor: writes rows.
          client: the actor's.
          counter: grants steps.
          stop: when to end.
        """
        self._name, self._environment, self._actor = name, environment, actor
        self._client, self._counter, self._stop = client, counter, stop
        self._timestep: dm_env.TimeStep | None = None
        self._granted = self._taken = 0
        self._calls = itertools.count()
        self._return, self._length = 0.0, 0
        self._ended: dict[str, list[float]] = {"returns": [], "lengths": []}
        self._seen, self._steps = time.monotonic(), 0

    def start(self) -> None:
        """Compiles, and waits for the learner's first parameters."""
        self._state("compiling")
        self._actor.compile(self._environment.reset())
        self._state("waiting for the learner")
        self._client.wait()

    def step(self) -> bool:
        """One time step, if it is granted; whether it was."""
        if self._taken >= self._granted and not self._claim():
            return False
        before = self._timestep
        if before is None or before.last():
            self._timestep = self._environment.reset()
            self._actor.observe_first(self._timestep)
            self._return, self._length = 0.0, 0
        else:
            action = self._actor.select_action(before.observation)
            self._timestep = self._environment.step(action)
            self._actor.observe(action, next_timestep=self._timestep)
            self._count(self._timestep)
        self._actor.update()
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
        """Ends the environment and what the actor sends and fetches."""
        self._client.close()
        self._environment.close()

    def _claim(self) -> bool:
        now = time.monotonic()
        values = {
            "state": "acting",
            "staleness": self._client.staleness,
            "failures": self._client.failures,
            "steps_per_second": self._taken / max(now - self._seen, 1e-6),
            **self._ended,
        }
        self._seen = now
        self._ended = {"returns": [], "lengths": []}
        taken, self._taken = self._taken, 0
        self._granted = self._counter.claim(self._name, next(self._calls), taken, values)
        return self._granted > 0

    def _count(self, timestep: dm_env.TimeStep) -> None:
        self._taken += 1
        self._return += float(timestep.reward)
        self._length += 1
        if timestep.last():
            self._ended["returns"].append(self._return)
            self._ended["lengths"].append(self._length)

    def _state(self, state: str) -> None:
        self._counter.report(self._name, {"state": state})
