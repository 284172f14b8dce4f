"""The nodes as plain classes: `step` does a little, `run` steps until told to stop.

They know nothing of Launchpad: the other nodes are objects with the same methods, be they clients
or the nodes themselves, so that a test, or a program of one thread, can drive them by hand.
"""

import itertools
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import dm_env
import jax
import numpy as np

from ..agents.base import Agent
from ..environments.types import EnvironmentSpec, TimeStep, VectorEnvironment
from ..evaluation import run_episodes
from ..experiments.snapshots import Snapshot, Snapshots
from ..replay.paced import LearnerReplay
from ..replay.reverb_waiting import Stopped
from .acting import Actor
from .checkpoints import Checkpoints
from .learning import Learner
from .lifecycle import StopEvent
from .parameters import ParameterClient, ParameterServer

_REPORT_SECONDS = 1.0
_POLL_SECONDS = 0.1
_EVALUATING_SHARE = 0.2  # of the evaluator's time; the rest belongs to the others


class CounterCalls(Protocol):
    """What the nodes call: `counting.Counter`, or a client of it."""

    def start(self, counters: Mapping[str, Any], metric_names: list[str]) -> None:
        """The learner is ready."""

    def claim(self, name: str, number: int, taken: int, values: Mapping[str, Any]) -> int:
        """Asks for steps."""
        ...

    def report(self, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Tells how the node is."""
        ...


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
        )
        values = {
            "state": "waiting",
            "return": float(results.returns.mean()),
            "length": float(results.lengths.mean()),
            "version": self._version,
            "final": final,
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
        until = time.monotonic() + max(worked * (1 / _EVALUATING_SHARE - 1), _POLL_SECONDS)
        while time.monotonic() < until and not self._stop.wait(_REPORT_SECONDS / 2):
            if self._counter.report("evaluator/0", {})["phase"] == "evaluating":
                return


class LearnerNode:
    """Updates, publishes, reports, and saves snapshots."""

    def __init__(
        self,
        learner: Learner,
        replay: LearnerReplay,
        parameters: ParameterServer,
        counter: CounterCalls,
        directory: Path,
        *,
        metric_names: list[str],
        counters: Mapping[str, Any],
        snapshot_every: int,
        checkpoints: Checkpoints | None = None,
        report_seconds: float = _REPORT_SECONDS,
        stop: StopEvent,
    ):
        """Takes its parts.

        Args:
          learner: restored already, if the run is.
          replay: the learner's.
          parameters: the learner's.
          counter: is told how it goes.
          directory: the run directory.
          metric_names: of the agent's updates.
          counters: of the snapshot; empty for a new run.
          snapshot_every: steps between snapshots.
          checkpoints: of the replay's server, if it keeps the sequences.
          report_seconds: between reports; 0 reports after every step.
          stop: when to end.
        """
        self._learner, self._replay, self._parameters = learner, replay, parameters
        self._counter, self._stop = counter, stop
        self._snapshots, self._checkpoints = Snapshots(directory), checkpoints
        self._metric_names, self._counters = metric_names, dict(counters)
        self._every, self._report_seconds = snapshot_every, report_seconds
        self._next_snapshot = self._after(self._counters.get("steps", 0))
        self._next_report = 0.0
        self._started = False

    def get(self, version: int) -> tuple[int, bytes | None]:
        """`ParameterServer.get`, which the other nodes call."""
        return self._parameters.get(version)

    def start(self) -> None:
        """Compiles, and lets the actors begin."""
        self._learner.compile()
        self._counter.start(self._counters, self._metric_names)
        self._started = True

    def step(self) -> None:
        """An update if one is due; a report and a snapshot if they are."""
        self._learner.step()
        if time.monotonic() >= self._next_report:
            self._report()
        if self._counters.get("steps", 0) >= self._next_snapshot:
            self.save()

    def run(self) -> None:
        """Compiles, steps until told to stop, and saves a snapshot."""
        try:
            self._counter.report("learner/0", {"state": "compiling"})
            if _beside(self.start, self._stop):
                while not self._stop.is_set():
                    self.step()
        except Stopped:
            pass
        finally:
            self.close()

    def close(self) -> None:
        """Saves a snapshot, if there is anything to save."""
        if self._started:
            self._end()
        self._snapshots.close()

    def save(self) -> None:
        """A snapshot, unless there is one at this step."""
        steps = self._counters["steps"]
        self._next_snapshot = self._after(steps)
        if steps in self._snapshots.steps():
            return
        snapshot = self._learner.save()
        if self._checkpoints is not None:
            self._checkpoints.keep(steps)
        counters = {**snapshot.counters, **self._counters}
        self._snapshots.save(steps, Snapshot(snapshot.learner, snapshot.replay, counters))
        if self._checkpoints is not None:
            self._checkpoints.prune(self._snapshots.steps())

    def _report(self) -> None:
        self._next_report = time.monotonic() + self._report_seconds
        look = self._learner.look()
        counters = self._replay.counters()
        values = {
            "state": "learning" if self._learner.updates else "waiting for rows",
            "metrics": {name: look[name] for name in self._metric_names if name in look},
            "updates": self._learner.updates,
            **{k: v for k, v in counters.items() if k == "learning_since"},
            "updates_per_second": look["updates_per_second"],
            "idle_share": look["idle_share"],
            "replay_rows": self._replay.num_rows,
            "replay_sequences": self._replay.num_sequences,
            "version": self._parameters.version,
        }
        self._counters = self._counter.report("learner/0", _finite(values))["counters"]

    def _end(self) -> None:
        """The last snapshot, at the counter's last word if it still gives one."""
        try:
            self._report()
            self._counter.report("learner/0", {"state": "saving a snapshot"})
        except Stopped:
            pass
        self.save()
        self._replay.close()

    def _after(self, steps: int) -> int:
        return (steps // self._every + 1) * self._every


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


def _beside(work: Callable[[], None], stop: StopEvent) -> bool:
    """Does the work in a thread of its own; False if the program ends before it is done."""
    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    while thread.is_alive() and not stop.is_set():
        thread.join(_POLL_SECONDS)
    if errors:
        raise errors[0]
    return not thread.is_alive()


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """Without NaN, which JSON does not know."""
    return {k: v for k, v in values.items() if not (isinstance(v, float) and not np.isfinite(v))}
