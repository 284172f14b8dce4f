"""Structures, shapes and dtypes of an agent's functions, checked by tracing: nothing is compiled.

`E` denotes environments, `B` a batch, `T + 1` the rows of a sequence.
"""

import operator
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..basics.sentences import reason
from ..datatypes import EnvironmentSpec, SequenceSpec, TimeStep, sample_shape
from .base import Agent, Decision, Update
from .entry import AgentEntry

_NAMED = 3  # paths in an error message
_NUM_ACTORS = 2
_BATCH = 3  # another size than that of the actors


def check_agent_shapes(
    agent: Agent, environment_spec: EnvironmentSpec, *, entry: AgentEntry | None = None
) -> None:
    """Checks that an agent's functions fit together, the environment and the replay.

    It traces each function with arguments of the right shapes and checks the results: actions,
    extras, states, gradients, priorities and metrics. It takes one or two seconds. `check_agent`
    checks values too.

    Args:
      agent: the agent.
      environment_spec: of an environment that it was made for.
      entry: the agent's entry; its `episode_metrics` and `evaluation_modes` are then checked.

    Raises:
      ValueError: one sentence that names the function, what is wrong and what is expected. A
        network of a wrong size is one of the reasons.
    """
    check_precision()
    if not isinstance(agent, Agent):
        raise ValueError(f"make_agent must return an Agent; its type is {type(agent).__name__}.")
    key = jax.eval_shape(lambda: jax.random.key(0))
    learner = _trace("init", agent.init, key)
    params = _trace("acting_params", agent.acting_params, learner)
    actor_id = jax.ShapeDtypeStruct((), np.int32)
    actor = _trace("begin", lambda key, id: agent.begin(key, id, _NUM_ACTORS), key, actor_id)
    timestep = timestep_shape(environment_spec)
    for name in ("explore", "exploit"):
        decision = _trace(name, getattr(agent, name), params, actor, timestep)
        _check_decision(name, decision, actor, environment_spec, agent.sequence)
        if entry is not None:
            _check_names(name, decision.extras, entry)
    sample = sample_shape(environment_spec, agent.sequence, _BATCH)
    gradients = _check_gradients(_trace("gradients", agent.gradients, learner, sample))
    updated = _trace("apply", agent.apply, learner, gradients)
    _check_like("apply", "the learner state", updated, learner)


def check_precision() -> None:
    """Refuses JAX's flag for numbers of 64 bits, which changes the types of every agent's arrays.

    Raises:
      ValueError: names the flag.
    """
    if jax.dtypes.canonicalize_dtype(np.float64) == np.float64:
        raise ValueError(
            "JAX's flag jax_enable_x64 is on, but agents compute in 32 bits: unset JAX_ENABLE_X64, "
            "or remove the line that sets it, which may be in the environment's module."
        )


def timestep_shape(environment_spec: EnvironmentSpec) -> TimeStep:
    """Shapes and dtypes of a time step of one environment."""
    seen, number = environment_spec.observations, jax.ShapeDtypeStruct((), np.float32)
    return TimeStep(
        step_type=jax.ShapeDtypeStruct((), np.int32),
        reward=number,
        discount=number,
        observation=jax.ShapeDtypeStruct(seen.shape, seen.dtype),
    )


