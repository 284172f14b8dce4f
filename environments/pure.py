"""Environments written in JAX: the protocol, automatic restarts, and vectors of them for the host.

`E` denotes the environments that are stepped together.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..basics.prng_keys import is_key, with_keys, without_keys
from ..datatypes import EnvironmentSpec, TimeStep
from .arrival import arrival, check_finite, check_legal, check_numbers, checked_actions
from .failures import RefusedError, drawn, one_sentence
from .observations import place

State: TypeAlias = Any  # a pytree of arrays, whatever the environment needs


class Transition(NamedTuple):
    """What an action leads to; the arrays have no leading axes."""

    observation: jax.Array  # of the next state, the last one of an episode too
    reward: jax.Array  # float []
    terminated: Any  # bool []: the episode is over, and nothing follows
    truncated: Any = np.False_  # bool []: the episode is cut off; ignored where `terminated`


Stepped: TypeAlias = tuple[State, Transition]


class PureEnvironment(Protocol):
    """One environment as pure, jittable functions; who calls them begins and cuts off episodes.

    It may have a method `draw(observation)`, which makes a picture: uint8 `[height, width, 3]`.
    """

    @property
    def spec(self) -> EnvironmentSpec:
        """What it takes and gives."""

    def reset(self, key: jax.Array) -> tuple[State, jax.Array]:
        """The state and the observation at which an episode begins."""

    def step(self, key: jax.Array, state: State, action: jax.Array) -> Stepped:
        """The next state, and what arrives with it."""


class Running(NamedTuple):
    """An environment in the middle of an episode."""

    key: jax.Array  # of its random numbers; raw, so that it is saved as other arrays are
    state: State
    length: jax.Array  # int32 [], transitions of the episode
    timestep: TimeStep  # the newest


def begin(environment: PureEnvironment, keys: jax.Array) -> Running:
    """Starts the first episodes; `keys` `[E]` are typed keys (`jax.random.key`)."""
    pairs = jax.vmap(jax.random.split)(keys)
    return _strong(jax.vmap(functools.partial(_first, environment))(pairs[:, 0], pairs[:, 1]))


def advance(environment: PureEnvironment, running: Running, actions: jax.Array) -> Running:
    """One time step of each, `[E, ...]`. After a last one, the next episode begins instead.

    Where none begins, none is reset: some suites take longer to begin an episode than to step.
    """

    def step(running: Running, action: jax.Array) -> tuple[Running, jax.Array]:
        key, reset_key, step_key = jax.random.split(jax.random.wrap_key_data(running.key), 3)
        state, (seen, reward, *ends) = environment.step(step_key, running.state, action)
        length, (terminated, truncated) = running.length + 1, (jnp.asarray(x, bool) for x in ends)
        if (limit := environment.spec.max_episode_steps) is not None:
            truncated |= length >= limit
        timestep = arrival(seen, reward, terminated, truncated, np.False_, jnp)
        return Running(jax.random.key_data(key), state, length, timestep), reset_key

    def again(ended: jax.Array, going: Running, reset_key: jax.Array) -> Running:
        begun = _first(environment, jax.random.wrap_key_data(going.key), reset_key)
        return jax.tree.map(lambda new, old: jnp.where(ended, new, old), begun, going)

    going, reset_keys = jax.vmap(step)(running, actions)
    ended = running.timestep.last()
    new = lax.cond(ended.any(), lambda: jax.vmap(again)(ended, going, reset_keys), lambda: going)
    return _strong(new)


def _first(environment: PureEnvironment, key: jax.Array, reset_key: jax.Array) -> Running:
    state, observation = environment.reset(reset_key)
    timestep = arrival(observation, 0, np.False_, np.False_, np.True_, jnp)
    return Running(jax.random.key_data(key), state, jnp.zeros((), jnp.int32), timestep)


def _strong(running: Running) -> Running:
    """Without weak types, as brax has some: a step on them would be compiled again."""
    return jax.tree.map(lambda x: x if is_key(x) else lax.convert_element_type(x, x.dtype), running)


class PureVector:
    """E environments, each like `pure`, for runs on the host; `running` is their state, if any."""

    def __init__(
        self, environment: PureEnvironment, *, num_envs: int = 1, seed: int = 0, name: str = ""
    ) -> None:
        check_numbers(seed, num_envs)
        check_pure(environment, name)
        hashable: Any = environment  # if it has fields, it is a frozen dataclass
        self.pure, self.num_envs, self.spec = hashable, num_envs, environment.spec
        self._keys = environment_keys(jax.random.key(seed), num_envs)
        self.running: Running | None = None
        self._num_steps = 0  # since the last reset(), or since the state was restored
        self._begin, self._advance = compiled(hashable)

    def reset(self) -> TimeStep:
        """Starts a new episode in every environment: first steps, `[E, ...]`."""
        keys = self._keys if self.running is None else jax.random.wrap_key_data(self.running.key)
        self.running, self._num_steps = self._begin(keys), 0
        return self._timestep()

    def step(self, actions: np.ndarray) -> TimeStep:
        """Steps every environment: from actions `[E, ...]` to time steps `[E, ...]`."""
        actions = checked_actions(actions, self.spec.actions, self.num_envs)
        if self.running is None:
            return self.reset()
        self.running = self._advance(self.running, actions)
        self._num_steps += 1
        return self._timestep()

    def state(self) -> list[np.ndarray]:
        """See `Resumable`."""
        if self.running is None:
            raise ValueError("The environments have not been reset yet.")
        return leaves_of(self.running)

    def restore(self, state: Sequence[np.ndarray]) -> None:
        """See `Resumable`."""
        self.running = with_leaves(jax.eval_shape(self._begin, self._keys), state)

    def render(self) -> np.ndarray:
        """A picture of the first environment: uint8 `[height, width, 3]`."""
        if self.running is None:
            raise ValueError("there is nothing to render before reset().")
        observation = np.asarray(self.running.timestep.observation[0])
        if not (draw := getattr(self.pure, "draw", None)):
            raise RefusedError("the environment cannot be drawn: it has no method draw.")
        return drawn(lambda: draw(observation))

    def close(self) -> None:
        """Does nothing: there is nothing to release."""

    def _timestep(self) -> TimeStep:
        assert self.running is not None
        timestep = TimeStep(*map(np.array, self.running.timestep))
        name = functools.partial(place, self.spec.observations.shape)
        check_finite(timestep.reward, timestep.observation, self._num_steps, name)
        check_legal(timestep.observation, timestep.discount == 0, self.spec, self._num_steps)
        return timestep


@functools.lru_cache(maxsize=16)  # evaluations make new environments
def compiled(environment: Any) -> tuple[Callable[..., Running], ...]:
    """`begin` and `advance` of a hashable environment, jitted."""
    return tuple(jax.jit(functools.partial(each, environment)) for each in (begin, advance))


def environment_keys(key: jax.Array, num_envs: int) -> jax.Array:
    """Keys `[E]`, of which the first ones stay the same when E grows."""
    return jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(num_envs))


def leaves_of(tree: Any) -> list[np.ndarray]:
    """The arrays of a tree, with PRNG keys as numbers: plain data."""
    return [np.array(x) for x in jax.tree.leaves(without_keys(tree))]


def with_leaves(like: Any, leaves: Sequence[np.ndarray]) -> Any:
    """The inverse of `leaves_of`; a ValueError if the leaves do not fit the tree."""
    wanted, structure = jax.tree.flatten(like)
    plain = jax.eval_shape(without_keys, wanted)
    needed, found = ([f"{x.dtype} {x.shape}" for x in each] for each in (plain, leaves))
    if needed != found:
        raise ValueError(f"a state of another environment: {found} instead of {needed}")
    return jax.tree.unflatten(structure, with_keys(wanted, [jnp.array(x) for x in leaves]))


def check_pure(environment: Any, name: str = "") -> None:
    """Refuses, by a ValueError, what has no such methods, or does not return what its spec says."""
    name = name or type(environment).__name__
    spec = getattr(environment, "spec", None)
    if not isinstance(spec, EnvironmentSpec) or hasattr(environment, "num_envs"):
        raise ValueError(
            f"{name} is not an environment written in JAX: it must have a spec (EnvironmentSpec), "
            "reset(key) and step(key, state, action)."
        )

    def both(key: jax.Array, action: jax.Array) -> Any:
        state, observation = environment.reset(key)
        following, transition = environment.step(key, state, action)
        return [(state, observation), (following, transition.observation)], transition

    action = jax.ShapeDtypeStruct(spec.actions.shape, spec.actions.dtype)
    with one_sentence(f"{name} cannot be traced by JAX"):
        found, transition = jax.eval_shape(both, jax.eval_shape(lambda: jax.random.key(0)), action)
    number, flag = ("one number", "fiub"), ("one bool", "iub")
    for field, (kind, letters) in {"reward": number, "terminated": flag, "truncated": flag}.items():
        value = getattr(transition, field)
        if value.shape or value.dtype.kind not in letters:
            raise ValueError(
                f"{name} must return a {field} that is {kind}, got {value.dtype} {value.shape}."
            )
    wanted = f"{spec.observations.dtype} {spec.observations.shape}"
    for _, seen in found:
        if (given := f"{seen.dtype} {seen.shape}") != wanted:
            raise ValueError(f"{name} must return observations {wanted}, got {given}.")
    first, second = (jax.tree.map(lambda x: (x.shape, x.dtype.name), state) for state, _ in found)
    if first != second:
        raise ValueError(
            f"{name} must return states of the same types from reset and from step, got {first} "
            f"and {second}."
        )
