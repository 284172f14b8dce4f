"""Counts illegal actions of agents whose environments have a mask, in training and evaluations.

    python -m grid_worlds.legal_actions [AGENT...] [--environments ledge game2048 taxi]
                                        [--where process device program] [--steps 100000]
                                        [--engine ray]

For each agent, environment and topology: at least `--steps` actions in training and as many of the
greedy policy, and how many of them were illegal. The environments judge each action by the mask
that they gave before it: an illegal one costs a billion and ends the episode, so that returns count
them. First comes uniform play without the mask, whose illegal actions must be found. Exit status 1
if they are not, or if an agent plays one. `ledge` is `grid_worlds:Ledge`, `game2048`
`jumanji:Game2048-v1` and `taxi` `Taxi-v4`, which is not written in JAX and so not run on a device.
"""

import argparse
import contextlib
import dataclasses
import math
import pathlib
import sys
import tempfile
from typing import Any

import gymnasium
import numpy as np

from retrax import EngineOptions, RunConfig, evaluate, launch, load_metrics, train
from retrax.environments import make
from retrax.environments.pure import Transition
from retrax.environments.suites import make_suite

from .ledge import Ledge

HERE = pathlib.Path(__file__).parents[1]  # `examples`
ID = "grid_worlds.legal_actions:judged,name="
UNIFORM = 300  # steps
PRICE = 1e9  # of an illegal action; the returns of all episodes together are far smaller


@dataclasses.dataclass(frozen=True)
class JudgedInJax:
    """An environment in JAX that judges actions by the mask of its previous observation."""

    judged: Any

    @property
    def spec(self):
        """The other's."""
        return self.judged.spec

    def reset(self, key):
        """See `PureEnvironment`."""
        state, seen = self.judged.reset(key)
        return (state, self._legal(seen)), seen

    def step(self, key, state, action):
        """See `PureEnvironment`."""
        state, legal = state
        is_wrong = ~legal[action]
        state, (seen, reward, terminated, truncated) = self.judged.step(key, state, action)
        found = Transition(seen, reward - PRICE * is_wrong, terminated | is_wrong, truncated)
        return (state, self._legal(seen)), found

    def _legal(self, seen):
        return seen[-self.spec.actions.num_values :] > 0.5


class JudgedTaxi(gymnasium.Wrapper):
    """Taxi, which judges actions by its own rule."""

    def __init__(self):
        super().__init__(gymnasium.make("Taxi-v4"))

    def step(self, action):
        """See `gymnasium.Env`."""
        is_wrong = not self.unwrapped.action_mask(self.unwrapped.s)[action]
        seen, reward, terminated, truncated, info = super().step(action)
        return seen, reward - PRICE * is_wrong, terminated or is_wrong, truncated, info


def judged(name: str):
    """An environment that judges."""
    if name == "taxi":
        return JudgedTaxi()
    return JudgedInJax(Ledge() if name == "ledge" else make_suite("jumanji", "Game2048-v1"))


def uniform(environment, steps):
    """Illegal actions of uniform play without the mask."""
    vector, illegal = make(ID + environment, search_path=HERE), 0
    generator = np.random.default_rng(0)
    vector.reset()
    for _ in range(steps):
        action = generator.integers(vector.spec.actions.num_values, size=1, dtype=np.int32)
        illegal += int(vector.step(action).reward[0] < -PRICE / 2)
    vector.close()
    return illegal


def play(agent, environment, where, run, *, steps, engine="ray"):
    """Actions, and illegal ones, of training and of evaluations."""
    config = RunConfig(
        agent=agent,
        environment=ID + environment,
        steps=steps,
        num_actors=2 if where == "program" else 1,
        evaluate_every=0,
        on_device=where == "device",
        search_path=str(HERE),
    )
    if (agent, where) == ("reactor", "device"):  # has no contextual selection
        small = config.entry.config_of("small")
        small = dataclasses.replace(
            small, replay=dataclasses.replace(small.replay, selector="uniform")
        )
        config = dataclasses.replace(config, preset="small", agent_config=small)
    if where == "program":
        launch(config, run, engine=EngineOptions(engine=engine))
    else:
        train(config, run, plain=True)
    metrics = load_metrics(run)
    episodes = np.diff(metrics["episodes"], prepend=0)
    explored = int(metrics["steps"].max()), count(episodes, metrics["episode_return"])
    taken, illegal, episodes, seed = 0, 0, 20, 0
    while taken < steps:
        scores = evaluate(run, episodes=episodes, seed=seed)
        taken += round(scores.mean_length * scores.episodes)
        illegal += count(scores.episodes, scores.mean_return)
        # As many episodes as are missing, by the mean length of these.
        episodes, seed = math.ceil((steps - taken) / scores.mean_length), seed + 1
    return explored, (taken, illegal)


def count(episodes, mean_return):
    """Illegal actions of so many episodes, by their mean returns (NaN where there were none)."""
    return round(float(np.nansum(-episodes * np.asarray(mean_return))) / PRICE)


def main():
    """Prints the counts; ends with status 1 if they are wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("agents", nargs="*", default=["acer", "agent57", "reactor"])
    parser.add_argument("--environments", nargs="*", default=["ledge", "game2048", "taxi"])
    parser.add_argument("--where", nargs="*", default=["process", "device", "program"])
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--engine", choices=["ray", "launchpad", "threads"], default="ray")
    given, failed = parser.parse_args(), False
    for environment in given.environments:
        illegal = uniform(environment, UNIFORM)
        print(f"{environment}, uniform play: {illegal} illegal of {UNIFORM}", flush=True)
        failed |= illegal == 0
        for agent in given.agents:
            for where in given.where:
                if (environment, where) == ("taxi", "device"):
                    continue
                with (
                    tempfile.TemporaryDirectory() as folder,
                    contextlib.redirect_stdout(sys.stderr),
                ):
                    run = pathlib.Path(folder) / "run"
                    found = play(
                        agent, environment, where, run, steps=given.steps, engine=given.engine
                    )
                (explored, wrong), (evaluated, greedy) = found
                failed |= wrong + greedy > 0
                print(
                    f"{environment}, {agent}, {where}: {wrong} illegal of {explored:,} in "
                    f"training, {greedy} of {evaluated:,} in evaluations",
                    flush=True,
                )
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
