"""Any Gymnasium environment, as a vector of them in arrival form."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np

from ..datatypes import DEFAULT_LIMIT, EnvironmentSpec
from .arrival import integer_seeds
from .failures import RefusedError, close_all, closed_on_error, drawn, failure
from .gymnasium_spaces import convert_actions, convert_observations
from .mujoco_state import MujocoState
from .opengl import choose_backend, drawing
from .sequential import SequentialVector, check_alike

_WRAPPERS = "gymnasium.wrappers."
_EXTRAS = {"pygame": "video", "MuJoCo": "mujoco"}  # from Gymnasium's name to our extra


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
        self._closed = False
        self._environments: list[gymnasium.Env] = []
        with closed_on_error(self._environments):
            for _ in range(num_envs):
                self._environments.append(make_one())
            self._begin_vector(max_episode_steps)

    def _begin_vector(self, max_episode_steps: int | None) -> None:
        """Reads the spaces of the environments."""
        check_alike(
            self._environments,
            lambda one: {
                "observation_space": one.observation_space,
                "action_space": one.action_space,
            },
        )
        observations, see, note = convert_observations(self._environments[0].observation_space)
        actions, act = convert_actions(self._environments[0].action_space)
        registered = self._environments[0].spec
        own = registered.max_episode_steps if registered else None
        limit = max_episode_steps if own or max_episode_steps is not None else DEFAULT_LIMIT
        self.statistics = note_on_statistics(self._environments[0])
        note = " ".join(filter(None, (note, self.statistics)))
        spec = EnvironmentSpec(observations, actions, max_episode_steps=limit or own, note=note)
        super().__init__(spec, see, act, len(self._environments), limit=limit)
        self._simulations = [simulation(one.unwrapped) for one in self._environments]

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
        return drawn(self._render)

    def _render(self) -> Any:
        environment = self._environments[0]
        if not hasattr(environment.unwrapped, "mujoco_renderer"):
            with missing_extras("this environment"):
                return environment.render()
        choose_backend()
        with drawing():
            return environment.render()

    def close(self) -> None:
        """Closes the environments. Calling it twice does no harm."""
        if self._closed:
            return
        self._closed = True
        close_all(self._environments)

    def _begin(self, e: int) -> Any:
        """Resets environment e; the first reset passes its seed."""
        seed, self._seeds[e] = self._seeds[e], None
        return self._environments[e].reset(seed=seed)[0]

    def _advance(self, e: int, action: np.ndarray) -> tuple[Any, Any, Any, Any]:
        observation, reward, terminated, truncated, _ = self._environments[e].step(action)
        return observation, reward, terminated, truncated

    def _parts(self, e: int) -> list[tuple[Any, set[str]]]:
        """The environment and its wrappers; their specs and arguments never change."""
        part, found = self._environments[e], list[tuple[Any, set[str]]]()
        while isinstance(part, gymnasium.Wrapper):
            statistics = running_statistics(part)
            found.append((part, {"env", "_cached_spec", "_saved_kwargs", *statistics}))
            found += [(kept, set()) for kept in statistics.values()]
            part = part.env
        simulated = {"model", "data", "mujoco_renderer"} if self._simulations[e] else set()
        return [*found, (part, {"spec"} | simulated)]

    def _physics(self, e: int) -> list[MujocoState]:
        return self._simulations[e]


def running_statistics(wrapper: gymnasium.Wrapper) -> dict[str, Any]:
    """The running means of a wrapper such as NormalizeObservation, by attribute."""
    return {
        name: value
        for name, value in vars(wrapper).items()
        if type(value).__name__ == "RunningMeanStd" and type(value).__module__.startswith(_WRAPPERS)
    }


def note_on_statistics(environment: gymnasium.Env) -> str:
    """A sentence if wrappers of an environment have running statistics; else nothing."""
    names, part = [], environment
    while isinstance(part, gymnasium.Wrapper):
        names += [type(part).__name__] if running_statistics(part) else []
        part = part.env
    if not names:
        return ""
    return (
        f"The running statistics of {' and '.join(names)} belong to each environment alone: a "
        "resumed run keeps them, evaluations start with new ones."
    )


def simulation(environment: gymnasium.Env) -> list[MujocoState]:
    """The simulation of one of Gymnasium's MuJoCo environments; empty for all others."""
    model, data = (vars(environment).get(name) for name in ("model", "data"))
    if not all(type(struct).__module__.startswith("mujoco.") for struct in (model, data)):
        return []
    return [MujocoState(model, data)]


@contextlib.contextmanager
def missing_extras(name: str) -> Iterator[None]:
    """Names what installs the module that an environment lacks: an extra of ours, if one does.

    Args:
      name: of the environment.

    Raises:
      ImportError: a module is missing; one sentence.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise failure(f"{name} cannot be made", error) from error
    except gymnasium.error.DependencyNotInstalled as error:
        lacks = [name for name in _EXTRAS if name in str(error)]
        if not lacks:
            raise
        raise ImportError(
            f'{name} needs {lacks[0]}, which is missing: pip install "retrax[{_EXTRAS[lacks[0]]}]"'
        ) from error
