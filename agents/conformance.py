"""The conformance test of agents, for those in this package and for yours.

`check_agent_shapes` traces an agent's functions and compiles nothing; `check_agent` also acts and
learns on random data. `E` denotes environments, `B` a batch, `T + 1` the rows of a sequence.
"""

import functools
import operator
import re
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import StepType, specs

from ..basics.prng_keys import with_keys, without_keys
from ..basics.sentences import reason
from ..datatypes import EnvironmentSpec, Row, Sample, SequenceSpec, TimeStep, rows_of, sample_shape
from ..networks import legal_actions
from .base import Agent, Decision, Update
from .entry import AgentEntry

_NUMBER = jax.ShapeDtypeStruct((), np.float32)
_NAMED = 3  # paths in an error message
_NUM_ACTORS = 2
_BATCH = 3  # not the number of actors
_LEAST_STEPS = 16  # of a rollout: enough actions to find one that is out of bounds
_UPDATES = 3


def check_agent_shapes(
    agent: Agent, environment_spec: EnvironmentSpec, *, entry: AgentEntry | None = None
) -> None:
    """Checks that an agent's functions fit each other, the environment and the replay.

    It traces each function with arguments of the right shapes and checks the results: actions,
    extras, states, gradients, priorities and metrics, in one or two seconds. `check_agent` checks
    values too.

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
    if not isinstance(agent.sequence, SequenceSpec):
        raise ValueError(f"Agent.sequence must be a SequenceSpec, got {agent.sequence!r:.60}.")
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
    """Refuses JAX's flag for numbers of 64 bits, which changes the types of all arrays."""
    if jax.dtypes.canonicalize_dtype(np.float64) == np.float64:
        raise ValueError(
            "JAX's flag jax_enable_x64 is on, but agents compute in 32 bits: unset JAX_ENABLE_X64, "
            "or remove the line that sets it, which may be in the environment's module."
        )


def timestep_shape(environment_spec: EnvironmentSpec) -> TimeStep:
    """Shapes and dtypes of a time step of one environment."""
    kind, seen = jax.ShapeDtypeStruct((), np.int32), environment_spec.observations
    return TimeStep(kind, _NUMBER, _NUMBER, jax.ShapeDtypeStruct(seen.shape, seen.dtype))


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
    except Exception as error:  # JAX's, chex's, Haiku's and the agent's have no common type
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
        if given[path].shape != leaf.shape or given[path].dtype != leaf.dtype:
            raise ValueError(
                f"Agent.{name}: {what}{path} must be {_text(leaf)}, got {_text(given[path])}."
            )


def _check_decision(
    name: str, decision: Any, actor: Any, spec: EnvironmentSpec, sequence: SequenceSpec
) -> None:
    if not isinstance(decision, Decision):
        raise ValueError(f"Agent.{name} must return a Decision, got a {type(decision).__name__}.")
    if not hasattr(decision.action, "shape"):
        raise ValueError(f"Agent.{name}: the action must be an array, got {decision.action}.")
    _check_like(name, "the action", decision.action, spec.actions)
    if name == "explore":
        _check_like(name, "extras", decision.extras, sequence.extras)
    _check_like(name, "the actor state", decision.state, actor)


def _check_names(name: str, extras: Any, entry: AgentEntry) -> None:
    field = "episode_metrics" if name == "explore" else "evaluation_modes"
    for extra in getattr(entry, field):
        if extra not in extras:
            raise ValueError(
                f"Agent.{name} must return the extra {extra!r}, which AgentEntry.{field} names."
            )
        if not extra.isprintable():
            raise ValueError(f"AgentEntry.{field} must be printable, got {extra!r}.")
        dtype = extras[extra].dtype if name == "explore" else np.dtype(bool)
        _check_like(name, f"the extra {extra!r}", extras[extra], jax.ShapeDtypeStruct((), dtype))


