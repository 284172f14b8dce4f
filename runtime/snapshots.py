"""Snapshots of a run, written by orbax, whole or not at all."""

import contextlib
import functools
import gc
import logging
import math
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import AnyPreservationPolicy, BestN, LatestN

from .._imports import first_line

_BOX = "state"
_UNFINISHED = "unfinished"
_MAX_REASON = 200  # letters; some of orbax's reasons fill a page
_RETURN = "evaluation_return"  # orbax keeps it with a snapshot


class Snapshot(NamedTuple):
    """One moment of a run.

    Attributes:
      learner: the agent's `LearnerState`.
      replay: `Replay.state`.
      counters: JSON values: steps, episodes, updates, learning_since, seconds.
      actors: the agent's actor states; None where actors keep their own (programs).
      unfinished: running episodes and open means, packed by whoever runs the loop; None in
        programs.
    """

    learner: Any
    replay: Any
    counters: dict[str, Any]
    actors: Any = None
    unfinished: bytes | None = None


class Snapshots:
    """The snapshots/ folder of a run; each snapshot is named after its number of steps.

    The newest ones are kept, and the best of those that were evaluated: the one with the largest
    return, the newer one if two are equal.
    """

    def __init__(self, directory: Path, *, writable: bool = True, keep: int | None = None):
        """Opens the folder.

        Args:
          directory: the run directory.
          writable: False never creates, cleans or changes anything.
          keep: how many of the newest are kept beside the best one, >= 1; all if None.

        Raises:
          ValueError: there is no folder, and none may be made; or an evaluation in it is damaged.
        """
        self.directory = (directory / "snapshots").absolute()
        if not writable and not self.directory.is_dir():
            raise self._none()
        best = BestN(n=1, get_metric_fn=_return_of, keep_checkpoints_without_metrics=False)
        options = ocp.CheckpointManagerOptions(
            preservation_policy=AnyPreservationPolicy([LatestN(n=keep), best]),
            best_fn=_return_of,
            create=writable,
            cleanup_tmp_directories=writable,
            enable_async_checkpointing=False,
        )
        try:
            with _quiet():
                self._manager = ocp.CheckpointManager(self.directory, options=options)
        except ValueError as error:  # of the JSON that orbax keeps with a snapshot
            raise ValueError(
                f"A file */metrics/metrics in {self.directory} is damaged ({error}): remove it, "
                "and its snapshot counts as not evaluated."
            ) from error

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

    def best(self) -> tuple[int, float] | None:
        """Steps and return of the best snapshot that was evaluated; None if none was."""
        steps = self._manager.best_step()
        return None if steps is None else (steps, _return_of(self._manager.metrics(steps)))

    def find(self, which: int | str) -> int:
        """The steps of a snapshot.

        Args:
          which: `newest`, `best`, or a number of steps.

        Raises:
          ValueError: there is no such snapshot; names those that there are.
        """
        newest, best = self.newest(), self.best()
        if which == "newest":
            return newest
        if which == "best" and best is not None:
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
        """
        is_evaluated = evaluation_return is not None and not math.isnan(evaluation_return)
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
        with _quiet():
            self._manager.save(
                steps,
                args=ocp.args.Composite(**items),
                metrics={_RETURN: evaluation_return} if is_evaluated else None,
            )
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
        return Snapshot(**self._read(self.newest(), **items))

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
        """`Snapshot.unfinished` of the newest snapshot; None if an older version wrote it."""
        steps = self.newest()
        if not (self.directory / str(steps) / _UNFINISHED).is_dir():
            return None
        read = self._read(steps, **{_UNFINISHED: ocp.args.StandardRestore()})
        return np.asarray(read[_UNFINISHED][_BOX]).tobytes()

    def close(self) -> None:
        """Ends orbax's threads."""
        self._manager.close()

    def damaged(self, error: Exception, steps: int | None = None) -> ValueError:
        """One sentence for any error raised while a snapshot, by default the newest, was read."""
        steps = self.newest() if steps is None else steps
        others = [other for other in self.steps() if other != steps]
        advice = f"remove it to resume from {others[-1]} steps" if others else "there is no other"
        if steps != self.newest():
            advice = f"there are others at {', '.join(map(str, others))} steps"
        return ValueError(
            f"The snapshot {self.directory / str(steps)} is damaged or of another config: "
            f"{advice} ({first_line(error)[:_MAX_REASON].rstrip('.')})."
        )

    def _none(self) -> ValueError:
        return ValueError(
            f"{self.directory} holds no complete snapshot: training was stopped before the first "
            "one, and this run must be trained anew."
        )

    def _read(self, steps: int, **items: Any) -> dict[str, Any]:
        _ignore_orphans()
        try:
            with _quiet():
                restored = self._manager.restore(steps, args=ocp.args.Composite(**items))
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
            refusal = self.damaged(error, steps)
        else:
            return read
        with _quiet():
            gc.collect()  # frees what orbax abandoned, which prints errors then
        raise refusal


def _return_of(metrics: Mapping[str, float]) -> float:
    return metrics[_RETURN]


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
