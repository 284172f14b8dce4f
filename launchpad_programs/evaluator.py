"""The evaluator's node: greedy episodes with the newest parameters; it keeps the best ones."""

import time
from typing import Any

import jax

from ..agents.base import ActorState, Agent
from ..datatypes import VectorEnvironment
from ..evaluation.episodes import Interruptible, run_episodes
from ..replay.waiting import Stopped
from ..runtime.best_parameters import BestParameters
from ..runtime.parameters import ParameterClient, packing_of
from ..runtime.seeds import Purpose, derive_seed
from ..runtime.stop import StopEvent
from .config import ProgramConfig
from .counter import Counter, CounterClient

_NAME = "evaluator/0"
_ENVIRONMENTS = 4  # stepped together
_POLL_SECONDS = 0.1
_REPORT_SECONDS = 0.5
_SHARE = 0.2  # of the time, at most; the processor is needed elsewhere


class EvaluatorNode:
    """Evaluates when there are newer parameters, and once more at the end of the run."""

    def __init__(
        self,
        config: ProgramConfig,
        agent: Agent,
        environment: VectorEnvironment,
        parameters: ParameterClient,
        counter: Counter | CounterClient,
        *,
        key: jax.Array,
        stop: StopEvent,
    ):
        """Takes its parts.

        Args:
          config: of the program.
          agent: whose `exploit` is used.
          environment: its own; the node closes it.
          parameters: not threaded.
          counter: receives reports.
          key: a PRNG key.
          stop: when to end.
        """
        self._agent, self._parameters, self._counter = agent, parameters, counter
        self._environment: Any = Interruptible(environment, stop)
        self._episodes, self._modes = (
            config.run.evaluation_episodes,
            config.run.entry.evaluation_modes,
        )
        self._key, self._stop = key, stop
        self._version = -1
        self._states: ActorState = None  # an agent may learn over evaluations
        self._steps = 0  # of the run, when the node last reported
        self._best = BestParameters(config.directory)
        if not config.continues:
            self._best.forget()  # those of a program that ended before its first snapshot

    def start(self) -> None:
        """Waits for the learner's first parameters."""
        self._report(state="waiting for the learner")
        self._parameters.wait()

    def step(self) -> None:
        """Evaluates if there are newer parameters or the run has taken its last step."""
        phase = self._report(state="waiting")
        self._parameters.step()
        final = phase == "evaluating"
        if phase == "finished" or (self._parameters.version == self._version and not final):
            return
        self._report(state="evaluating")
        self._version, params, steps = (
            self._parameters.version,
            self._parameters.params,
            self._steps,
        )
        self._key, key = jax.random.split(self._key)
        results = run_episodes(
            self._agent,
            params,
            self._environment,
            key=key,
            num_episodes=self._episodes,
            states=self._states,
            modes=self._modes,
        )
        self._states = results.states
        means = results.means()
        self._best.offer(params, mean_return=means["return"], steps=steps)
        shown = {name: means.pop(name) for name in ("return", "length")}
        metrics = {f"evaluator_{name}": value for name, value in means.items()}
        self._report(state="waiting", version=self._version, final=final, metrics=metrics, **shown)

    def run(self) -> None:
        """Waits for the learner, then evaluates until the program ends."""
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
        """Closes parameters and environment."""
        self._parameters.close()
        self._environment.close()

    def _report(self, **values: Any) -> str:
        """Reports; the phase of the run."""
        answer = self._counter.report(_NAME, values)
        self._steps = answer["counters"]["steps"]
        phase: str = answer["phase"]
        return phase

    def _rest(self, worked: float) -> None:
        """Waits in proportion to the work, unless the run has taken its last step."""
        until = time.monotonic() + max(worked * (1 / _SHARE - 1), _POLL_SECONDS)
        while time.monotonic() < until and not self._stop.wait(_REPORT_SECONDS):
            if self._report() == "evaluating":
                return


def make_evaluator(
    config: ProgramConfig, *, counter: Any, learner: Any, stop: StopEvent
) -> EvaluatorNode:
    """The evaluator; called in its node with Courier clients of the others."""
    seed = derive_seed(config.run.seed, Purpose.EVALUATOR, *config.part)
    num_envs = min(config.run.evaluation_episodes, _ENVIRONMENTS)
    environment = config.run.make_environment(seed=seed, num_envs=num_envs)
    agent = config.make_agent(environment.spec)
    parameters = ParameterClient(
        learner.get, packing_of(agent), update_period=1, stop=stop.is_set, threaded=False
    )
    return EvaluatorNode(
        config,
        agent,
        environment,
        parameters,
        CounterClient(counter, stop),
        key=jax.random.key(seed),
        stop=stop,
    )
