"""Environments in JAX of other suites, by their id, and those that users make.

An adapter takes a suite's functions without its restarts. An observation that is one array of three
axes is an image, of uint8, of bools or of floats from 0 to 1; any other one becomes a vector of all
its numbers. Actions of several parts are numbered, the last part changing fastest.
"""

import dataclasses
import functools
import importlib
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import StepType, specs

from ..basics.sentences import did_you_mean
from ..datatypes import DEFAULT_LIMIT, ActionSpec, EnvironmentSpec
from .arrival import check_limit
from .failures import RefusedError, one_sentence
from .pure import PureEnvironment, State, Stepped, Transition

_SCALES = {"uint8": 1, "bool": 255, "float32": 255, "float16": 255, "bfloat16": 255}  # of images


class _Masked(NamedTuple):
    seen: Any
    mask: jax.Array  # of legal actions


@dataclasses.dataclass(frozen=True, eq=False)  # what is compiled for it is found by its identity
class _Adapted:
    spec: EnvironmentSpec
    reset: Callable[[jax.Array], tuple[State, jax.Array]]
    step: Callable[[jax.Array, State, jax.Array], Stepped]
    draw: Callable[[np.ndarray], np.ndarray] | None = None


@functools.lru_cache(maxsize=8)
def make_suite(
    suite: str, name: str, *, max_episode_steps: int | None = None, **switches: Any
) -> PureEnvironment:
    """An environment of a suite; `switches` are arguments of what makes it there."""
    package, listing, maker, adapt = SUITES[suite]
    with one_sentence(f"{suite}:{name} cannot be made"):
        module = importlib.import_module(package)
        known = getattr(module, listing, _CRAFTAX)
        names = [*(known() if callable(known) else known)]
        if name not in names:
            raise RefusedError(f"{suite} has no environment {name!r}{did_you_mean(name, names)}.")
        if suite == "craftax":
            switches["auto_reset"] = False
        made = getattr(module, maker)(name, **switches)
        pure: Any = adapt(*made) if isinstance(made, tuple) else adapt(made)  # with its parameters
        return as_pure(pure, max_episode_steps)


def is_written_in_jax(made: Any) -> bool:
    """Whether it looks like a `PureEnvironment`, or like an environment of gymnax."""
    is_gymnax = hasattr(made, "step_env") and hasattr(made, "default_params")
    return isinstance(getattr(made, "spec", None), EnvironmentSpec) or is_gymnax


@functools.lru_cache(maxsize=16)  # evaluations make new environments, which may be equal
def as_pure(made: Any, max_episode_steps: int | None = None) -> PureEnvironment:
    """What `is_written_in_jax`, whose episodes have a limit: its own if None is given."""
    check_limit(max_episode_steps)
    pure = made if hasattr(made, "spec") else from_gymnax(made)
    limit = max_episode_steps or pure.spec.max_episode_steps or DEFAULT_LIMIT
    if limit == pure.spec.max_episode_steps:
        return pure
    spec = pure.spec._replace(max_episode_steps=limit)
    return _Adapted(spec, pure.reset, pure.step, getattr(pure, "draw", None))


def _adapted(taken: Any, limit: int, reset: Any, step: Any, split: Any) -> PureEnvironment:
    """Of `reset(key)` and `step(state, action, key)`, of whose results `split` makes five parts.

    These are the state, the observation, the reward, and whether it has terminated and truncated.
    """
    actions, act = _actions(taken)

    def see(found: Any) -> jax.Array:
        mask = found.mask.ravel() if isinstance(found, _Masked) else None
        parts = [jnp.asarray(x) for x in jax.tree.leaves(found if mask is None else found.seen)]
        if len(parts) == 1 and parts[0].ndim == 3 and (scale := _SCALES.get(str(parts[0].dtype))):
            if mask is not None:  # a plane each
                planes = jnp.broadcast_to(mask, (*parts[0].shape[:2], mask.size))
                parts = [jnp.concatenate([parts[0], planes], axis=-1)]
            return (parts[0] * scale).astype(jnp.uint8)
        parts += [] if mask is None else [mask]
        return jnp.concatenate([part.ravel().astype(jnp.float32) for part in parts])

    def begin(key: jax.Array) -> tuple[State, jax.Array]:
        state, found, *_ = split(reset(jax.random.key_data(key)))
        return state, see(found)

    def advance(key: jax.Array, state: State, action: jax.Array) -> Stepped:
        state, found, *rest = split(step(state, act(action), jax.random.key_data(key)))
        return state, Transition(see(found), *rest)

    _, found, *_ = jax.eval_shape(lambda: split(reset(jax.random.PRNGKey(0))))
    seen, masks = jax.eval_shape(see, found), isinstance(found, _Masked)
    kind = specs.Array(seen.shape, seen.dtype, "observation")
    if seen.dtype == np.uint8:
        kind = specs.BoundedArray(seen.shape, np.uint8, 0, 255, "observation")
    spec = EnvironmentSpec(kind, actions, max_episode_steps=limit, masks_actions=masks)
    return _Adapted(spec, begin, advance)


