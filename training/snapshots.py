"""Snapshots of a run, states of its actors, its best parameters: files, each whole or not at all.

An actor of a program gives its state (random numbers, a bandit's counts) to the counter, which
writes it, from time to time and at its end; a resumed one asks for it.

A file is a ZIP archive, which `numpy.load` reads too, and after it the CRC-32 of all its bytes. A
part of it is a pytree of arrays, with an .npy member for each, or bytes; `state.json` describes
them. No array is pickled. Large arrays that shrink much, such as frames of games, are compressed.
"""

import io
import json
import math
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import jax
import numpy as np

from ..agents.base import ActorState, Params
from ..basics.files import check_sealed, sealed
from ..basics.prng_keys import with_keys, without_keys
from ..basics.sentences import first_line
from ..environments.plain_data import pack, unpack
from ..replay.interface import REAL, Clock
from .learner import Snapshot
from .run_config import next_multiple, run_id

SUFFIX = ".npz"
BEST = f"best{SUFFIX}"  # in the run directory
_ACTORS = "actors"  # the folder of their files
_PART = "actor"
_OPTIONAL = {"running"}  # parts that not all snapshots have
_SHARE = 0.05  # of the time, at most: a replay of gigabytes takes a minute to write
_VERSION = 1
_TEXT = "state.json"
_MAX_REASON = 200  # letters; some of JAX's reasons fill a page
_SAMPLE = 1 << 18  # numbers, by which it is decided whether to compress
_RATIO = 4  # below, compression takes more time than it saves


def write_state(path: Path, parts: Mapping[str, Any], run: str | None = None) -> None:
    """Writes `parts`, see `pack_state`, into a file of a run with this id; see `sealed`."""
    if run is not None and run_id(path.parent) != run:
        raise ValueError(f"{path.parent} was removed, or is of another run by now.")
    with sealed(path) as file:
        pack_state(file, parts, run)


def pack_state(file: Any, parts: Mapping[str, Any], run: str | None = None) -> None:
    """Writes the archive of parts by name: pytrees of arrays, PRNG keys included, or bytes."""
    described: dict[str, dict[str, list[str]] | None] = {}
    with zipfile.ZipFile(file, "w", compresslevel=1) as archive:
        for part, value in parts.items():
            if isinstance(value, bytes):
                described[part] = None
                with _member(archive, part) as member:
                    member.write(value)
                continue
            arrays = described[part] = {}
            for path, leaf in jax.tree_util.tree_leaves_with_path(value):
                name = "/".join((part, *_keys(path)))
                while f"{name}.npy" in arrays:  # a key may have a / itself
                    name += "~"
                arrays[f"{name}.npy"] = [str(leaf.dtype), *_keys(path)]
                array = np.asarray(without_keys(leaf))
                archive.compression = _compression(array)
                with _member(archive, f"{name}.npy") as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
        with _member(archive, _TEXT) as member:
            text = {"version": _VERSION, "run": run, "parts": described}
            member.write(json.dumps(text).encode())


def read_state(
    source: Path | BinaryIO, templates: Mapping[str, Any] | None = None, run: str | None = None
) -> dict[str, Any]:
    """Reads parts of an archive, but for those that it lacks. Checksums are left to `check_sealed`.

    Templates, by name, are pytrees like the parts, or their shapes and dtypes; None for bytes, and
    for pytrees that are read as dictionaries. Without templates, all parts are read. A ValueError
    says that a part is not like its template, or that the archive is damaged or of another run.
    """
    try:
        with zipfile.ZipFile(source) as archive:
            text = json.loads(archive.read(_TEXT))
            if text["version"] != _VERSION:
                raise ValueError(f"its version is {text['version']}, and this one's {_VERSION}")
            if None not in (run, other := text.get("run")) and run != other:
                raise ValueError(f"it is of another run, whose id is {other} instead of {run}")
            described = text["parts"]
            wanted = dict.fromkeys(described) if templates is None else templates
            return {
                part: _read(archive, part, described[part], template)
                for part, template in wanted.items()
                if part in described
            }
    except Exception as error:  # zipfile, JSON, NumPy and JAX raise many types
        raise ValueError(first_line(error)[:_MAX_REASON].rstrip(".")) from error


def read_kept(
    what: str, path: Path, templates: Mapping[str, Any], run: str | None = None
) -> dict[str, Any]:
    """As `read_state`, of a checked file that its user may remove; errors begin with `what`."""
    try:
        check_sealed(path)
        return read_state(path, templates, run)
    except ValueError as error:
        raise ValueError(f"{what} {path} cannot be read ({error}): remove the file.") from error


def _read(
    archive: zipfile.ZipFile, part: str, arrays: Mapping[str, list[str]] | None, template: Any
) -> Any:
    if arrays is None:
        return archive.read(part)
    found = {tuple(keys): _array(archive, name, dtype) for name, (dtype, *keys) in arrays.items()}
    if template is None:
        return _nested(found)
    named, structure = jax.tree_util.tree_flatten_with_path(template)
    wanted = {_keys(path): leaf for path, leaf in named}
    for keys in sorted(found.keys() ^ wanted.keys()):
        state = "unknown" if keys in found else "missing"
        raise ValueError(f"{'/'.join((part, *keys))} is {state}")
    leaves = [_checked("/".join((part, *keys)), found[keys], x) for keys, x in wanted.items()]
    return jax.tree.unflatten(structure, leaves)