def _trace(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Shapes of what one of an agent's functions returns for arguments of these shapes."""
    changed = False

    def checked(*arguments: Any) -> Any:
        nonlocal changed
        before, structure = jax.tree.flatten(arguments)
        outputs = function(*arguments)
        after, found = jax.tree.flatten(arguments)
        changed = str(structure) != str(found) or any(map(operator.is_not, before, after))
        return outputs

    try:
        outputs = jax.eval_shape(checked, *arguments)
    except Exception as error:  # those of JAX, chex, Haiku and the agent have no common type
        raise ValueError(
            f"Agent.{name} cannot be traced with arguments of the environment's and the agent's "
            f"shapes: {reason(error)}."
        ) from error
    if changed:
        raise ValueError(f"Agent.{name} must not change its arguments.")
    return outputs


def _check_like(name: str, what: str, found: Any, wanted: Any) -> None:
    """Refuses a pytree, returned by a function, that has not the shapes and dtypes of another."""
    given, expected = _leaves(found), _leaves(wanted)
    if str(jax.tree.structure(found)) != str(jax.tree.structure(wanted)):
        missing = _some("missing", expected.keys() - given.keys())
        unexpected = _some("unexpected", given.keys() - expected.keys())
        details = "; ".join(filter(None, [missing, unexpected])) or "the types of nodes differ"
        raise ValueError(f"Agent.{name}: {what} has the wrong structure ({details}).")
    for path, leaf in expected.items():
        _check_leaf(name, what + path, given[path], leaf.shape, leaf.dtype)


def _check_leaf(name: str, what: str, found: Any, shape: tuple[int, ...], dtype: Any) -> None:
    """Refuses an array, returned by a function, of another shape or dtype."""
    if found.shape != shape or found.dtype != dtype:
        raise ValueError(
            f"Agent.{name}: {what} must be {_text(shape, dtype)}, got "
            f"{_text(found.shape, found.dtype)}."
        )


def _check_decision(
    name: str, decision: Any, actor: Any, spec: EnvironmentSpec, sequence: SequenceSpec
) -> None:
    if not isinstance(decision, Decision):
        raise ValueError(f"Agent.{name} must return a Decision, got a {type(decision).__name__}.")
    if not hasattr(decision.action, "shape"):
        raise ValueError(f"Agent.{name}: the action must be an array, got {decision.action}.")
    _check_leaf(name, "the action", decision.action, spec.actions.shape, spec.actions.dtype)
    if name == "explore":
        _check_like(name, "extras", decision.extras, sequence.extras)
    _check_like(name, "the actor state", decision.state, actor)


def _check_names(name: str, extras: Any, entry: AgentEntry) -> None:
    """The extras that the entry names: metrics while training, modes while evaluating."""
    names = entry.episode_metrics if name == "explore" else entry.evaluation_modes
    for extra in names:
        if extra not in extras:
            field = "episode_metrics" if name == "explore" else "evaluation_modes"
            raise ValueError(
                f"Agent.{name} must return the extra {extra!r}, which AgentEntry.{field} names."
            )
        dtype = extras[extra].dtype if name == "explore" else np.dtype(bool)
        _check_leaf(name, f"the extra {extra!r}", extras[extra], (), dtype)


def _check_gradients(outputs: Any) -> Any:
    """Checks what `Agent.gradients` returned, and returns the gradients."""
    if not (isinstance(outputs, tuple) and len(outputs) == 2 and isinstance(outputs[1], Update)):
        raise ValueError("Agent.gradients must return the pair (Gradients, Update).")
    gradients, update = outputs
    for path, leaf in _leaves(gradients).items():
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise ValueError(
                f"Agent.gradients: gradients{path} must be floats, which can be averaged, got "
                f"{leaf.dtype}."
            )
    _check_like(
        "gradients",
        "priorities",
        update.priorities,
        jax.ShapeDtypeStruct((_BATCH,), np.float32),
    )
    if not isinstance(update.metrics, dict):
        raise ValueError(
            f"Agent.gradients: metrics must be a dictionary, got a {type(update.metrics).__name__}."
        )
    for metric, value in update.metrics.items():
        scalar = jax.ShapeDtypeStruct((), np.float32)
        _check_like("gradients", f"the metric {metric!r}", value, scalar)
    return gradients


def _leaves(tree: Any) -> dict[str, Any]:
    """The leaves by their paths."""
    return {
        jax.tree_util.keystr(path): leaf
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]
    }


def _some(label: str, paths: Iterable[str]) -> str:
    """The first paths, in words; empty if there are none."""
    names = sorted(path or "the array" for path in paths)
    more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return f"{label}: {', '.join([*names[:_NAMED], *more])}" if names else ""


def _text(shape: tuple[int, ...], dtype: Any) -> str:
    return f"{getattr(dtype, 'name', dtype)} {[*shape]}"
