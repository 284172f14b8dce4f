"""The evaluator's node: greedy episodes with the newest parameters; it keeps the best ones."""

import math
from typing import Any

from ..agents.base import Agent
from ..datatypes import TimeStep, VectorEnvironment
from ..environments.failures import close_quietly
from ..evaluation.evaluations import Evaluation, evaluation_environments
from ..replay.interface import Stopped
from ..training.learner import ParameterClient
from ..training.run_config import Purpose
from ..training.snapshots import BestParameters
from .actor import parameters_of
from .config import ProgramConfig
from .node import SAVE_SECONDS, CounterClient, Node, Peers

_ENVIRONMENTS = 4  # stepped together
_REPORT_SECONDS = 0.5
_FINAL_SECONDS = 60.0  # of its own processor time, at the end of the run
_SHARE = 0.1  # of the time; with 0.2 actors on two cores lose a tenth of their speed


class EvaluatorNode(Node):
    """Evaluates when there are newer parameters, and once more at the end of the run.

    Until then it works for a fixed share of the time, and rests within evaluations too. The last
    one has limited processor time: at the lowest priority the clock says little.
    """

    def __init__(
        self,
        config: ProgramConfig,
        agent: Agent,
        environment: VectorEnvironment,
        parameters: ParameterClient,
        peers: Peers,
    ):
        """The node closes its parts; `parameters` are not threaded."""
        super().__init__(peers)
        self._environment, self._parameters = environment, parameters
        self._counter = CounterClient(config, "evaluator/0", peers)
        run, seed = config.run, config.derive_seed(Purpose.EVALUATOR)
        options: Any = {"episodes": run.evaluation_episodes, "before_step": self._before_step}
        self._evaluation = Evaluation(run, agent, environment, seed=seed, **options)
        self._version, self._steps, self._learned = -1, 0, False  # steps as the counter answered
        self._rested_at, self._until = self._clock.monotonic(), math.inf
        self._best = BestParameters(config.directory)
        if not config.continues:
            self._best.forget()  # an earlier program's, which ended before its first snapshot

    def start(self) -> None:
        """Waits for the learner's first parameters."""
        self._report(state="waiting for the learner")
        self._parameters.wait(SAVE_SECONDS)  # the replay may restore as long as it saved

    def step(self) -> bool:
        """Evaluates, if there is anything to evaluate, and rests; False."""
        self.evaluate()
        self._rest()
        return False

    def evaluate(self) -> None:
        """Evaluates newer parameters, if there are any, and once more the run's last ones."""
        self._report(state="waiting")
        phase, final = self._counter.phase, self._learned
        self._parameters.step()
        params, version = self._parameters.params, self._parameters.version
        is_due = final or (version != self._version and phase != "evaluating")
        if phase == "finished" or not is_due:
            return
        self._report(state="evaluating")
        steps, self._version = self._steps, version
        try:
            means = self._evaluation.run(params, None, steps).means()
        except Stopped:
            if self._stop.is_set():
                raise
            self._report(state="waiting", final=True)
            return
        self._best.offer(params, mean_return=means["return"], steps=steps)
        shown = {name: means.pop(name) for name in ("return", "length")}
        metrics = {f"evaluator_{name}": value for name, value in means.items()}
        self._report(state="waiting", version=version, final=final, metrics=metrics, **shown)

    def close(self) -> None:
        """Closes parameters and environment."""
        self._parameters.close()
        close_quietly(self._environment)

    def _report(self, **values: Any) -> None:
        answer = self._counter.report(**values)
        if answer["learned"] and not self._learned:
            self._until = self._clock.process_time() + _FINAL_SECONDS
        self._steps, self._learned = answer["counters"]["steps"], answer["learned"]

    def _before_step(self, _: TimeStep) -> None:
        self._rest()
        if self._stop.is_set() or self._clock.process_time() > self._until:
            raise Stopped("Stopped in the middle of an episode.")

    def _rest(self) -> None:
        """Waits in proportion to the work since the last rest, unless the last step is taken."""
        now = self._clock.monotonic()
        until = now + (now - self._rested_at) * (1 / _SHARE - 1)
        if until - now < _REPORT_SECONDS:  # until then, it works
            return
        while self._counter.phase not in ("evaluating", "finished") and now < until:
            if self._stop.wait(min(_REPORT_SECONDS, until - now)):
                break
            self._report()
            now = self._clock.monotonic()
        self._rested_at = self._clock.monotonic()


def make_evaluator(config: ProgramConfig, index: int, peers: Peers) -> EvaluatorNode:
    """The evaluator."""
    run, seed = config.run, config.derive_seed(Purpose.EVALUATOR)
    num_envs = min(run.evaluation_episodes, _ENVIRONMENTS)
    environment = evaluation_environments(run, seed=seed, num_envs=num_envs)
    agent = config.make_agent(environment.spec)
    parameters = parameters_of(config, agent, peers, update_period=1, threaded=False)
    return EvaluatorNode(config, agent, environment, parameters, peers)
