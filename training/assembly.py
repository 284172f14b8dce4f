"""A run in one process, checked and put together: environments, replay, learner, actors."""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..agents.base import Agent
from ..agents.conformance import check_agent_shapes
from ..basics.machine import GB, check_memory, devices
from ..basics.sentences import first_line, reason
from ..datatypes import EnvironmentSpec, ReplayConfig, Sample, SequenceSpec, VectorEnvironment
from ..environments.factory import as_vector
from ..environments.failures import close_quietly, closing_quietly, one_sentence
from ..environments.plain_data import pack
from ..replay.local import LocalReplay, check_capacity
from ..replay.rows import sample_shapes
from .learner import Learner, ParameterClient, ParameterServer, packing_of, too_few, update_shapes
from .loop import Actor, Loop
from .run_config import Purpose, RunConfig, derive_seed
from .snapshots import Snapshots, check_states, newest_snapshot

MANY = 256  # environments; so many are made only after the run has been checked with one
_MAX_INTEGER = 2**31 - 1  # of JAX's integers
_LARGE = 1_000_000  # a size with which an agent may already take memory when it is made


class _NotTraceableError(ValueError):
    """An agent's functions, or the one that makes it, cannot be traced."""


def checked_agent(config: RunConfig, spec: EnvironmentSpec) -> Agent:
    """The agent of a resolved run that fits the environment, the contract and the memory.

    A ValueError comes before anything is allocated.
    """
    config.find_logger()
    integers = list(_integers(config.agent_config, "agent_config"))
    for name, value in integers:
        if abs(value) > _MAX_INTEGER:
            raise ValueError(f"{name} must be at most {_MAX_INTEGER}, got {value}.")
    make = functools.partial(config.entry.make_agent, spec, config.agent_config)
    if any(abs(value) >= _LARGE for _, value in integers):
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
    except Exception as error:  # JAX's, chex's, Haiku's and the agent's have no common type
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


def spec_of(config: RunConfig) -> EnvironmentSpec:
    """The spec of the run's environment; makes one, and resets it."""
    with closing_quietly(config.make_environment(seed=config.seed, num_envs=1)) as environment:
        with one_sentence("the environment cannot be reset"):
            environment.reset()
        return environment.spec


def given_environments(
    environment: Any, config: RunConfig, resume: bool
) -> VectorEnvironment | None:
    """The environments that a caller made, if they fit; None if the run makes its own."""
    if environment is None:
        return None
    if resume:
        raise ValueError("environment must be None if resume is True: the run makes its own.")
    for name, only in (("num_actors", 1), ("on_device", False)):
        if (given := getattr(config, name)) != only:
            raise ValueError(f"environment must be None if {name} is not {only}, got {given}.")
    made = as_vector(environment, "environment", num_envs=config.num_envs, seed=config.seed)
    try:
        named = spec_of(config)
    except (ValueError, ImportError):
        if config.evaluate_every:
            raise
        return made  # of a name that nothing but this run has
    seen, found = named.observations, made.spec.observations
    if (found.shape, found.dtype, made.spec.actions) != (seen.shape, seen.dtype, named.actions):
        raise ValueError(
            f"environment must be as {config.environment}, in which the run is evaluated, with "
            f"{seen} and {named.actions}, but it has {found} and {made.spec.actions}."
        )
    return made


def open_snapshots(
    directory: Path, last_step: int | None = None, *, check: Callable[[int], None] | None = None
) -> tuple[Snapshots | None, list[str]]:
    """The snapshots of a resumed run, None before its first; warnings about damaged newer ones.

    A ValueError says that none is whole, or that the newest whole one is at the last step already.
    """
    if newest_snapshot(directory) is None:
        has_begun = (directory / "metrics.csv").is_file()
        note = f"{directory} holds no snapshot yet: the run starts from the beginning."
        return None, [note] if has_begun else []
    snapshots = Snapshots(directory, check=check)
    steps, notes = snapshots.newest_whole(), snapshots.passed_over()
    if last_step is not None and steps >= last_step:
        raise ValueError(
            f"{directory} is at {steps} steps already: to continue, give more steps than that, "
            f"got {last_step}."
        )
    snapshots.read(steps)  # raises if it is of another run
    return snapshots, notes


