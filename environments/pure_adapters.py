"""Environments in JAX of other libraries, and those that users make."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from ..basics.sentences import did_you_mean
from ..datatypes import DEFAULT_LIMIT, EnvironmentSpec
from .arrival import check_limit
from .pure import PureEnvironment, State, Stepped, Transition


def is_written_in_jax(made: Any) -> bool:
    """Whether it looks like a `PureEnvironment`, or like an environment of gymnax."""
    return isinstance(getattr(made, "spec", None), EnvironmentSpec) or _is_gymnax(made)


def as_pure(made: Any, max_episode_steps: int | None = None) -> PureEnvironment:
    """An environment that a user made, whose episodes have a limit: its own if None is given."""
    check_limit(max_episode_steps)
    if _is_gymnax(made):
        made = Gymnax(made)
    limit = max_episode_steps or made.spec.max_episode_steps or DEFAULT_LIMIT
    limited: Any = _Limited(made, limit)
    return made if limit == made.spec.max_episode_steps else limited


def _is_gymnax(made: Any) -> bool:
    return hasattr(made, "step_env") and hasattr(made, "default_params")


@dataclasses.dataclass(frozen=True)
class _Limited:
    environment: PureEnvironment
    limit: int

    @property
    def spec(self) -> EnvironmentSpec:
        return self.environment.spec._replace(max_episode_steps=self.limit)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.environment, name)


class Pgx:
    """A game of pgx for one player. Boards of bools are images, and so is a mask: a plane each."""

    def __init__(self, game: Any) -> None:
        if game.num_players != 1:
            raise ValueError(
                f"pgx:{game.id} must be a game for one player, it has {game.num_players} players."
            )
        masks = not game.id.startswith("minatar-")  # in which every action is legal
        self._game, (*board, channels) = game, game.observation_shape
        shape = (*board, channels + masks * game.num_actions)
        seen = specs.BoundedArray(shape, np.uint8, 0, 255, "observation")
        actions = specs.DiscreteArray(int(game.num_actions), np.int32, "action")
        spec = EnvironmentSpec(seen, actions, max_episode_steps=DEFAULT_LIMIT)
        self.spec = spec._replace(masks_actions=masks)

    def reset(self, key: jax.Array) -> tuple[State, jax.Array]:
        """See `PureEnvironment`."""
        state = self._game.init(key)
        return state, self._seen(state)

    def step(self, key: jax.Array, state: State, action: jax.Array) -> Stepped:
        """See `PureEnvironment`."""
        state = self._game.step(state, action, key)
        reward = state.rewards[0]
        return state, Transition(self._seen(state), reward, state.terminated, state.truncated)

    def _seen(self, state: State) -> jax.Array:
        seen = state.observation
        if self.spec.masks_actions:
            seen = with_mask(seen, state.legal_action_mask)
        return (seen * 255).astype(jnp.uint8)


def with_mask(observation: jax.Array, mask: jax.Array) -> jax.Array:
    """An observation `[..., D]` with a mask `[A]` behind it: `[..., D + A]`."""
    planes = jnp.broadcast_to(mask, (*observation.shape[:-1], *mask.shape))
    return jnp.concatenate([observation, planes], axis=-1)


@functools.lru_cache(maxsize=8)  # what is compiled for an environment is found by its identity
def make_pgx(game: str) -> Pgx:
    """A game of pgx by its name."""
    try:
        import pgx
    except ImportError:
        raise ImportError(
            f"pgx:{game} needs the package pgx: pip install 'retrax[device]'"
        ) from None
    if game not in pgx.available_envs():
        raise ValueError(f"pgx has no game {game!r}{did_you_mean(game, pgx.available_envs())}.")
    return Pgx(pgx.make(game))


class Gymnax:
    """An environment of the form of gymnax's: `reset_env` and `step_env` with parameters.

    gymnax before 1.0 says `done` for both kinds of ends; an episode that reaches
    `max_steps_in_episode` of the parameters is truncated here.
    """

    def __init__(self, environment: Any) -> None:
        self._environment, self._params = environment, environment.default_params
        actions = environment.action_space(self._params)
        seen = environment.observation_space(self._params)
        if hasattr(actions, "n"):
            allowed: specs.Array = specs.DiscreteArray(int(actions.n), np.int32, "action")
        elif hasattr(actions, "low"):
            shape = tuple(actions.shape)
            bounds = (np.broadcast_to(x, shape) for x in (actions.low, actions.high))
            allowed = specs.BoundedArray(shape, np.float32, *bounds, "action")
        else:
            raise ValueError(f"{type(environment).__name__} must have discrete or bounded actions.")
        self._limit = int(getattr(self._params, "max_steps_in_episode", DEFAULT_LIMIT))
        self._is_mixed = not hasattr(environment, "is_truncated")
        observations = specs.Array(tuple(seen.shape), np.float32, "observation")
        self.spec = EnvironmentSpec(observations, allowed, max_episode_steps=self._limit)

    def reset(self, key: jax.Array) -> tuple[State, jax.Array]:
        """See `PureEnvironment`."""
        observation, state = self._environment.reset_env(key, self._params)
        return state, jnp.asarray(observation, jnp.float32)

    def step(self, key: jax.Array, state: State, action: jax.Array) -> Stepped:
        """A step, after which the environment does not restart by itself."""
        stepped = self._environment.step_env(key, state, action, self._params)
        observation, state, reward, done, *_ = stepped
        late = self._is_mixed & jnp.asarray(getattr(state, "time", -1) >= self._limit)
        observation = jnp.asarray(observation, jnp.float32)
        return state, Transition(observation, reward, done & ~late, done & late)
