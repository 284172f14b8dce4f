"""A conformance test of environments."""

import contextlib
import logging
from typing import Any

import dm_env
import jax
import numpy as np
from dm_env import specs

from ..datatypes import EnvironmentSpec, TimeStep, VectorEnvironment
from .arrival import fits, legal_actions
from .pure import PureVector, Running, compiled
from .sequential import SequentialVector

_log = logging.getLogger("retrax")
_COMPARED = 10  # steps of two runs of one seed
FIRST, MID, LAST = (int(kind) for kind in dm_env.StepType)


def check_environment(environment: VectorEnvironment, *, steps: int = 200, seed: int = 0) -> None:
    """Steps an environment with random actions and raises at the first violation of the interface.

    It checks the specs, and at each time step: types and shapes; finite values within the
    bounds; first steps after last ones and nowhere else, with reward 0 and discount 1; discount 0
    on last steps only; arrays that the next step does not overwrite. What a Gymnasium or a dm_env
    environment returns must also be in its space by the rules of these libraries
    (`Space.contains`, `Array.validate`), which know exact types and the bounds of floats. The log
    says if ten steps of a Gymnasium environment differ after two resets with one seed. One in JAX
    must reset and step from the same keys alone as in a batch, and be compiled once; the log says
    if `step` restarts.

    Args:
      environment: E of them. It is left at the start of an episode.
      steps: >= 1, steps in each of them. Ends are tested only if episodes end.
      seed: >= 0, of the actions.

    Raises:
      ValueError: names what is wrong (observation, reward, discount, step_type or a spec), in which
        environment and at which step (0 is the reset), what was found and what is allowed.
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}.")
    with contextlib.ExitStack() as stack:
        if isinstance(environment, SequentialVector):
            environment.is_strict = True  # asks for the library's own rules
            stack.callback(setattr, environment, "is_strict", False)
        _check(environment, steps, seed)


def _check(environment: Any, steps: int, seed: int) -> None:
    spec, generator = environment.spec, np.random.default_rng(seed)
    actions, seen = spec.actions, spec.observations
    wanted = np.int32 if isinstance(actions, specs.DiscreteArray) else np.float32
    is_bounded = isinstance(actions, specs.BoundedArray)
    is_finite = is_bounded and fits(actions.minimum) and fits(actions.maximum)
    if not is_finite or actions.dtype != wanted:
        raise ValueError(
            "spec.actions must be an int32 DiscreteArray, or a float32 BoundedArray with finite "
            f"bounds, got {actions}."
        )
    if seen.dtype != np.float32 and not (seen.dtype == np.uint8 and len(seen.shape) == 3):
        raise ValueError(
            "spec.observations must be float32, or uint8 [height, width, channels], got "
            f"{seen.dtype} {[*seen.shape]}."
        )
    alone: Any = isinstance(environment, PureVector) and compiled.__wrapped__(environment.pure)
    timestep = environment.reset()
    _check_step(timestep, np.True_, environment, 0)
    for step in range(1, steps + 2):
        observation, begins = timestep.observation.copy(), timestep.last() | (step > steps)
        given = _random_actions(spec, timestep, generator) if step <= steps else None  # a reset
        before = environment.running if alone else None
        following = environment.reset() if given is None else environment.step(given)
        if before is not None:
            _check_alone(before, given, following, step, *alone)
        if not np.array_equal(timestep.observation, observation):
            raise ValueError(
                f"observation of step {step - 1} was overwritten by step {step}: return a new "
                "array at each step."
            )
        _check_step(following, begins, environment, step)
        timestep = following
    if getattr(environment, "statistics", "none can be seeded again"):
        return
    environment.seed_again()
    run, played = [environment.reset()], []
    for _ in range(_COMPARED):
        played.append(_random_actions(spec, run[-1], generator))
        run.append(environment.step(played[-1]))
    environment.seed_again()
    again = [environment.reset(), *map(environment.step, played)]
    environment.reset()
    for step, pair in enumerate(zip(run, again, strict=True)):
        for name, one, two in zip(TimeStep._fields, *pair, strict=True):
            if not np.array_equal(one, two):
                _log.warning(
                    f"{name} at step {step} differs between two runs with the same seed: the "
                    "environment keeps state across resets, or draws from np.random or random "
                    "instead of self.np_random, so a run cannot be repeated."
                )
                return


def _check_alone(
    before: Running, actions: Any, together: TimeStep, step: int, begin: Any, advance: Any
) -> None:
    """Compares environment 0 with one from the same key and state; no actions: a reset."""
    alone = jax.tree.map(lambda x: x[:1], before)
    keys = jax.random.wrap_key_data(alone.key)
    timestep = (begin(keys) if actions is None else advance(alone, actions[:1])).timestep
    if advance._cache_size() > 1:
        raise ValueError(f"step {step} is compiled again: states must keep structure and types.")
    for name, one, two in zip(TimeStep._fields, timestep, together, strict=True):
        if not np.allclose(one[0], two[0], rtol=1e-3, atol=1e-3):
            raise ValueError(
                f"{name} of environment 0 at step {step} is {two[0]}, but alone it is {one[0]}."
            )
    key = jax.random.split(keys[0], 3)[2:]  # of the step
    if timestep.last() and (begin(key).timestep.observation == timestep.observation).all():
        _log.warning(f"step() must not reset: its observation at step {step} is of a new episode.")


def _random_actions(
    spec: EnvironmentSpec, timestep: TimeStep, generator: np.random.Generator
) -> np.ndarray:
    actions, shape = spec.actions, (len(timestep.reward), *spec.actions.shape)
    if spec.masks_actions:
        legal = legal_actions(timestep.observation, spec)
        return (legal * generator.uniform(0.5, 1, legal.shape)).argmax(axis=1).astype(np.int32)
    if isinstance(actions, specs.DiscreteArray):
        return generator.integers(actions.num_values, size=shape, dtype=np.int32)
    return generator.uniform(actions.minimum, actions.maximum, shape).astype(np.float32)


def _check_step(timestep: TimeStep, after_last: Any, environment: Any, step: int) -> None:
    spec, number = environment.spec, specs.Array((), np.float32)
    kinds = specs.Array((), np.int32), number, number, spec.observations
    for name, kind, value in zip(TimeStep._fields, kinds, timestep, strict=True):
        wanted = f"{kind.dtype} {[environment.num_envs, *kind.shape]}"
        is_array = isinstance(value, np.ndarray)
        found = f"{value.dtype} {[*value.shape]}" if is_array else type(value).__name__
        if found != wanted:
            raise ValueError(f"{name} at step {step} must be a NumPy array {wanted}, got {found}.")
    kind, reward, discount = timestep.step_type, timestep.reward, timestep.discount
    first, seen = kind == FIRST, timestep.observation
    # The field, where it is wrong (`[E, ...]` bool), and what is allowed.
    rules = [
        ("step_type", ~np.isin(kind, (FIRST, MID, LAST)), "0, 1 or 2"),
        ("step_type", after_last & ~first, "0 (FIRST) after a last step or a reset"),
        ("step_type", first & ~after_last, "1 or 2: FIRST comes only after a last step"),
        ("reward", ~np.isfinite(reward), "finite"),
        ("reward", first & (reward != 0), "0 on a first step"),
        ("discount", ~((discount >= 0) & (discount <= 1)), "0 to 1"),
        ("discount", first & (discount != 1), "1 on a first step"),
        ("discount", (kind == MID) & (discount == 0), "above 0, except on a last step"),
        ("observation", ~np.isfinite(seen), "finite"),
    ]
    if isinstance(spec.observations, specs.BoundedArray):
        low, high = spec.observations.minimum, spec.observations.maximum
        rules.append(("observation", seen < low, f"at least {low}"))
        rules.append(("observation", seen > high, f"at most {high}"))
    for name, wrong, allowed in rules:
        if wrong.any():
            e, *index = where = tuple(np.argwhere(wrong)[0].tolist())
            raise ValueError(
                f"{name}{index or ''} of environment {e} at step {step} must be {allowed}, got "
                f"{getattr(timestep, name)[where]}."
            )
