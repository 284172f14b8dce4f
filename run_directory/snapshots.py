"""Snapshots of a run, written by orbax, whole or not at all.

A snapshot gets its name when all its files and their checksums are written (`manifest.txt`). None
is read before its files were compared with them.
"""

import contextlib
import gc
import math
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from ..basics.checksums import read_sealed, sealed
from ..basics.sentences import first_line
from ..basics.writing import writing
from ..runtime.learner import Snapshot
from .numbered_folders import NumberedFolders
from .quiet_orbax import ignore_orphans, quiet

_ORBAX = threading.Lock()  # nodes that are threads save at once, for which orbax is not made
_BOX = "state"
_UNFINISHED = "unfinished"
_MAX_REASON = 200  # letters; some of orbax's reasons fill a page
_EVALUATION = "evaluation.txt"  # in a snapshot that was evaluated: the return


class Snapshots(NumberedFolders):
    """The snapshots/ folder of a run; each snapshot is named after its number of steps.

    The newest ones are kept, and the best of those that were evaluated: the one with the largest
    return, the newer one if two are equal.
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
          keep: how many of the newest are kept beside the best one, >= 1; all if None.
          also: a further check of the snapshot at some steps, which raises ValueError.

        Raises:
          ValueError: there is no folder, and none may be made.
        """
        super().__init__(directory / "snapshots", also=also)
        self._keep = keep
        if writable:
            self._clean()
        elif not self.directory.is_dir():
            raise self._none()
        self._checkpointer = ocp.Checkpointer(ocp.CompositeCheckpointHandler())

    def best(self) -> tuple[int, float] | None:
        """Steps and return of the best snapshot that was evaluated; None if none was.

        One whose return is damaged counts as not evaluated.
        """
        evaluated = []
        for steps in self.steps():
            with contextlib.suppress(ValueError):
                evaluated += [(found, steps) for found in self._returns(steps)]
        if not evaluated:
            return None
        found, steps = max(evaluated)
        return steps, found

    def find(self, which: int | str) -> int:
        """The steps of a snapshot.

        Args:
          which: `newest`, `best`, or a number of steps.

        Raises:
          ValueError: there is no such snapshot; names those that there are. Or the best one was
            asked for, and the return of one is damaged.
        """
        newest, best = self.newest(), self.best()
        if which == "newest":
            return newest
        if which == "best" and best is not None:
            for steps in self.steps():
                self._returns(steps)
            return best[0]
        if str(which).isdecimal() and int(which) in self.steps():
            return int(which)
        reason = "of an evaluation (--evaluate-every)" if which == "best" else repr(which)
        names = ["newest", *(["best"] if best else []), *map(str, self.steps())]
        raise ValueError(
            f"{self.directory} holds no snapshot {reason}: allowed are {', '.join(names)}."
        )

    def save(
        self, steps: int, snapshot: Snapshot, *, evaluation_return: float | None = None
    ) -> None:
        """Writes a snapshot; it appears when it is complete.

        Args:
          steps: its name.
          snapshot: what to write.
          evaluation_return: of its policy; None or NaN if it was not evaluated.

        Raises:
          OSError: it cannot be written; names its path. The older snapshots stay.
        """
        items = {
            "learner": ocp.args.StandardSave(_boxed(snapshot.learner)),
            "replay": ocp.args.StandardSave(snapshot.replay),
            "counters": ocp.args.JsonSave(snapshot.counters),
        }
        if snapshot.actors is not None:
            items["actors"] = ocp.args.StandardSave(_boxed(snapshot.actors))
        if snapshot.unfinished is not None:
            content = np.frombuffer(snapshot.unfinished, np.uint8)
            items[_UNFINISHED] = ocp.args.StandardSave(_boxed(content))
        partial = self._unfinished(steps)
        shutil.rmtree(partial, ignore_errors=True)  # of an attempt that failed
        try:
            with writing(partial):
                with _ORBAX, quiet():
                    self._checkpointer.save(partial, args=ocp.args.Composite(**items))
                if evaluation_return is not None and not math.isnan(evaluation_return):
                    text = repr(float(evaluation_return))
                    (partial / _EVALUATION).write_bytes(sealed(text.encode()))
                self._finish(steps)
        except OSError:
            self._clean()  # a full disk needs the room
            raise
        self._remove_old()

    def restore(self, learner_template: Any, actors_template: Any = None) -> Snapshot:
        """Reads the newest whole snapshot.

        Args:
          learner_template: shapes and dtypes of the learner's state (`jax.eval_shape` of init).
          actors_template: those of the actors' states; None leaves them out.

        Raises:
          ValueError: there is none, or it belongs to another agent or config.
        """
        items = {
            "learner": ocp.args.StandardRestore(_boxed(learner_template)),
            "replay": ocp.args.StandardRestore(),
            "counters": ocp.args.JsonRestore(),
        }
        if actors_template is not None:
            items["actors"] = ocp.args.StandardRestore(_boxed(actors_template))
        return Snapshot(**self._read(self.newest_whole(), **items))

    def restore_learner(
        self, learner_template: Any, which: int | str = "newest"
    ) -> tuple[Any, dict[str, Any]]:
        """Learner state and counters of a snapshot (see `find`), without the replay."""
        template = ocp.args.StandardRestore(_boxed(learner_template))
        read = self._read(self.find(which), learner=template, counters=ocp.args.JsonRestore())
        return read["learner"], read["counters"]

    def restore_actors(self, actors_template: Any, which: int | str = "newest") -> Any:
        """Actor states of a snapshot (see `find`)."""
        template = ocp.args.StandardRestore(_boxed(actors_template))
        return self._read(self.find(which), actors=template)["actors"]

    def restore_unfinished(self) -> bytes | None:
        """`Snapshot.unfinished` of the newest whole snapshot; None if it has none."""
        steps = self.newest_whole()
        if not (self.directory / str(steps) / _UNFINISHED).is_dir():
            return None
        read = self._read(steps, **{_UNFINISHED: ocp.args.StandardRestore()})
        return np.asarray(read[_UNFINISHED][_BOX]).tobytes()

    def close(self) -> None:
        """Ends orbax's threads."""
        self._checkpointer.close()

    def misfit(self, error: Exception, steps: int | None = None) -> ValueError:
        """One sentence for an error of a whole snapshot, by default the newest, that was read."""
        steps = self.newest_whole() if steps is None else steps
        return ValueError(
            f"The snapshot {self.directory / str(steps)} is of another agent, config or version "
            f"({first_line(error)[:_MAX_REASON].rstrip('.')})."
        )

    def _returns(self, steps: int) -> list[float]:
        """The return of a snapshot that was evaluated; nothing of another."""
        path = self.directory / str(steps) / _EVALUATION
        if not path.is_file():
            return []
        try:
            return [float(read_sealed(path))]
        except ValueError as error:
            self._damage[steps] = str(error)
            raise self._damaged(steps) from None

    def _remove_old(self) -> None:
        steps, best = self.steps(), self.best()
        newest = steps[-(self._keep or len(steps)) :]
        self.remove_others([*newest, *([best[0]] if best else [])])

    def _read(self, steps: int, **items: Any) -> dict[str, Any]:
        self._check(steps)
        ignore_orphans()
        try:
            with _ORBAX, quiet():
                path = self.directory / str(steps)
                restored = self._checkpointer.restore(path, args=ocp.args.Composite(**items))
            read = {name: restored[name] for name in items}
            if any(value is None for value in read.values()):
                raise ValueError("a part is missing")
            counted = read.get("counters", {}).get("steps", steps)
            if counted != steps:
                raise ValueError(f"its counters are those at {counted} steps")
            for name in {"learner", "actors"} & set(items):
                _check_shapes(items[name].item, read[name])
                read[name] = read[name][_BOX]
        except Exception as error:  # orbax raises nearly every type for damaged files
            refusal = self.misfit(error, steps)
        else:
            return read
        with quiet():
            gc.collect()  # frees what orbax abandoned, which prints errors then
        raise refusal


def _boxed(tree: Any) -> dict[str, Any]:
    """A dictionary around a tree, so that a bare array or an empty tuple can be saved too."""
    return {_BOX: tree, "format": np.ones((), np.int32)}


def _check_shapes(template: Any, state: Any) -> None:
    """Orbax restores other shapes than the template's without an error."""

    def check(path: Any, wanted: Any, found: Any) -> None:
        if wanted.shape != found.shape or wanted.dtype != found.dtype:
            raise ValueError(
                f"{jax.tree_util.keystr(path)} has shape {found.shape}, expected {wanted.shape}"
            )

    jax.tree_util.tree_map_with_path(check, template, state)