def _actions(space: Any) -> tuple[ActionSpec, Callable[[jax.Array], jax.Array]]:
    """The spec of a suite's space or spec, and the function from our actions to its own."""
    sizes = np.asarray(getattr(space, "n", getattr(space, "num_values", 0)))
    if sizes.all():
        spec = specs.DiscreteArray(int(sizes.prod()), np.int32, "action")
        return spec, lambda x: jnp.stack(jnp.unravel_index(x, (*sizes,))) if sizes.ndim else x
    if not hasattr(space, "low"):
        raise RefusedError(f"its actions must be discrete or bounded, got {space}")
    low, high = (np.broadcast_to(x, space.shape) for x in (space.low, space.high))
    box = specs.BoundedArray(tuple(space.shape), np.float32, low, high, "action")
    return box, lambda x: jnp.clip(x, low, high)


def from_gymnax(environment: Any, _: Any = None) -> PureEnvironment:
    """An environment of gymnax's form: `reset_env` and `step_env` with `default_params`.

    gymnax before 1.0 and craftax say `done` for both kinds of ends; an episode that reaches the
    limit of the parameters is truncated here.
    """
    params = environment.default_params
    own = getattr(params, "max_timesteps", DEFAULT_LIMIT)  # craftax's name
    limit = int(getattr(params, "max_steps_in_episode", own))
    size = getattr(environment.observation_space(params), "n", None)

    def step(state: State, action: jax.Array, key: jax.Array) -> Any:
        return environment.step_env(key, state, action, params)

    def split(result: tuple[Any, ...]) -> Any:
        found, state, reward, done = (*result, 0.0, False)[:4]
        time = getattr(state, "time", getattr(state, "timestep", -1))
        late = jnp.asarray((time >= limit) & (not hasattr(environment, "is_truncated")))
        seen = found if size is None else jax.nn.one_hot(found, size)
        return state, seen, reward, done & ~late, done & late

    taken = environment.action_space(params)
    return _adapted(taken, limit, lambda key: environment.reset_env(key, params), step, split)


def from_pgx(game: Any) -> PureEnvironment:
    """A game of pgx for one player, with masks except for MinAtar's: every action is legal."""
    if game.num_players != 1:
        raise RefusedError(f"pgx:{game.id} must be for one player, but it has {game.num_players}.")
    masks = not game.id.startswith("minatar-")

    def split(state: Any) -> Any:
        seen = _Masked(state.observation, state.legal_action_mask) if masks else state.observation
        return state, seen, state.rewards[0], state.terminated, state.truncated

    actions = specs.DiscreteArray(int(game.num_actions))
    return _adapted(actions, DEFAULT_LIMIT, game.init, game.step, split)


def _from_brax(environment: Any) -> PureEnvironment:
    def split(state: Any) -> Any:
        return state, state.obs, state.reward, state.done > 0, False

    taken = types.SimpleNamespace(shape=(environment.action_size,), low=-1.0, high=1.0)
    limit = 1000  # steps, as in the training that comes with brax
    return _adapted(taken, limit, environment.reset, lambda s, a, _: environment.step(s, a), split)


def _from_jumanji(environment: Any) -> PureEnvironment:
    """Its time limits, many of which terminate episodes there, truncate them."""
    limit = getattr(environment, "time_limit", None) or DEFAULT_LIMIT
    taken = environment.action_spec
    sizes = (*np.atleast_1d(getattr(taken, "num_values", 0)),)

    def split(result: Any) -> Any:
        state, timestep = result
        seen, mask = timestep.observation, getattr(timestep.observation, "action_mask", None)
        seen = _Masked(seen, mask) if mask is not None and mask.shape == sizes else seen
        last = timestep.step_type == StepType.LAST
        over = last & (timestep.discount == 0) & (getattr(state, "step_count", -1) < limit)
        return state, seen, timestep.reward, over, last

    return _adapted(taken, limit, environment.reset, lambda s, a, _: environment.step(s, a), split)


def _from_xminigrid(environment: Any, params: Any) -> PureEnvironment:
    """Tiles and colours are channels of an image."""
    from xminigrid.core.constants import NUM_COLORS, NUM_TILES

    def split(state: Any) -> Any:
        codes = zip(jnp.moveaxis(state.observation, -1, 0), (NUM_TILES, NUM_COLORS), strict=True)
        seen = jnp.concatenate([jax.nn.one_hot(*each) for each in codes], -1)
        last = state.step_type == StepType.LAST
        return state, seen, state.reward, last & (state.discount == 0), last

    reset, step = (functools.partial(f, params) for f in (environment.reset, environment.step))
    actions = specs.DiscreteArray(environment.num_actions(params))
    return _adapted(actions, params.max_steps, reset, lambda s, a, _: step(s, a), split)


_CRAFTAX = [f"Craftax-{x}-v1" for x in ("Symbolic", "Pixels", "Classic-Symbolic", "Classic-Pixels")]
# Their module, its names of environments, its maker, and the adapter.
SUITES: dict[str, tuple[str, str, str, Callable[..., PureEnvironment]]] = {
    "brax": ("brax.envs", "_envs", "get_environment", _from_brax),
    "craftax": ("craftax.craftax_env", "", "make_craftax_env_from_name", from_gymnax),
    "gymnax": ("gymnax", "registered_envs", "make", from_gymnax),
    "jumanji": ("jumanji", "registered_environments", "make", _from_jumanji),
    "pgx": ("pgx", "available_envs", "make", from_pgx),
    "xminigrid": ("xminigrid", "registered_environments", "make", _from_xminigrid),
}
