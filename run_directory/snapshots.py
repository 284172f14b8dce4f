"""Snapshots of a run: numbered state files, each whole or not at all.

None is read before it was compared with its checksum.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ..basics.checksums import check_sealed
from ..basics.sentences import first_line
from ..environments.plain_data import pack, unpack
from ..runtime.learner import Snapshot
from .best_parameters import BestParameters
from .state_file import SUFFIX, read_state, write_state


class Snapshots:
    """The snapshots/ folder of a run; each snapshot is named after its number of steps.

    Attributes:
      directory: the folder.
    """

    def __init__(
        self,
        directory: Path,
        *,
        writable: bool = True,
        keep: int | None = None,
        also: Callable[[int], None] | None = None,
    ):
        """Opens the folder.

        Args:
          directory: the run directory.
          writable: False never creates, cleans or changes anything.
          keep: how many of the newest are kept, >= 1; all if None.
          also: a further check of the snapshot at some steps, which raises ValueError.

        Raises:
          ValueError: there is no folder, and none may be made.
        """
        self.directory = directory.absolute() / "snapshots"
        self._best = BestParameters(directory)
        self._keep, self._also = keep, also
        self._damage: dict[int, str] = {}  # of the snapshots that were checked; "" if whole
        if writable:
            self.directory.mkdir(parents=True, exist_ok=True)
            for path in self.directory.glob("*.partial"):  # of a process that was killed
                path.unlink()
        elif not self.directory.is_dir():
            raise self._none()

    def path(self, steps: int) -> Path:
        """The file of the snapshot at some steps."""
        return self.directory / f"{steps}{SUFFIX}"

    def steps(self) -> list[int]:
        """The steps of all snapshots, damaged or not, in order.

        Raises:
          ValueError: the folder has snapshots of an older version.
        """
        found = [*self.directory.iterdir()] if self.directory.is_dir() else []
        if any(path.name.isdecimal() for path in found):
            raise ValueError(
                f"{self.directory} holds snapshots of an older version of retrax, which this one "
                "does not read: train in another directory."
            )
        numbers = (path.stem for path in found if path.suffix == SUFFIX)
        return sorted(int(number) for number in numbers if number.isdecimal())

    def newest(self) -> int:
        """Steps of the newest snapshot, damaged or not.

        Raises:
          ValueError: there is none.
        """
        steps = self.steps()
        if not steps:
            raise self._none()
        return steps[-1]

    def newest_whole(self) -> int:
        """Steps of the newest of those that are as they were written.

        Raises:
          ValueError: there is none; names a damaged file.
        """
        newest = self.newest()
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

    def find(self, which: int | str) -> int:
        """The steps of a snapshot.

        Args:
          which: `newest`, or a number of steps.

        Raises:
          ValueError: there is no such snapshot; names those that there are.
        """
        newest = self.newest()
        if which == "newest":
            return newest
        if str(which).isdecimal() and int(which) in self.steps():
            return int(which)
        reason = "of an evaluation (--evaluate-every)" if which == "best" else repr(which)
        best = ["best"] if self._best.exists else []
        names = ["newest", *best, *map(str, self.steps())]
        raise ValueError(
            f"{self.directory} holds no snapshot {reason}: allowed are {', '.join(names)}."
        )

    def save(self, steps: int, snapshot: Snapshot) -> None:
        """Writes a snapshot; it appears when it is complete.

        Args:
          steps: its name.
          snapshot: what to write.

        Raises:
          OSError: it cannot be written; names its path. The older snapshots stay.
        """
        parts = {**snapshot._asdict(), "counters": pack(snapshot.counters)}
        parts = {name: part for name, part in parts.items() if part is not None}
        write_state(self.path(steps), parts)
        self._damage[steps] = ""
        if self._keep:
            self.remove_others(self.steps()[-self._keep :])

    def remove_newer(self, steps: int) -> None:
        """Removes the snapshots after `steps`, from which the run continues: damaged ones."""
        self.remove_others(other for other in self.steps() if other <= steps)

    def remove_others(self, kept: Iterable[int]) -> None:
        """Removes all snapshots but those at some steps."""
        for other in set(self.steps()) - set(kept):
            self.path(other).unlink()
            self._damage.pop(other, None)

    def restore(self, learner_template: Any, actors_template: Any = None) -> Snapshot:
        """Reads the newest whole snapshot, without `window` and `running`.

        Args:
          learner_template: shapes and dtypes of the learner's state (`jax.eval_shape` of init).
          actors_template: those of the actors' states; None leaves them out.

        Raises:
          ValueError: there is none, or it belongs to another agent or config.
        """
        actors = {} if actors_template is None else {"actors": actors_template}
        templates = {"learner": learner_template, "replay": None, **actors}
        return Snapshot(**self._read(self.newest_whole(), templates))

    def restore_learner(
        self, learner_template: Any, which: int | str = "newest"
    ) -> tuple[Any, dict[str, Any]]:
        """Learner state and counters of a snapshot (see `find`), without the replay."""
        read = self._read(self.find(which), {"learner": learner_template})
        return read["learner"], read["counters"]

    def restore_actors(self, actors_template: Any, which: int | str = "newest") -> Any:
        """Actor states of a snapshot (see `find`)."""
        return self._read(self.find(which), {"actors": actors_template})["actors"]

    def restore_running(self) -> tuple[Any, Any]:
        """`window` and `running` of the newest whole snapshot, unpacked; None where there is none.

        Raises:
          ValueError: there is no whole snapshot, or they are of another version.
        """
        try:
            path, names = self.path(self.newest_whole()), ("window", "running")
            found = read_state(path, dict.fromkeys(names))
            window, running = (found.get(name) for name in names)
            return window and unpack(window), running and unpack(running)
        except ValueError as error:
            raise self.misfit(error) from error

    def misfit(self, error: Exception, steps: int | None = None) -> ValueError:
        """One sentence for an error of a whole snapshot, by default the newest, that was read."""
        steps = self.newest_whole() if steps is None else steps
        return ValueError(
            f"The snapshot {self.path(steps)} is of another agent, config or version "
            f"({first_line(error).rstrip('.')})."
        )

    def _read(self, steps: int, templates: Mapping[str, Any]) -> dict[str, Any]:
        if self._reason(steps):
            raise self._damaged(steps)
        try:
            wanted = {"counters": None, **templates}
            read = read_state(self.path(steps), wanted)
            if missing := wanted.keys() - read.keys():
                raise ValueError(f"it has no part {min(missing)}")
            read["counters"] = unpack(read["counters"])
            counted = read["counters"].get("steps", steps)
            if counted != steps:
                raise ValueError(f"its counters are those at {counted} steps")
        except ValueError as error:
            raise self.misfit(error, steps) from error
        return read

    def _reason(self, steps: int) -> str:
        """What is wrong with a snapshot, "" if nothing is; it is read once."""
        if steps not in self._damage:
            self._damage[steps] = ""
            try:
                check_sealed(self.path(steps))
                if self._also is not None:
                    self._also(steps)
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

    def _none(self) -> ValueError:
        return ValueError(
            f"{self.directory} holds no complete snapshot: training was stopped before the first "
            "one, and --resume starts from the beginning."
        )


def newest_snapshot(directory: Path) -> int | None:
    """Steps of the newest snapshot in a run directory, damaged or not; None if there is none."""
    if not (directory / "snapshots").is_dir():
        return None
    return max(Snapshots(directory, writable=False).steps(), default=None)