def _check_gradients(outputs: Any) -> Any:
    if not (isinstance(outputs, tuple) and len(outputs) == 2 and isinstance(outputs[1], Update)):
        raise ValueError("Agent.gradients must return the pair (Gradients, Update).")
    gradients, update = outputs
    for path, leaf in _leaves(gradients).items():
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise ValueError(
                f"Agent.gradients: gradients{path} must be floats, which can be averaged, got "
                f"{leaf.dtype}."
            )
    wanted = jax.ShapeDtypeStruct((_BATCH,), np.float32)
    _check_like("gradients", "priorities", update.priorities, wanted)
    if not isinstance(update.metrics, dict):
        raise ValueError(
            f"Agent.gradients: metrics must be a dictionary, got a {type(update.metrics).__name__}."
        )
    for metric, value in update.metrics.items():
        if not (isinstance(metric, str) and metric.isprintable()):
            raise ValueError(f"Agent.gradients: metric names must be printable, got {metric!r}.")
        _check_like("gradients", f"the metric {metric!r}", value, _NUMBER)
    return gradients


def _leaves(tree: Any) -> dict[str, Any]:
    named, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): leaf for path, leaf in named}


def _some(label: str, paths: Iterable[str]) -> str:
    names = sorted(path or "the array" for path in paths)
    more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return f"{label}: {', '.join([*names[:_NAMED], *more])}" if names else ""


def _text(x: Any) -> str:
    return f"{getattr(x.dtype, 'name', x.dtype)} {[*x.shape]}"


