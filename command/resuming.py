"""Resuming a run: its newest whole snapshot, environments, running episodes and open means."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from ..agents.base import Agent
from ..basics.sentences import first_line
from ..datatypes import VectorEnvironment
from ..device.loop import make_loops
from ..environments.failures import close_quietly
from ..environments.plain_data import pack
from ..environments.pure import PureVector
from ..training.assembly import make_environments, make_loop
from ..training.logged import LoggedLoop
from ..training.loop import Loop
from ..training.run_config import RunConfig
from ..training.snapshots import Snapshots, newest_snapshot


def open_snapshots(
    directory: Path, last_step: int | None = None, *, check: Callable[[int], None] | None = None
) -> tuple[Snapshots | None, list[str]]:
    """The snapshots of a run that is resumed.

    Args:
      directory: the run directory.
      last_step: of the run; None allows any.
      check: see `Snapshots`.

    Returns:
      The snapshots, to be read from `newest_whole()`, and warnings: about newer ones that are
      damaged. None if the run was stopped before its first snapshot.

    Raises:
      ValueError: no snapshot is whole, or the newest is at the last step already.
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
    return snapshots, notes


class Continuation(NamedTuple):
    """How a run continues from a snapshot.

    Attributes:
      open_metrics: see `Loop.open_metrics`; None in a new run.
      outputs: plain data of the run's outputs; None as `open_metrics`.
      running: see `Loop.running`; None where the environments begin new episodes.
      reason: why they do.
    """

    open_metrics: list[Any] | None = None
    outputs: list[Any] | None = None
    running: Mapping[str, Any] | None = None
    reason: str = "the snapshot has no state of them"

    def describe(self, steps: int) -> str:
        """A line for the log of a run that is resumed at a number of steps."""
        new = f" The environments begin new episodes: {self.reason}."
        return f"Resumed at {steps} steps.{new * (self.running is None)}"

    def environment_states(self) -> list[Any]:
        """States of each actor's environments; none where they cannot continue."""
        actors = (self.running or {}).get("actors", [])
        return [actor["environment"] for actor in actors]


def pack_continuation(loop: Loop, outputs: list[Any]) -> bytes:
    """`running` of a snapshot between two steps, from which `read_continuation` makes its result.

    It has the running episodes where environments can continue.
    """
    found = loop.open_metrics(), outputs
    try:
        return pack([*found, loop.running(), ""])
    except (Exception, SystemExit) as error:  # of a user's environment, which may have no state
        return pack([*found, None, first_line(error).rstrip(".")])


def read_continuation(snapshots: Snapshots | None) -> Continuation:
    """How a run continues from the newest whole snapshot.

    Raises:
      ValueError: the snapshot is damaged.
    """
    if snapshots is None:
        return Continuation()
    found: Any = snapshots.read(snapshots.newest_whole(), running=None).running
    return Continuation(*found) if found else Continuation()


def environments_of(
    config: RunConfig, resumed_at: int | None, continuation: Continuation
) -> tuple[list[VectorEnvironment], Continuation]:
    """The environments of each actor, with running episodes or before new ones.

    Args:
      config: of the run.
      resumed_at: steps of the snapshot; None for a new run.
      continuation: of the snapshot.

    Returns:
      The environments; and `continuation`, without `running` if they refused their states.

    Raises:
      ValueError: see `make_environments`.
    """
    if config.on_device:  # the snapshot's replay has their states
        return make_environments(config, None), continuation._replace(running={})
    if continuation.running is None:
        return make_environments(config, resumed_at), continuation
    environments = make_environments(config, None)
    try:
        states = continuation.environment_states()
        if not states:  # a run on data
            return environments, continuation
        for environment, state in zip(environments, states, strict=True):
            environment.restore(state)  # type: ignore[attr-defined]
    except (Exception, SystemExit) as error:
        for environment in environments:
            close_quietly(environment)
        reason = f"they cannot continue ({first_line(error).rstrip('.')})"
        continuation = continuation._replace(running=None, reason=reason)
        return make_environments(config, resumed_at), continuation
    return environments, continuation


def loops_of(
    configs: Sequence[RunConfig],
    agent: Agent,
    environments: list[VectorEnvironment],
    continuation: Continuation,
    data: Iterable[Any] | None,
) -> Sequence[Loop]:
    """The loops of runs at their beginning, which differ in their seeds alone.

    One in this process, on data if there are any, see `make_loop`; or several on a device.
    Episodes that do not continue begin here: an environment may refuse before a file is written.

    Raises:
      ValueError: the run learned from data, and none are given.
    """
    if data is None and configs[0].on_device:
        (environment,) = environments
        assert isinstance(environment, PureVector), "make_environments gives no others"
        return make_loops(configs, agent, environment)
    (config,) = configs
    if data is not None:
        return [LoggedLoop(config, agent, environments[0], data)]
    if continuation.running is not None and not continuation.environment_states():
        raise ValueError(
            "The run learned from data: continue it with "
            "retrax.train(config, directory, data=..., resume=True)."
        )
    loop = make_loop(config, agent, environments)
    if continuation.running is None:
        loop.reset()
    return [loop]


def restore(loop: Loop, snapshots: Snapshots, continuation: Continuation) -> float:
    """Restores the newest snapshot; returns the seconds that its run had taken.

    Raises:
      ValueError: it is damaged or of another config.
    """
    steps = snapshots.newest_whole()
    learner, actors = jax.eval_shape(lambda: (loop.learner.state, loop.actor_states()))
    snapshot = snapshots.read(steps, learner=learner, actors=actors, replay=None)
    try:
        counters = dict(snapshot.counters)
        seconds = float(counters.pop("seconds"))
        snapshot = snapshot._replace(counters=counters)
        loop.restore(snapshot, continuation.open_metrics, continuation.running)
    except Exception as error:
        raise snapshots.misfit(error, steps) from error
    return seconds
