"""What is checked of a run before anything is made or written, in one process and in a program."""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from ..agents.base import Agent
from ..agents.conformance import check_agent_shapes
from ..basics.memory import GB, check_memory
from ..basics.sentences import reason
from ..basics.subprocess_probe import devices
from ..datatypes import EnvironmentSpec, ReplayConfig, Sample, SequenceSpec
from ..replay.rows import sample_shapes
from ..replay.store import check_capacity
from .learner import too_few, update_shapes
from .run_config import RunConfig

_MAX_INTEGER = 2**31 - 1  # of JAX's integers
_LARGE = 1_000_000  # a size with which an agent may already take memory when it is made


class _NotTraceableError(ValueError):
    """An agent's functions, or the one that makes it, cannot be traced."""


def checked_agent(config: RunConfig, spec: EnvironmentSpec) -> Agent:
    """The agent of a resolved run, once its config has been found to be possible.

    It fits the environment and the contract, as sizes do the memory and each other; a ValueError
    comes before anything is allocated.
    """
    config.find_logger()
    integers = list(_integers(config.agent_config, "agent_config"))
    for name, value in integers:
        if abs(value) > _MAX_INTEGER:
            raise ValueError(f"{name} must be at most {_MAX_INTEGER}, got {value}.")
    make = functools.partial(config.entry.make_agent, spec, config.agent_config)
    is_large = any(abs(value) >= _LARGE for _, value in integers)
    if is_large:
        with contextlib.suppress(_NotTraceableError):  # then it is made as it is
            _check_states(config, spec, make)
    agent: Agent = make()
    check_agent_shapes(agent, spec, entry=config.entry)
    _check_states(config, spec, lambda: agent)
    check_devices(config.learner_devices)
    _check_batches(config, spec, agent.sequence)
    check_capacity(spec, agent.sequence, config.replay, num_envs=config.environments_per_replay)
    return agent


def check_devices(count: int) -> None:
    """Refuses more devices for the learner than a process has on this machine."""
    if count > 1 and len(found := devices()) < count:
        raise ValueError(too_few(count, found))


def _check_batches(config: RunConfig, spec: EnvironmentSpec, sequence: SequenceSpec) -> None:
    """Refuses batches that the learner's devices cannot share evenly."""
    samples = _samples(config, spec, sequence)
    for sample in update_shapes(samples, config.replay.updates_per_call):
        size = sample.weights.shape[0]
        if size % config.learner_devices:
            raise ValueError(
                f"learner_devices must divide the {size} sequences of an update, got "
                f"{config.learner_devices}."
            )


def _check_states(config: RunConfig, spec: EnvironmentSpec, make: Callable[[], Agent]) -> None:
    """Refuses states of learner and actors, and batches, that do not fit into the memory."""
    sequences: list[SequenceSpec] = []

    def states(key: jax.Array) -> tuple[Any, Any]:
        agent = make()
        sequences.append(agent.sequence)
        return agent.init(key), agent.begin(key, jnp.zeros((), jnp.int32), config.num_envs)

    try:
        learner, actor = jax.eval_shape(states, jax.eval_shape(lambda: jax.random.key(0)))
    except Exception as error:  # those of JAX, chex, Haiku and the agent have no common type
        raise _NotTraceableError(
            f"Agent.init or Agent.begin cannot be traced: {reason(error)}."
        ) from error
    samples = _samples(config, spec, sequences[0])
    observation = jax.ShapeDtypeStruct(spec.observations.shape, spec.observations.dtype)
    sizes = {
        "the learner's state": (1 + config.workers.num_workers) * _num_bytes(learner),
        f"{config.num_envs} actor states": config.num_envs * _num_bytes(actor),
        f"{config.replay.draw_size} sequences in one call of updates": max(
            map(_num_bytes, samples)
        ),
        f"{config.num_envs} observations": config.num_envs * _num_bytes(observation),
    }
    largest = max(sizes, key=lambda name: sizes[name])
    what = f"The run, with {sizes[largest] / GB:.1f} GB for {largest},"
    check_memory(what, sum(sizes.values()))


def _samples(config: RunConfig, spec: EnvironmentSpec, sequence: SequenceSpec) -> list[Sample]:
    num_envs = config.environments_per_replay
    return sample_shapes(spec, sequence, config.replay, num_envs=num_envs)


def _num_bytes(tree: Any) -> int:
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _integers(config: Any, prefix: str) -> Iterator[tuple[str, int]]:
    """The integers of a config that come into JAX's arrays, with their full names."""
    for field in dataclasses.fields(config):
        name, value = f"{prefix}.{field.name}", getattr(config, field.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, ReplayConfig):
            yield from _integers(value, name)
        yield from ((name, x) for x in jax.tree.leaves(value) if type(x) is int)