def check_agent(
    agent: Agent,
    environment_spec: EnvironmentSpec,
    *,
    num_envs: int = 2,
    entry: AgentEntry | None = None,
    seed: int = 0,
) -> None:
    """Acts and learns on random data, and raises at the first violation of the contract.

    After `check_agent_shapes` it compiles every function and checks that

    * it is pure: the same arguments give the same results, in two traces and in two calls;
    * it is compiled once, for first, intermediate and last steps, for states that it returned and
      for states that were restored from NumPy arrays, as from a snapshot;
    * actions are within the bounds of the spec, and legal where observations have a mask;
    * gradients are finite, also their mean over two batches, with sequences that end by
      termination and by truncation; priorities are finite and >= 0;
    * gradients and priorities do not depend on the action of an episode's last row, after which
      nothing was done, nor on masked rows, which are padding.

    Args:
      agent: the agent.
      environment_spec: of an environment that it was made for.
      num_envs: E >= 2: environments that act together, and sequences B of a batch.
      entry: the agent's entry; its `episode_metrics` and `evaluation_modes` are then checked.
      seed: of the random data.

    Raises:
      ValueError: one sentence that names the function, what is wrong and what is expected.
    """
    if num_envs < 2:
        raise ValueError(f"num_envs must be at least 2, got {num_envs}.")
    check_agent_shapes(agent, environment_spec, entry=entry)
    sequence, generator = agent.sequence, np.random.default_rng(seed)
    actions, seen = environment_spec.actions, environment_spec.observations

    def make_timesteps(terminates: bool) -> list[TimeStep]:
        """Time steps `[E, ...]`; in every second environment an episode ends half-way."""
        end = sequence.length // 2
        kinds = np.full((max(sequence.length, _LEAST_STEPS), num_envs), StepType.MID, np.int32)
        ends = np.arange(num_envs) % 2 == terminates
        kinds[0] = StepType.FIRST
        kinds[end, ends] = StepType.LAST
        kinds[end + 1 : end + 2, ends] = StepType.FIRST
        reward = generator.normal(size=kinds.shape) * (kinds != StepType.FIRST)
        discount = np.where((kinds == StepType.LAST) & terminates, 0.0, 1.0)
        shape = (*kinds.shape, *seen.shape)
        is_integer = np.issubdtype(seen.dtype, np.integer)
        values = generator.integers(256, size=shape) if is_integer else generator.normal(size=shape)
        if isinstance(seen, specs.BoundedArray):
            values = np.clip(values, seen.minimum, seen.maximum)
        numbers = reward.astype(np.float32), discount.astype(np.float32)
        together = TimeStep(kinds, *numbers, values.astype(seen.dtype))
        if environment_spec.masks_actions:
            size = (*kinds.shape, *[1] * (len(seen.shape) - 1), actions.num_values)
            together.observation[..., -actions.num_values :] = generator.integers(2, size=size)
        return [jax.tree.map(lambda x, t=t: x[t], together) for t in range(len(kinds))]

    def play(name: str, state: Any, timesteps: list[TimeStep]) -> tuple[Row, Any]:
        """The first sequence `[E, T + 1, ...]`, and the last state."""
        act, rows = acting[name], []
        low, high = actions.minimum, actions.maximum
        for step, timestep in enumerate(timesteps):
            decision: Decision = act(params, state, timestep)
            action, extras = jax.tree.map(np.asarray, (decision.action, decision.extras))
            wrong = ~((action >= low) & (action <= high))  # NaN is wrong too
            if environment_spec.masks_actions:
                legal = legal_actions(jnp.asarray(timestep.observation), actions.num_values)
                wrong |= ~np.asarray(legal[np.arange(num_envs), action])
            if wrong.any():
                raise ValueError(
                    f"Agent.{name}: the action must be legal, within {low} and {high}, got "
                    f"{action[wrong][0]} at time step {step}."
                )
            rows.append(rows_of(timestep, action, extras))
            if step == 0 and not _equal(act(params, _restored(state), timestep), decision):
                raise ValueError(f"Agent.{name}: results differ with a restored actor state.")
            state = decision.state
        return jax.tree.map(lambda *x: np.stack(x, axis=1), *rows[: sequence.length]), state

    def serve(rows: Row, padding: Row) -> Sample:
        """As a replay serves sequences: behind the mask are rows of `padding`."""
        mask = np.cumsum(rows.is_last, axis=1) - rows.is_last == 0
        mask |= sequence.crosses_episodes
        rows = jax.tree.map(lambda x, other: _where(mask, x, other), rows, padding)
        # The same frame as often as one is seen at once: the values do not matter.
        frames = np.concatenate([rows.observation] * sequence.frame_stack, axis=-1)
        first = {
            name: jax.tree.map(lambda x: x[:, 0], rows.extras[name])
            for name in sequence.first_row_extras
        }
        rows = rows._replace(observation=frames, extras={**rows.extras, **first})
        return Sample(rows, np.linspace(0.1, 1.0, num_envs, dtype=np.float32), mask)

    def other_actions(action: np.ndarray) -> np.ndarray:
        """Legal ones."""
        if isinstance(actions, specs.DiscreteArray):
            return (action + 1) % actions.num_values
        low, high = (np.clip(bound, -1.0, 1.0) for bound in (actions.minimum, actions.maximum))
        return generator.uniform(low, high, action.shape)

    learner = _compiled("init", agent.init)(jax.random.key(seed))
    params = _compiled("acting_params", agent.acting_params)(learner)
    begin = _compiled(
        "begin", lambda keys, ids: jax.vmap(agent.begin, (0, 0, None))(keys, ids, num_envs)
    )
    acting = {
        name: _compiled(name, jax.vmap(getattr(agent, name), (None, 0, 0)))
        for name in ("exploit", "explore")
    }
    for name in acting:
        keys = jax.random.split(jax.random.key(int(generator.integers(2**31))), num_envs)
        start = begin(keys, np.arange(num_envs, dtype=np.int32))
        terminated, after = play(name, start, make_timesteps(terminates=True))
        truncated, _ = play(name, after, make_timesteps(terminates=False))

    zeros = jax.tree.map(np.zeros_like, terminated)
    samples = [serve(rows, zeros) for rows in (terminated, truncated)]
    gradients, apply = _compiled("gradients", agent.gradients), _compiled("apply", agent.apply)
    mean = jax.jit(functools.partial(jax.tree.map, lambda x, y: (x + y) / 2))
    for _ in range(_UPDATES):
        found = [gradients(learner, sample) for sample in samples]
        for each, update in found:
            for path, leaf in _leaves(each).items():
                if not np.isfinite(leaf).all():
                    raise ValueError(f"Agent.gradients: gradients{path} must be finite.")
            priorities = np.asarray(update.priorities)
            if not ((priorities >= 0) & np.isfinite(priorities)).all():
                raise ValueError(
                    f"Agent.gradients: priorities must be finite and >= 0, got {priorities}."
                )
        restored = _restored(learner)
        if not _equal(gradients(restored, samples[0]), found[0]):
            raise ValueError("Agent.gradients: results differ with a restored learner state.")
        learner = apply(restored, mean(*(each for each, _ in found)))
    # Where one rollout's episode ends, the other's goes on.
    for rows, goes_on in ((terminated, truncated), (truncated, terminated)):
        action = _where(rows.is_last, other_actions(rows.action), rows.action)
        changes = {
            "the action of an episode's last row: mask the step after it": serve(
                rows._replace(action=action), zeros
            ),
            "rows where Sample.mask is False, which are padding": serve(rows, goes_on),
        }
        grads, update = gradients(learner, serve(rows, zeros))
        for what, sample in changes.items():
            changed, after = gradients(learner, sample)
            pairs = (grads, update.priorities), (changed, after.priorities)
            if not all(jax.tree.leaves(jax.tree.map(np.array_equal, *pairs))):  # 0 equals -0
                raise ValueError(f"Agent.gradients must not depend on {what}.")


