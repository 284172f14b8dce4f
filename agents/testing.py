"""The conformance test of agents, for those in this package and for yours.

`E` denotes environments, `B` a batch, `T + 1` the rows of a sequence.
"""

import functools
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import StepType

from ..basics.prng_keys import with_keys, without_keys
from ..datatypes import EnvironmentSpec, Row, Sample, SequenceSpec, TimeStep, rows_of
from .base import Agent, Decision
from .entry import AgentEntry
from .padding_changes import random_observations, with_other_padding
from .shapes import check_agent_shapes

__all__ = ["check_agent", "check_agent_shapes"]

_LEAST_STEPS = 16  # of a rollout: enough actions to find one that is out of bounds
_UPDATES = 3


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
    * actions are within the bounds of the spec;
    * gradients are finite, also their mean over two batches, with sequences that end by
      termination and by truncation; priorities are finite and >= 0;
    * gradients and priorities do not depend on the action of an episode's last row, after which
      nothing was done, nor on rows behind the mask, which are padding.

    Args:
      agent: the agent.
      environment_spec: of an environment that it was made for.
      num_envs: E >= 1: environments that act together, and sequences B of a batch.
      entry: the agent's entry; its `episode_metrics` and `evaluation_modes` are then checked.
      seed: of the random data.

    Raises:
      ValueError: one sentence that names the function, what is wrong and what is expected.
    """
    if num_envs < 1:
        raise ValueError(f"num_envs must be at least 1, got {num_envs}.")
    check_agent_shapes(agent, environment_spec, entry=entry)
    key, generator = jax.random.key(seed), np.random.default_rng(seed)
    learner = _Compiled("init", agent.init)(key)
    params = _Compiled("acting_params", agent.acting_params)(learner)
    begin = _Compiled(
        "begin", lambda keys, ids: jax.vmap(agent.begin, (0, 0, None))(keys, ids, num_envs)
    )
    _act(agent, begin, params, environment_spec, "exploit", num_envs, generator)
    samples = _act(agent, begin, params, environment_spec, "explore", num_envs, generator)
    _learn(agent, learner, samples, environment_spec, generator)


class _Compiled:
    """One of an agent's functions, compiled; refuses impure functions and recompilation."""

    def __init__(self, name: str, function: Callable[..., Any]):
        """Wraps the function.

        Args:
          name: in the contract.
          function: it, or `jax.vmap` of it.
        """
        self._name, self._function, self._traces = name, function, 0
        self._jitted = jax.jit(self._traced)

    def __call__(self, *arguments: Any) -> Any:
        """Calls the function.

        Raises:
          ValueError: the function is not pure, or it was compiled for a second time.
        """
        first = not self._traces
        if first and self._program(self._jitted, arguments) != self._program(
            # A new function: JAX remembers the trace of the other one.
            jax.jit(lambda *arguments: self._function(*arguments)),
            arguments,
        ):
            raise self._impure("two traces of it differ")
        outputs = self._jitted(*arguments)
        if first and not _equal(outputs, self._jitted(*arguments)):
            raise self._impure("two calls with the same arguments give different results")
        if self._traces > 1:
            raise ValueError(
                f"Agent.{self._name} must be compiled once, but was compiled again: its arguments "
                "must keep their shapes, dtypes and weak types, also when restored from a snapshot."
            )
        return outputs

    def _traced(self, *arguments: Any) -> Any:
        self._traces += 1
        return self._function(*arguments)

    def _program(self, jitted: Any, arguments: tuple[Any, ...]) -> tuple[str, list[Any]]:
        """What a function computes: its program, and the constants in it."""
        program = jitted.trace(*arguments).jaxpr
        text = re.sub(r"0x[0-9a-f]+", "", str(program.jaxpr))  # addresses of Python objects
        return text, [np.asarray(without_keys(jnp.asarray(x))).tobytes() for x in program.consts]

    def _impure(self, evidence: str) -> ValueError:
        return ValueError(f"Agent.{self._name} must be pure: {evidence}.")


def _act(
    agent: Agent,
    begin: _Compiled,
    params: Any,
    spec: EnvironmentSpec,
    name: str,
    num_envs: int,
    generator: np.random.Generator,
) -> list[Sample]:
    """Two rollouts in E environments: in the first, episodes terminate; in the second they do not.

    Returns:
      A batch of sequences from each.
    """
    act = _Compiled(name, jax.vmap(getattr(agent, name), (None, 0, 0)))
    keys = jax.random.split(jax.random.key(int(generator.integers(2**31))), num_envs)
    state = begin(keys, np.arange(num_envs, dtype=np.int32))
    samples = []
    for terminates in (True, False):
        timesteps = _timesteps(spec, agent.sequence.length, num_envs, terminates, generator)
        rows = []
        for step, timestep in enumerate(timesteps):
            decision: Decision = act(params, state, timestep)
            _check_actions(name, np.asarray(decision.action), spec, step)
            action, extras = jax.tree.map(np.asarray, (decision.action, decision.extras))
            rows.append(rows_of(timestep, action, extras))
            restored = act(params, _restored(state), timestep)
            if step == 0 and not _equal(restored, decision):
                raise ValueError(f"Agent.{name} gives other results with a restored actor state.")
            state = decision.state
        samples.append(_sample(rows[: agent.sequence.length], agent.sequence, generator))
    return samples


