"""Snapshots of a run, states of its actors, its best parameters: files, each whole or not at all.

Snapshots are compared with their checksums before they are read. An actor of a program gives its
state (random numbers, a bandit's counts) to the counter, which writes it, from time to time and at
its end; a resumed one asks for it. Its moment is shortly before or after the snapshot's.
"""

import io
import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from ..agents.base import ActorState, Params
from ..basics.checksums import check_sealed
from ..basics.sentences import first_line
from ..environments.plain_data import pack, unpack
from .config_file import run_id
from .learner import Snapshot
from .metrics import next_multiple
from .state_file import SUFFIX, pack_state, read_kept, read_state, write_state

BEST = f"best{SUFFIX}"  # in the run directory
_ACTORS = "actors"  # the folder of their files
_PART = "actor"
_OPTIONAL = {"running"}  # parts that not all snapshots have
_SHARE = 0.05  # of the time, at most: a replay of gigabytes takes a minute to write


class Snapshots:
    """The snapshots/ folder of a run directory; each snapshot is named after its number of steps.

    `save` makes the folder, and leaves the newest `keep`, or all if that is 0. `check` is a further
    check of the snapshot at some steps, which raises ValueError.
    """

    def __init__(
        self, directory: Path, *, keep: int = 0, check: Callable[[int], None] | None = None
    ):
        self.directory = directory.absolute() / "snapshots"
        self._keep, self._check = keep, check
        self._damage: dict[int, str] = {}  # of the snapshots that were checked; "" if whole

    def path(self, steps: int) -> Path:
        """The file of the snapshot at some steps."""
        return self.directory / f"{steps}{SUFFIX}"

    def steps(self) -> list[int]:
        """The steps of all snapshots, damaged or not, in order; ValueError of an older version."""
        found = [*self.directory.iterdir()] if self.directory.is_dir() else []
        if any(path.name.isdecimal() for path in found):
            raise ValueError(
                f"{self.directory} holds snapshots of an older version of retrax, which this one "
                "does not read: train in another directory."
            )
        numbers = (path.stem for path in found if path.suffix == SUFFIX)
        return sorted(int(number) for number in numbers if number.isdecimal())

    def find(self, which: int | str = "newest") -> int:
        """The steps of a snapshot, `newest` or a number, damaged or not; or a ValueError."""
        steps = self.steps()
        if not steps:
            raise ValueError(
                f"{self.directory} holds no complete snapshot: training was stopped before the "
                "first one, and --resume starts from the beginning."
            )
        if which == "newest":
            return steps[-1]
        if str(which).isdecimal() and int(which) in steps:
            return int(which)
        reason = "of an evaluation (--evaluate-every)" if which == "best" else repr(which)
        best = ["best"] if (self.directory.parent / BEST).is_file() else []
        raise ValueError(
            f"{self.directory} holds no snapshot {reason}: allowed are "
            f"{', '.join(['newest', *best, *map(str, steps)])}."
        )

    def newest_whole(self) -> int:
        """Steps of the newest that is as it was written; ValueError if none is."""
        newest = self.find()
        found = self._newest_whole(newest)
        if found is None:
            raise self._damaged(newest)
        return found

    def passed_over(self) -> list[str]:
        """A sentence about every damaged snapshot that is newer than the newest whole one."""
        found = self.newest_whole()
        return [
            f"The snapshot at {steps} steps is damaged ({self._reason(steps)}): going back to the "
            f"one at {found} steps."
            for steps in self.steps()
            if steps > found
        ]

    def save(self, steps: int, snapshot: Snapshot) -> None:
        """Writes a snapshot, then removes those too many; an OSError leaves the older ones."""
        parts = {**snapshot._asdict(), "counters": pack(snapshot.counters)}
        parts = {name: part for name, part in parts.items() if part is not None}
        write_state(self.path(steps), parts, run_id(self.directory.parent))
        self._damage[steps] = ""
        self.remove_others(self.steps()[-self._keep :])

    def remove_newer(self, steps: int) -> None:
        """Removes the snapshots after `steps`, from which the run continues: damaged ones."""
        self.remove_others(other for other in self.steps() if other <= steps)

    def remove_others(self, kept: Iterable[int]) -> None:
        """Removes all snapshots but those at some steps, and what a killed process left of one."""
        for other in set(self.steps()) - set(kept):
            self.path(other).unlink()
            self._damage.pop(other, None)
        for path in self.directory.glob("*.partial"):
            path.unlink()

    def read(self, steps: int, **templates: Any) -> Snapshot:
        """The counters and the parts of a snapshot that have templates; see `read_state`.

        `running` comes unpacked, and may be missing. A ValueError says why it does not fit.
        """
        if self._reason(steps):
            raise self._damaged(steps)
        try:
            run = run_id(self.directory.parent)
            found = read_state(self.path(steps), {"counters": None, **templates}, run)
            if missing := {"counters", *templates} - found.keys() - _OPTIONAL:
                raise ValueError(f"it has no part {min(missing)}")
            found |= {x: unpack(found[x]) for x in {"counters", *_OPTIONAL} & found.keys()}
            counted = found["counters"].get("steps", steps)
            if counted != steps:
                raise ValueError(f"its counters are those at {counted} steps")
        except ValueError as error:
            raise self.misfit(error, steps) from error
        return Snapshot(**{"learner": None, "replay": None, **found})

    def misfit(self, error: Exception, steps: int) -> ValueError:
        """One sentence for an error of a whole snapshot that was read."""
        return ValueError(
            f"The snapshot {self.path(steps)} is of another agent, config or version "
            f"({first_line(error).rstrip('.')})."
        )

    def _reason(self, steps: int) -> str:
        """What is wrong with a snapshot, "" if nothing is; it is checked once."""
        if steps not in self._damage:
            self._damage[steps] = ""
            try:
                check_sealed(self.path(steps))
                if self._check is not None:
                    self._check(steps)
            except (ValueError, OSError) as error:
                self._damage[steps] = str(error)
        return self._damage[steps]

    def _newest_whole(self, last: int) -> int | None:
        return next((s for s in reversed(self.steps()) if s <= last and not self._reason(s)), None)

    def _damaged(self, steps: int) -> ValueError:
        older = self._newest_whole(steps - 1)
        advice = (
            f"the newest older one that is whole is at {older} steps, and --resume goes back to it"
            if older is not None
            else "no older one is whole, and the run must be trained again in another directory"
        )
        return ValueError(
            f"The snapshot at {steps} steps is damaged ({self._reason(steps)}): {advice}."
        )