def _compiled(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of this name, or `jax.vmap` of it: refused if impure or compiled again."""
    traces = 0

    def traced(*arguments: Any) -> Any:
        nonlocal traces
        traces += 1
        return function(*arguments)

    jitted = jax.jit(traced)

    def call(*arguments: Any) -> Any:
        first, impure = not traces, f"Agent.{name} must be pure: two "
        # A new function: JAX remembers the trace of the other one.
        again = jax.jit(lambda *arguments: function(*arguments))
        if first and _program(jitted, arguments) != _program(again, arguments):
            raise ValueError(f"{impure}traces of it differ.")
        outputs = jitted(*arguments)
        if first and not _equal(outputs, jitted(*arguments)):
            raise ValueError(f"{impure}calls with the same arguments give different results.")
        if traces > 1:
            raise ValueError(
                f"Agent.{name} must be compiled once, but was compiled again: its arguments must "
                "keep their shapes, dtypes and weak types, also when restored from a snapshot."
            )
        return outputs

    return call


def _program(jitted: Any, arguments: tuple[Any, ...]) -> tuple[str, list[Any]]:
    """What a function computes: its program, and the constants in it."""
    program = jitted.trace(*arguments).jaxpr
    text = re.sub(r"0x[0-9a-f]+", "", str(program.jaxpr))  # addresses of Python objects
    return text, [np.asarray(without_keys(jnp.asarray(x))).tobytes() for x in program.consts]


def _where(condition: np.ndarray, x: np.ndarray, other: np.ndarray) -> np.ndarray:
    """`np.where` of a condition `[E, T + 1]` and arrays `[E, T + 1, ...]` of one type."""
    condition = condition.reshape(*condition.shape, *(1,) * (other.ndim - condition.ndim))
    return np.where(condition, x, other).astype(other.dtype)


def _restored(state: Any) -> Any:
    """A state after the way through a snapshot: every leaf becomes a NumPy array and comes back."""
    arrays = jax.tree.map(lambda x: jnp.array(np.asarray(x)), without_keys(state))
    return with_keys(state, arrays)


def _equal(one: Any, other: Any) -> bool:
    """Whether all arrays are equal, bit for bit; NaN equals NaN."""
    pairs = zip(*(jax.tree.leaves(without_keys(x)) for x in (one, other)), strict=True)
    return all(np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in pairs)