def _array(archive: zipfile.ZipFile, name: str, dtype: str) -> np.ndarray:
    with archive.open(name) as member:
        array: np.ndarray = np.lib.format.read_array(member, allow_pickle=False)
    if array.dtype.kind == "V":  # JAX's bfloat16 and the like: other libraries have their own
        return array.view(getattr(jax.numpy, dtype))
    return array


def _nested(found: Mapping[tuple[str, ...], np.ndarray]) -> Any:
    """Dictionaries in place of all nodes of a pytree."""
    tree: dict[str, Any] = {"": {}}
    for keys, array in found.items():
        node, last = tree, ""
        for key in keys:
            node, last = node.setdefault(last, {}), key
        node[last] = array
    return tree[""]


def _checked(name: str, array: np.ndarray, like: Any) -> Any:
    leaf = with_keys(like, array)
    if (leaf.shape, leaf.dtype) != (like.shape, like.dtype):
        raise ValueError(
            f"{name} has dtype {leaf.dtype} and shape {leaf.shape}, expected {like.dtype} and "
            f"{like.shape}"
        )
    return leaf


def _compression(array: np.ndarray) -> int:
    sample = array.flat[:_SAMPLE].tobytes()
    pays = array.size > _SAMPLE and len(sample) > _RATIO * len(zlib.compress(sample, 1))
    return zipfile.ZIP_DEFLATED if pays else zipfile.ZIP_STORED


def _member(archive: zipfile.ZipFile, name: str) -> Any:
    return archive.open(name, "w", force_zip64=True)


def _keys(path: Any) -> tuple[str, ...]:
    """Of dictionaries, NamedTuples and lists."""
    return tuple(jax.tree_util.keystr((each,), simple=True) for each in path)


class Snapshots:
    """The snapshots/ folder of a run directory; each snapshot is named after its number of steps.

    `save` leaves the newest `keep`, or all if that is 0. `check` of steps may raise a ValueError.
    """

    def __init__(
        self, directory: Path, *, keep: int = 0, check: Callable[[int], None] | None = None
    ):
        self.directory = directory.absolute() / "snapshots"
        self._keep, self._check = keep, check
        self._damage: dict[int, str] = {}  # of the snapshots that were checked; "" if whole
        self._run = run_id(directory)

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
        return sorted(int(n) for n in numbers if n.isdecimal() and n == str(int(n)))

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
        write_state(self.path(steps), parts, self._run)
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
            f"the newest intact older one is at {older} steps, and --resume goes back to it"
            if older is not None
            else "no older one is intact, and the run must be trained again in another directory"
        )
        return ValueError(
            f"The snapshot at {steps} steps is damaged ({self._reason(steps)}): {advice}."
        )


class SnapshotInterval:
    """A snapshot is due `every` so many steps, at `next`, or after `seconds`, more if slow."""

    def __init__(self, steps: int, *, every: int, seconds: float, clock: Clock = REAL):
        self._every, self._seconds, self._clock = every, seconds, clock
        self.saved(steps, took=0.0)

    def is_due(self, steps: int) -> bool:
        """Whether a run at this number of steps has to be saved."""
        return steps >= self.next or (steps > self._steps and self._clock.monotonic() >= self._at)

    def saved(self, steps: int, *, took: float) -> None:
        """Starts the next interval after a snapshot, which took so many seconds."""
        self._steps, self.next = steps, next_multiple(steps, self._every)
        self._at = self._clock.monotonic() + max(self._seconds, took / _SHARE)


def newest_snapshot(directory: Path) -> int | None:
    """Steps of the newest snapshot in a run directory, damaged or not; None if there is none."""
    return max(Snapshots(directory).steps(), default=None)


def actor_file(directory: Path, index: int) -> Path:
    """The file of one actor's packed state in a run directory."""
    return directory / _ACTORS / f"{index}{SUFFIX}"


def actor_files(directory: Path) -> list[Path]:
    """The files of all actors, in their order."""
    return in_order((directory / _ACTORS).glob(f"*{SUFFIX}"))


def in_order(paths: Iterable[Path]) -> list[Path]:
    """Paths whose names are numbers, 2 before 10."""
    return sorted(paths, key=lambda path: (len(path.stem), path.stem))


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
    """`best.npz` of a run: the parameters with the largest return; of equal, the newer."""

    def __init__(self, directory: Path):
        self._path, self._run = directory / BEST, run_id(directory)

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
        write_state(self._path, parts, self._run)
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
    """Refuses damaged and foreign files of actors' states and the best parameters."""
    for path in [*actor_files(directory), directory / BEST]:
        if path.exists():
            read_kept("The state", path, {}, run_id(directory))