class Start(NamedTuple):
    """Where a run begins, and how it continues there: by default at 0 steps.

    `notes` are warnings for its log, `outputs` are the recorder's. Where `running` is None, the
    environments begin new episodes, for a `reason`.
    """

    snapshots: Snapshots | None = None
    notes: Sequence[str] = ()
    open_metrics: list[Any] | None = None  # see `Loop`
    outputs: list[Any] | None = None
    running: Mapping[str, Any] | None = None  # see `Loop`
    reason: str = "the snapshot has no state of them"

    @classmethod
    def resumed(cls, directory: Path, config: RunConfig) -> "Start":
        """The start of a resumed run, whose files are checked; see `open_snapshots`."""
        snapshots, notes = open_snapshots(directory, config.steps)
        start = cls(None, notes) if snapshots is None else cls.at(snapshots, notes)
        check_states(directory)
        # On a device, the snapshot's replay has the environments.
        return start._replace(running={}) if config.on_device else start

    @classmethod
    def at(cls, snapshots: Snapshots, notes: Sequence[str] = ()) -> "Start":
        """The start at the newest whole snapshot; ValueError if there is none."""
        found: Any = snapshots.read(snapshots.newest_whole(), running=None).running
        return cls(snapshots, notes, *(found or ()))

    @property
    def steps(self) -> int | None:
        """Steps of the snapshot; None if there is none."""
        return None if self.snapshots is None else self.snapshots.newest_whole()

    @property
    def environment_states(self) -> list[Any]:
        """States of each actor's environments; none where they cannot continue."""
        return [actor["environment"] for actor in (self.running or {}).get("actors", [])]

    def restore(self, loop: Any) -> float:
        """Restores the snapshot, if there is one; returns the seconds that its run had taken."""
        if self.snapshots is None:
            return 0.0
        steps = self.snapshots.newest_whole()
        learner, actors = jax.eval_shape(lambda: (loop.learner_state, loop.actor_states()))
        snapshot = self.snapshots.read(steps, learner=learner, actors=actors, replay=None)
        try:
            counters = dict(snapshot.counters)
            seconds = float(counters.pop("seconds"))
            loop.restore(snapshot._replace(counters=counters), self.open_metrics, self.running)
        except Exception as error:
            raise self.snapshots.misfit(error, steps) from error
        return seconds

    def describe(self, steps: int) -> str:
        """A line for the log of a run that is resumed at a number of steps."""
        new = f" The environments begin new episodes: {self.reason}."
        return f"Resumed at {steps} steps.{new * (self.running is None)}"


_NEW = Start()


def pack_running(loop: Any, outputs: list[Any]) -> bytes:
    """`running` of a snapshot, for `Start.at`: with episodes where environments can continue."""
    found = loop.open_metrics(), outputs
    try:
        return pack([*found, loop.running(), ""])
    except (Exception, SystemExit) as error:  # of a user's environment, which may have no state
        return pack([*found, None, first_line(error).rstrip(".")])


def make_environments(config: RunConfig, resumed_at: int | None = None) -> list[VectorEnvironment]:
    """The environments of each actor, before their first episodes; after a resume, others."""
    if config.num_envs > MANY:
        spec = spec_of(config)
        checked_agent(config.resolve(spec), spec)
    if config.num_actors > 1 or config.actor_update_period is not None:
        more = [(Purpose.ACTOR, index, resumed_at or 0) for index in range(config.num_actors)]
        seeds = [derive_seed(config.seed, *each) for each in more]
    elif resumed_at is not None:
        seeds = [derive_seed(config.seed, Purpose.RESUME, resumed_at)]
    else:
        seeds = [config.seed]
    num_envs = config.environments_per_actor
    return [config.make_environment(seed=seed, num_envs=num_envs) for seed in seeds]


def environments_at(config: RunConfig, start: Start) -> tuple[list[VectorEnvironment], Start]:
    """The environments of each actor, and `start`, without `running` if they cannot continue."""
    if start.running is not None:
        environments, states = make_environments(config), start.environment_states
        try:  # on a device, and of a run on data, there are no states
            for environment, state in zip(environments, states, strict=bool(states)):
                environment.restore(state)  # type: ignore[attr-defined]
            return environments, start
        except (Exception, SystemExit) as error:
            for environment in environments:
                close_quietly(environment)
            reason = f"they cannot continue ({first_line(error).rstrip('.')})"
            start = start._replace(running=None, reason=reason)
    return make_environments(config, start.steps), start


def make_loop(
    config: RunConfig,
    agent: Agent,
    environments: list[VectorEnvironment],
    start: Start = _NEW,
    data: Iterable[Any] | None = None,
) -> Loop:
    """The loop of a resolved run in one process, at its beginning; closes the environments.

    It acts in `environments`, made for `start`, or learns from the episodes `data`. Episodes that
    do not continue begin here: an environment may refuse before a file is written.
    """
    if data is not None:
        from .logged import LoggedLoop  # only here, as workers below: most runs need neither

        return LoggedLoop(config, agent, environments[0], data)
    if start.running is not None and not start.environment_states:
        raise ValueError(
            "The run learned from data: continue it with "
            "retrax.train(config, directory, data=..., resume=True)."
        )
    loop = _acting_loop(config, agent, environments)
    if start.running is None:
        loop.reset()
    return loop


def _acting_loop(config: RunConfig, agent: Agent, environments: list[VectorEnvironment]) -> Loop:
    if config.workers.num_workers:
        from .workers import make_workers

        return make_workers(config, agent, environments)
    replay = LocalReplay(
        environments[0].spec,
        agent.sequence,
        config.replay,
        num_envs=config.num_envs,
        seed=config.seed,
    )
    period = config.actor_update_period
    server = None if period is None else ParameterServer(packing_of(agent), max_wait=0.0)
    learner = Learner.of_run(config, agent, replay, parameters=server)
    actors = []
    for index, environment in enumerate(environments):
        writer = replay.writer(config.environments_of(index))
        parameters: Learner | ParameterClient = learner
        if server is not None and period is not None:
            get, packing = learner.fetch, server.packing
            parameters = ParameterClient(get, packing, update_period=period, threaded=False)
        actors.append(Actor.of_run(config, agent, environment, index, writer, parameters))
    seed = derive_seed(config.seed, Purpose.ORDER)
    order = np.random.default_rng(seed) if len(actors) > 1 else None
    return Loop(actors, learner, [replay], order=order)
