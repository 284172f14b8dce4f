"""Snapshots of a run, written by orbax, whole or not at all."""

import contextlib
import functools
import gc
import logging
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp

_BOX = "state"
_MAX_REASON = 200  # letters; some of orbax's reasons fill a page
_KEPT = 2  # the one before the newest is for the case that the newest gets damaged


class Snapshot(NamedTuple):
    """One moment of a run.

    Attributes:
      learner: the agent's `LearnerState`.
      replay: `Replay.state`.
      counters: JSON values: steps, episodes, updates, learning_since, seconds.
      actors: the agent's actor states; None where actors keep their own (programs).
    """

    learner: Any
    replay: Any
    counters: dict[str, Any]
    actors: Any = None


class Snapshots:
    """The snapshots/ folder of a run; each snapshot is named after its number of steps."""

    def __init__(self, directory: Path, *, writable: bool = True):
        """Opens the folder.

        Args:
          directory: the run directory.
          writable: False never creates, cleans or changes anything.

        Raises:
          ValueError: there is no folder, and none may be made.
        """
        self.directory = (directory / "snapshots").absolute()
        if not writable and not self.directory.is_dir():
            raise self._none()
        options = ocp.CheckpointManagerOptions(
            max_to_keep=_KEPT,
            create=writable,
            cleanup_tmp_directories=writable,
            enable_async_checkpointing=False,
        )
        with _quiet():
            self._manager = ocp.CheckpointManager(self.directory, options=options)

    def steps(self) -> list[int]:
        """The steps of all complete snapshots, oldest first."""
        return sorted(self._manager.all_steps())

    def newest(self) -> int:
        """The steps of the newest complete snapshot.

        Raises:
          ValueError: there is none.
        """
        steps = self.steps()
        if not steps:
            raise self._none()
        return steps[-1]

    def save(self, steps: int, snapshot: Snapshot) -> None:
        """Writes a snapshot; it appears when it is complete."""
        items = {
            "learner": ocp.args.StandardSave(_boxed(snapshot.learner)),
            "replay": ocp.args.StandardSave(snapshot.replay),
            "counters": ocp.args.JsonSave(snapshot.counters),
        }
        if snapshot.actors is not None:
            items["actors"] = ocp.args.StandardSave(_boxed(snapshot.actors))
        with _quiet():
            self._manager.save(steps, args=ocp.args.Composite(**items))
            self._manager.wait_until_finished()

    def restore(self, learner_template: Any, actors_template: Any = None) -> Snapshot:
        """Reads the newest snapshot.

        Args:
          learner_template: shapes and dtypes of the learner's state (`jax.eval_shape` of init).
          actors_template: those of the actors' states; None leaves them out.

        Raises:
          ValueError: there is none, it is damaged, or it belongs to another agent or config.
        """
        items = {
            "learner": ocp.args.StandardRestore(_boxed(learner_template)),
            "replay": ocp.args.StandardRestore(),
            "counters": ocp.args.JsonRestore(),
        }
        if actors_template is not None:
            items["actors"] = ocp.args.StandardRestore(_boxed(actors_template))
        return Snapshot(**self._read(**items))

    def restore_learner(self, learner_template: Any) -> tuple[Any, dict[str, Any]]:
        """Learner state and counters of the newest snapshot, without the replay."""
        template = ocp.args.StandardRestore(_boxed(learner_template))
        read = self._read(learner=template, counters=ocp.args.JsonRestore())
        return read["learner"], read["counters"]

    def restore_actors(self, actors_template: Any) -> Any:
        """Actor states of the newest snapshot."""
        return self._read(actors=ocp.args.StandardRestore(_boxed(actors_template)))["actors"]

    def close(self) -> None:
        """Ends orbax's threads."""
        self._manager.close()

    def damaged(self, error: Exception) -> ValueError:
        """One sentence for any error raised while the newest snapshot was restored."""
        *others, newest = self.steps()
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        advice = f"remove it to resume from {others[-1]} steps" if others else "there is no other"
        return ValueError(
            f"The snapshot {self.directory / str(newest)} is damaged or of another config: "
            f"{advice} ({reason[:_MAX_REASON].rstrip('.')})."
        )

    def _none(self) -> ValueError:
        return ValueError(
            f"{self.directory} holds no complete snapshot: training was stopped before the first "
            "one, and this run must be trained anew."
        )

    def _read(self, **items: Any) -> dict[str, Any]:
        newest = self.newest()
        _ignore_orphans()
        try:
            with _quiet():
                restored = self._manager.restore(newest, args=ocp.args.Composite(**items))
            read = {name: restored[name] for name in items}
            if any(value is None for value in read.values()):
                raise ValueError("a part is missing")
            steps = read.get("counters", {}).get("steps", newest)
            if steps != newest:
                raise ValueError(f"its counters are those at {steps} steps")
            for name in {"learner", "actors"} & set(items):
                _check_shapes(items[name].item, read[name])
                read[name] = read[name][_BOX]
        except Exception as error:  # orbax raises nearly every type for damaged files
            refusal = self.damaged(error)
        else:
            return read
        with _quiet():
            gc.collect()  # frees what orbax abandoned, which prints errors then
        raise refusal


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides what orbax logs: it raises everything that matters."""
    logger = logging.getLogger("absl")
    logger.addFilter(_nothing)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "coroutine .* never awaited", RuntimeWarning)
            yield
    finally:
        logger.removeFilter(_nothing)


@functools.cache
def _ignore_orphans() -> None:
    """Hides errors of reads that orbax abandons after one of many arrays could not be read.

    They end later, in threads of their own, and would print their errors on the terminal.
    """
    before = sys.unraisablehook

    def hook(unraisable: "sys.UnraisableHookArgs") -> None:
        code = getattr(unraisable.object, "cr_code", None)  # of a coroutine
        abandoned = code is not None and "orbax" in code.co_filename
        if not abandoned and str(unraisable.exc_value) != "Event loop is closed":
            before(unraisable)

    sys.unraisablehook = hook


def _nothing(record: logging.LogRecord) -> bool:
    return False


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
