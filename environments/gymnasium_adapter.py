"""Any Gymnasium environment, as a vector of them in arrival form."""

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np

from ..datatypes import DEFAULT_LIMIT, EnvironmentSpec
from .arrival import integer_seeds
from .attributes import Attributes
from .failures import RefusedError, closed_on_error, drawn
from .gymnasium_spaces import convert_actions, convert_observations
from .mujoco_state import MujocoState
from .opengl import choose_backend, drawing
from .sequential import Result, SequentialVector, check_alike

_WRAPPERS = "gymnasium.wrappers."


class GymnasiumVector(SequentialVector):
    """E Gymnasium environments, stepped sequentially in this process.

    An episode that is terminated ends with discount 0; one that is truncated (and not terminated)
    ends with discount 1. Gymnasium's `info` is dropped.

    The specs follow from the spaces: see `gymnasium_spaces`.

    Attributes:
      statistics: a sentence on running statistics of the environments' wrappers; empty without any.

    Args:
      make_one: makes one environment; called E times. It chooses the render mode.
      num_envs: E >= 1.
      seed: >= 0. The episodes of environment e depend on `seed` and e alone, as long as its own
        randomness comes from Gymnasium's `np_random`.
      max_episode_steps: transitions after which episodes are cut off. None leaves that to the
        environments; those without a limit get `datatypes.DEFAULT_LIMIT`.

    Raises:
      ValueError: an argument is out of its range, a space is not supported, or the E
        environments have different spaces or are one and the same object.
    """

    # gymnasium.vector.SyncVectorEnv has the same autoreset (NEXT_STEP), but it is 20 % slower than
    # this loop on CartPole (it copies twice and collects `info`, which we drop), and it does not
    # report which environment returned a wrong reward or an observation of a wrong shape.

    _COUNTERS = (*SequentialVector._COUNTERS, "_seeds")

    def __init__(
        self,
        make_one: Callable[[], gymnasium.Env],
        *,
        num_envs: int = 1,
        seed: int = 0,
        max_episode_steps: int | None = None,
    ) -> None:
        self._seeds: list[int | None] = [int(s) for s in integer_seeds(seed, num_envs)]
        self._environments: list[gymnasium.Env] = []
        with closed_on_error(self._environments):
            for _ in range(num_envs):
                self._environments.append(make_one())
            seen, taken = check_alike(self._environments, "observation_space", "action_space")
            observations, see, note = convert_observations(seen)
            actions, act = convert_actions(taken)
            registered = self._environments[0].spec
            own = registered.max_episode_steps if registered else None
            limit = max_episode_steps if own or max_episode_steps is not None else DEFAULT_LIMIT
            self.statistics = _note_on_statistics(self._environments[0])
            note = " ".join(filter(None, (note, self.statistics)))
            spec = EnvironmentSpec(observations, actions, max_episode_steps=limit or own, note=note)
            super().__init__(spec, see, act, num_envs, limit=limit)
            self._simulations = [_simulation(one.unwrapped) for one in self._environments]

    def render(self) -> np.ndarray:
        """A picture of the first environment: uint8 `[height, width, 3]`.

        Raises:
          ValueError: the environment was made without `render_mode="rgb_array"`.
          ImportError: what it draws with (pygame, OpenGL) is missing; the message says what to do.
        """
        environment = self._environments[0]
        if environment.render_mode != "rgb_array":
            raise RefusedError(
                "this environment was made without rendering: use make(..., render=True), or "
                f'render_mode="rgb_array" in your own function (it is {environment.render_mode!r}).'
            )
        if not hasattr(environment.unwrapped, "mujoco_renderer"):
            return drawn(environment.render)
        choose_backend()
        return drawn(drawing()(environment.render))

    def _begin(self, e: int) -> Any:
        """Resets environment e; the first reset passes its seed."""
        seed, self._seeds[e] = self._seeds[e], None
        return self._environments[e].reset(seed=seed)[0]

    def _advance(self, e: int, action: np.ndarray) -> Result:
        observation, reward, terminated, truncated, _ = self._environments[e].step(action)
        return observation, reward, terminated, truncated

    def _parts(self, e: int) -> list[Attributes | MujocoState]:
        """The environment and its wrappers; their specs and arguments never change."""
        found: list[Attributes | MujocoState] = []
        for wrapper in _wrappers(self._environments[e]):
            statistics = _running_statistics(wrapper)
            found.append(Attributes(wrapper, {"env", "_cached_spec", "_saved_kwargs", *statistics}))
            found += map(Attributes, statistics.values())
        simulation, inner = self._simulations[e], self._environments[e].unwrapped
        simulated = {"model", "data", "mujoco_renderer"} if simulation else set()
        return [*found, Attributes(inner, {"spec"} | simulated), *simulation]


def _wrappers(environment: gymnasium.Env) -> Iterator[gymnasium.Wrapper]:
    """The wrappers of an environment, from outside to inside."""
    while isinstance(environment, gymnasium.Wrapper):
        yield environment
        environment = environment.env


def _running_statistics(wrapper: gymnasium.Wrapper) -> dict[str, Any]:
    """The running means of a wrapper such as NormalizeObservation, by attribute."""
    return {
        name: value
        for name, value in vars(wrapper).items()
        if type(value).__name__ == "RunningMeanStd" and type(value).__module__.startswith(_WRAPPERS)
    }


def _note_on_statistics(environment: gymnasium.Env) -> str:
    """A sentence if wrappers of an environment have running statistics; else nothing."""
    names = [type(each).__name__ for each in _wrappers(environment) if _running_statistics(each)]
    if not names:
        return ""
    return (
        f"The running statistics of {' and '.join(names)} belong to each environment alone: a "
        "resumed run keeps them, evaluations start with new ones."
    )


def _simulation(environment: gymnasium.Env) -> list[MujocoState]:
    """The simulation of one of Gymnasium's MuJoCo environments; empty for all others."""
    model, data = (vars(environment).get(name) for name in ("model", "data"))
    if not all(type(struct).__module__.startswith("mujoco.") for struct in (model, data)):
        return []
    return [MujocoState(model, data)]
