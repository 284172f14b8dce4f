"""Where a run begins: at 0 steps, or at the newest whole snapshot of its directory."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from ..basics.sentences import first_line
from ..environments.plain_data import pack
from .other_states import check_states
from .run_config import RunConfig
from .snapshots import Snapshots, newest_snapshot


def open_snapshots(
    directory: Path, last_step: int | None = None, *, check: Callable[[int], None] | None = None
) -> tuple[Snapshots | None, list[str]]:
    """The snapshots of a run that is resumed, whose last step is not reached; None allows any.

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


class Start(NamedTuple):
    """Where a run begins, and how it continues there.

    Attributes:
      snapshots: of the run; None if it begins at 0 steps.
      notes: warnings for its log.
      open_metrics: see `Loop.open_metrics`; None in a new run.
      outputs: see `Recorder.state`; None as `open_metrics`.
      running: see `Loop.running`; None where the environments begin new episodes.
      reason: why they do.
    """

    snapshots: Snapshots | None = None
    notes: Sequence[str] = ()
    open_metrics: list[Any] | None = None
    outputs: list[Any] | None = None
    running: Mapping[str, Any] | None = None
    reason: str = "the snapshot has no state of them"

    @classmethod
    def resumed(cls, directory: Path, config: RunConfig) -> "Start":
        """The start of a run that is resumed.

        Raises:
          ValueError: see `open_snapshots`; or a file of the run is damaged.
        """
        snapshots, notes = open_snapshots(directory, config.steps)
        start = cls(None, notes) if snapshots is None else cls.at(snapshots, notes)
        check_states(directory)
        # On a device, the snapshot's replay has the environments.
        return start._replace(running={}) if config.on_device else start

    @classmethod
    def at(cls, snapshots: Snapshots, notes: Sequence[str] = ()) -> "Start":
        """The start at the newest whole snapshot.

        Raises:
          ValueError: there is none, or it is damaged.
        """
        found: Any = snapshots.read(snapshots.newest_whole(), running=None).running
        return cls(snapshots, notes, *(found or ()))

    @property
    def steps(self) -> int | None:
        """Steps of the snapshot; None if there is none."""
        return None if self.snapshots is None else self.snapshots.newest_whole()

    @property
    def environment_states(self) -> list[Any]:
        """States of each actor's environments; none where they cannot continue."""
        actors = (self.running or {}).get("actors", [])
        return [actor["environment"] for actor in actors]

    def restore(self, loop: Any) -> float:
        """Restores the snapshot; returns the seconds that its run had taken, 0 without one.

        Raises:
          ValueError: it is damaged or of another config.
        """
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


NEW = Start()  # at 0 steps


def pack_running(loop: Any, outputs: list[Any]) -> bytes:
    """`running` of a snapshot between two steps, from which `Start.resumed` continues.

    It has the running episodes where environments can continue.
    """
    found = loop.open_metrics(), outputs
    try:
        return pack([*found, loop.running(), ""])
    except (Exception, SystemExit) as error:  # of a user's environment, which may have no state
        return pack([*found, None, first_line(error).rstrip(".")])