class SnapshotInterval:
    """A snapshot is due `every` so many steps, at `next`, or after `seconds` if those pass before.

    The seconds are more if writing takes long.
    """

    def __init__(self, steps: int, *, every: int, seconds: float):
        self._every, self._seconds = every, seconds
        self.saved(steps, took=0.0)

    def is_due(self, steps: int) -> bool:
        """Whether a run at this number of steps has to be saved."""
        return steps >= self.next or (steps > self._steps and time.monotonic() >= self._at)

    def saved(self, steps: int, *, took: float) -> None:
        """Starts the next interval after a snapshot, which took so many seconds."""
        self._steps, self.next = steps, next_multiple(steps, self._every)
        self._at = time.monotonic() + max(self._seconds, took / _SHARE)


def newest_snapshot(directory: Path) -> int | None:
    """Steps of the newest snapshot in a run directory, damaged or not; None if there is none."""
    return max(Snapshots(directory).steps(), default=None)


def actor_file(directory: Path, index: int) -> Path:
    """The file of one actor's packed state in a run directory."""
    return directory / _ACTORS / f"{index}{SUFFIX}"


def actor_files(directory: Path) -> list[Path]:
    """The files of all actors, in their order."""
    files = (directory / _ACTORS).glob(f"*{SUFFIX}")
    return sorted(files, key=lambda path: (len(path.stem), path.stem))


def read_actor(path: Path, template: ActorState) -> ActorState:
    """The state in an actor's file, which is like `template`; see `read_kept`."""
    return read_kept("The actor state", path, {_PART: template})[_PART]


def pack_actor(state: ActorState) -> bytes:
    """An actor's state as bytes."""
    file = io.BytesIO()
    pack_state(file, {_PART: state})
    return file.getvalue()


def unpack_actor(data: bytes, template: ActorState) -> ActorState:
    """The inverse of `pack_actor`; ValueError if the state is not like the template."""
    try:
        return read_state(io.BytesIO(data), {_PART: template})[_PART]
    except ValueError as error:
        raise ValueError(f"The actor's state is of another agent or config ({error}).") from error


class Evaluated(NamedTuple):
    """Acting parameters with their evaluation; None for what was not kept or not read."""

    mean_return: float
    steps: int  # of the run when the parameters were made or fetched
    params: Params
    actors: ActorState = None  # of all actors at that moment, `[num_envs, ...]`


class BestParameters:
    """`best.npz` of a run directory: the parameters with the largest return; of equal, the newer.

    They are kept when their evaluation ends: the learner of a program has made further updates
    then. A damaged file is a ValueError.
    """

    def __init__(self, directory: Path):
        self._path = directory / BEST

    @property
    def exists(self) -> bool:
        """Whether parameters were evaluated."""
        return self._path.is_file()

    @property
    def mean_return(self) -> float:
        """Of the best evaluation; NaN if there was none."""
        return self.read().mean_return if self.exists else math.nan

    def offer(
        self, params: Params, *, mean_return: float, steps: int, actors: ActorState = None
    ) -> bool:
        """Keeps the parameters if no earlier ones were better; whether it did. NaN is the worst."""
        if math.isnan(mean_return) or self.mean_return > mean_return:
            return False
        parts = {"evaluation": pack([float(mean_return), steps]), "params": params}
        parts |= {} if actors is None else {"actors": actors}
        write_state(self._path, parts, run_id(self._path.parent))
        return True

    def read(self, **templates: Any) -> Evaluated:
        """The best parameters so far, which exist; templates of `params` and `actors` to read."""
        wanted = {"evaluation": None, **templates}
        found = read_kept("The best parameters", self._path, wanted, run_id(self._path.parent))
        mean_return, steps = unpack(found["evaluation"])
        return Evaluated(mean_return, steps, found.get("params"), found.get("actors"))

    def forget(self) -> None:
        """Removes the file of a run that begins again."""
        self._path.unlink(missing_ok=True)


def check_states(directory: Path) -> None:
    """Refuses damaged files of actors' states and the best parameters."""
    for path in [*actor_files(directory), directory / BEST]:
        if path.is_file():
            try:
                check_sealed(path)
            except ValueError as error:
                raise ValueError(f"{error}: remove the file to start with a new state.") from None
