"""The evaluator's node as a plain class: `step` does a little, `run` steps until told to stop."""

import time

import jax
import numpy as np

from ..agents.base import ActorState, Agent
from ..datatypes import EnvironmentSpec, TimeStep, VectorEnvironment
from ..evaluation.episodes import run_episodes
from ..replay.waiting import Stopped
from .calls import CounterCalls
from .lifecycle import StopEvent
from .parameters import ParameterClient

_POLL_SECONDS = 0.1
_REPORT_SECONDS = 0.5
_SHARE = 0.2  # of the time that is spent evaluating; the rest belongs to the others


class EvaluatorNode:
    """Greedy episodes in environments of its own, with the newest parameters, now and then."""

    def __init__(
        self,
        agent: Agent,
        environment: VectorEnvironment,
        client: ParameterClient,
        counter: CounterCalls,
        *,
        episodes: int,
        key: jax.Array,
        stop: StopEvent,
    ):
        """Takes its parts.

        Args:
          agent: whose `exploit` is used.
          environment: its own.
          client: brings the parameters; not threaded.
          counter: is told the returns.
          episodes: of one evaluation.
          key: a PRNG key.
          stop: when to end.
        """
        self._agent, self._client, self._counter = agent, client, counter
        self._environment = _Interruptible(environment, stop)
        self._episodes, self._key, self._stop = episodes, key, stop
        self._version = -1
        self._states: ActorState = None  # an agent may learn which behaviour to choose

    def start(self) -> None:
        """Waits for the learner's first parameters."""
        self._counter.report("evaluator/0", {"state": "waiting for the learner"})
        self._client.wait()

    def step(self) -> bool:
        """An evaluation, if there are newer parameters, or the run has taken its last step."""
        phase = self._counter.report("evaluator/0", {"state": "waiting"})["phase"]
        self._client.step()
        final = phase == "evaluating"
        if phase == "finished" or (self._client.version == self._version and not final):
            return False
        self._counter.report("evaluator/0", {"state": "evaluating"})
        self._version = self._client.version
        self._key, key = jax.random.split(self._key)
        results = run_episodes(
            self._agent,
            self._client.params,
            self._environment,
            key=key,
            num_episodes=self._episodes,
            states=self._states,
        )
        self._states = results.states
        values = {
            "state": "waiting",
            "return": float(results.returns.mean()),
            "length": float(results.lengths.mean()),
            "version": self._version,
            "final": final,
            "metrics": {
                f"evaluator_return_{name}": float(returns.mean())
                for name, returns in results.returns_by_mode().items()
                if len(returns)
            },
        }
        self._counter.report("evaluator/0", values)
        return True

    def run(self) -> None:
        """Waits for the learner, then evaluates until told to stop."""
        try:
            self.start()
            while not self._stop.is_set():
                started = time.monotonic()
                self.step()
                self._rest(time.monotonic() - started)
        except Stopped:
            pass
        finally:
            self.close()

    def close(self) -> None:
        """Ends the environment."""
        self._client.close()
        self._environment.close()

    def _rest(self, worked: float) -> None:
        """Leaves the processor to the others for a while, unless the run is at its end."""
        until = time.monotonic() + max(worked * (1 / _SHARE - 1), _POLL_SECONDS)
        while time.monotonic() < until and not self._stop.wait(_REPORT_SECONDS):
            if self._counter.report("evaluator/0", {})["phase"] == "evaluating":
                return


class _Interruptible:
    """An environment whose episodes end with the program: by `Stopped`."""

    def __init__(self, environment: VectorEnvironment, stop: StopEvent):
        self._environment, self._stop = environment, stop
        self.num_envs = environment.num_envs
        self.reset, self.render, self.close = (
            environment.reset,
            environment.render,
            environment.close,
        )

    @property
    def spec(self) -> EnvironmentSpec:
        return self._environment.spec

    def step(self, actions: np.ndarray) -> TimeStep:
        if self._stop.is_set():
            raise Stopped("Stopped in the middle of an episode.")
        return self._environment.step(actions)