def _timesteps(
    spec: EnvironmentSpec,
    length: int,
    num_envs: int,
    terminates: bool,
    generator: np.random.Generator,
) -> list[TimeStep]:
    """Random time steps `[E, ...]`; in every second environment an episode ends half-way."""
    steps, end = max(length, _LEAST_STEPS), length // 2
    kinds = np.full((steps, num_envs), StepType.MID, np.int32)
    kinds[0] = StepType.FIRST
    ends = np.arange(num_envs) % 2 == terminates
    kinds[end, ends] = StepType.LAST
    kinds[end + 1 : end + 2, ends] = StepType.FIRST
    first, last = kinds == StepType.FIRST, kinds == StepType.LAST
    reward = generator.normal(size=kinds.shape) * ~first
    discount = np.where(last & terminates, 0.0, 1.0)
    return [
        TimeStep(
            step_type=kinds[t],
            reward=reward[t].astype(np.float32),
            discount=discount[t].astype(np.float32),
            observation=random_observations(spec.observations, num_envs, generator),
        )
        for t in range(steps)
    ]


def _check_actions(name: str, action: np.ndarray, spec: EnvironmentSpec, step: int) -> None:
    low, high = spec.actions.minimum, spec.actions.maximum
    wrong = ~((action >= low) & (action <= high))  # NaN is wrong too
    if wrong.any():
        raise ValueError(
            f"Agent.{name}: the action must be within {low} and {high}, got {action[wrong][0]} at "
            f"time step {step}."
        )


def _sample(rows: list[Row], sequence: SequenceSpec, generator: np.random.Generator) -> Sample:
    """One sequence `[T + 1, ...]` of each environment, as a replay serves it."""
    together: Row = jax.tree.map(lambda *x: np.stack(x, axis=1), *rows)
    # The same frame as often as one is seen at once: the values do not matter.
    frames = [together.observation] * sequence.frame_stack
    if len(frames) > 1:
        together = together._replace(observation=np.concatenate(frames, axis=-1))
    mask = np.ones(together.is_last.shape, bool)
    if not sequence.crosses_episodes:
        mask = np.cumsum(together.is_last, axis=1) - together.is_last == 0
        for values in jax.tree.leaves(together):
            values[~mask] = 0
    first = {
        name: jax.tree.map(lambda x: x[:, 0], together.extras[name])
        for name in sequence.first_row_extras
    }
    weights = generator.uniform(0.1, 1.0, len(mask)).astype(np.float32)
    return Sample(together._replace(extras={**together.extras, **first}), weights, mask)


def _learn(
    agent: Agent,
    learner: Any,
    samples: list[Sample],
    spec: EnvironmentSpec,
    generator: np.random.Generator,
) -> None:
    """Updates with the mean of two batches' gradients, some of them from a restored state."""
    gradients, apply = _Compiled("gradients", agent.gradients), _Compiled("apply", agent.apply)
    mean = jax.jit(functools.partial(jax.tree.map, lambda x, y: (x + y) / 2))
    for _ in range(_UPDATES):
        found = [gradients(learner, sample) for sample in samples]
        for each, update in found:
            _check_finite(each)
            priorities = np.asarray(update.priorities)
            if not ((priorities >= 0) & np.isfinite(priorities)).all():
                raise ValueError(
                    f"Agent.gradients: priorities must be finite and >= 0, got {priorities}."
                )
        restored = _restored(learner)
        if not _equal(gradients(restored, samples[0]), found[0]):
            raise ValueError("Agent.gradients gives other results with a restored learner state.")
        learner = apply(restored, mean(*(each for each, _ in found)))
    for sample in samples:
        grads, update = gradients(learner, sample)
        for what, other in with_other_padding(sample, spec, agent.sequence, generator).items():
            changed, after = gradients(learner, other)
            if not _same_values((grads, update.priorities), (changed, after.priorities)):
                raise ValueError(f"Agent.gradients must not depend on {what}.")


def _check_finite(gradients: Any) -> None:
    for path, leaf in jax.tree_util.tree_flatten_with_path(gradients)[0]:
        if not np.isfinite(leaf).all():
            name = f"gradients{jax.tree_util.keystr(path)}"
            raise ValueError(f"Agent.gradients: {name} must be finite.")


def _restored(state: Any) -> Any:
    """A state after the way through a snapshot: every leaf becomes a NumPy array and comes back."""
    arrays = jax.tree.map(lambda x: jnp.array(np.asarray(x)), without_keys(state))
    return with_keys(state, arrays)


def _same_values(one: Any, other: Any) -> bool:
    """Whether all numbers are equal; 0 equals -0."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(np.asarray(x), np.asarray(y)) for x, y in pairs)


def _equal(one: Any, other: Any) -> bool:
    """Whether all arrays are equal, bit for bit; NaN equals NaN."""

    def same(x: Any, y: Any) -> bool:
        return np.asarray(x).tobytes() == np.asarray(y).tobytes()

    return all(jax.tree.leaves(jax.tree.map(same, without_keys(one), without_keys(other))))
