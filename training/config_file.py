"""Run directories, one or one for each seed: config.json in them, with a version, and their locks.

A field that is missing could mean anything: the class's default is not the preset's, and neither
need be what the run was trained with. So missing and unknown fields are refused.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import time
import uuid
from pathlib import Path
from typing import Any

from ..agents.entry import find_agent
from ..basics.writing import write_json
from .run_config import PROGRAM, RunConfig

VERSION = 1
LOCK = "lock"  # in a run directory, as long as a process writes into it

_held: "set[DirectoryLock]" = set()  # by this process


def values_of(run: Any) -> dict[str, Any]:
    """What config.json holds of a run: JSON values."""
    return {"version": VERSION, **dataclasses.asdict(run)}


def _run_of(values: Any) -> RunConfig:
    """The inverse of `values_of`, from parsed JSON; ValueError names all wrong fields."""
    values = {**_object(values, "config.json")}
    version, _ = values.pop("version", None), values.pop("id", None)
    if not (type(version) is int and version == VERSION):
        raise ValueError(f"its version must be {VERSION}, got {version!r}")
    problems: list[str] = []
    run, config = _build(RunConfig, values, "", problems), None
    if {"agent", "search_path", "agent_config"} <= values.keys():
        entry = find_agent(values["agent"], search_path=Path(values["search_path"] or "."))
        config = _build(entry.Config, values["agent_config"], "agent_config.", problems)
    if problems:
        raise ValueError("; ".join(problems))
    return dataclasses.replace(run, agent_config=config)


def _build(kind: Any, values: Any, prefix: str, problems: list[str]) -> Any:
    """A config from JSON, nested ones included; None if fields are added to `problems`."""
    values = _object(values, prefix.rstrip("."))
    fields = {field.name: field for field in dataclasses.fields(kind)}
    problems += [f"{prefix}{name} is missing" for name in fields if name not in values]
    problems += [f"{prefix}{name} is unknown" for name in values if name not in fields]
    built = {}
    for name, value in values.items():
        default = _default(fields[name]) if name in fields else None
        if dataclasses.is_dataclass(default):
            built[name] = _build(type(default), value, f"{prefix}{name}.", problems)
        else:
            built[name] = _tuples(value)
    return None if problems else kind(**built)


def _object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be an object with fields")
    return value


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def new_directory(config: RunConfig) -> Path:
    """A directory under runs/ that is no other's: agent, environment, seed, time, random digits."""
    name = f"{config.agent}-{config.environment}-{config.seed}"
    name = "".join(c if c.isalnum() or c in "-_.,=" else "-" for c in name)
    return Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:8]}"


def write_config(directory: Path, config: RunConfig) -> None:
    """Writes config.json, whole or not at all, with the run's id: that of the file before."""
    own = run_id(directory) or uuid.uuid4().hex
    write_json(directory / "config.json", {**values_of(config), "id": own})


def run_id(directory: Path) -> str | None:
    """The id of the run whose directory this is, or has this; None of runs that have none."""
    folders = (directory, *directory.parents[:2])  # a worker has one within the run's
    path = next((x / "config.json" for x in folders if (x / "config.json").is_file()), None)
    with contextlib.suppress(ValueError, AttributeError):
        if path is not None:
            return json.loads(path.read_text(encoding="utf-8")).get("id")
    return None


def read_config(directory: Path) -> RunConfig:
    """Reads config.json, or raises a ValueError that names all fields that are wrong."""
    path = directory / "config.json"
    if not path.is_file():
        raise ValueError(f"{directory} is not a run directory: it has no config.json.")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return _run_of(values).anchored()
    except (TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{path} is damaged or of another version of retrax: {str(error).rstrip('.')}."
        ) from error


def check_new_directory(directory: Path, config: RunConfig) -> None:
    """Refuses, by a ValueError, a directory whose files would be overwritten."""
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"The run directory {directory} is a file.")
    if not directory.exists() or all(path.name == LOCK for path in directory.iterdir()):
        return
    if not (directory / "config.json").exists():
        raise ValueError(f"The run directory {directory} is not empty, and holds no run.")
    changed = differences(read_config(directory), config)
    if changed:
        raise ValueError(
            f"{directory} holds a run with another config ({'; '.join(changed)}): choose another "
            "run directory."
        )
    command = "launch" if (directory / PROGRAM).exists() else "train"
    raise ValueError(f"{directory} holds this run already: retrax {command} --resume {directory}")


def differences(old: Any, new: Any, prefix: str = "") -> list[str]:
    """Where two configs differ, as "field: old -> new", nested fields with their path."""
    found = []
    for field in dataclasses.fields(old):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if dataclasses.is_dataclass(before) and type(before) is type(after):
            found += differences(before, after, f"{prefix}{field.name}.")
        elif before != after:
            found.append(f"{prefix}{field.name}: {before} -> {after}")
    return found


def seed_runs(directory: Path) -> list[Path]:
    """The runs `seed_0`, `seed_1`, ... of a directory by seed; none if it is another one."""
    found = [path.parent for path in directory.glob("seed_*/config.json")]
    named = {path.name.removeprefix("seed_"): path for path in found}
    return [named[seed] for seed in sorted(filter(str.isdecimal, named), key=int)]


def new_seed_runs(directory: Path, config: RunConfig, count: int) -> dict[Path, RunConfig]:
    """The runs of `count` seeds, from the config's on, by directories that are yet to be made."""
    configs = [dataclasses.replace(config, seed=config.seed + index) for index in range(count)]
    if seed_runs(directory):
        raise ValueError(f"{directory} holds runs already: retrax train --resume {directory}")
    if directory.exists() and (not directory.is_dir() or set(os.listdir(directory)) - {LOCK}):
        raise ValueError(f"{directory} must be a new directory or an empty one.")
    return {directory / f"seed_{each.seed}": each for each in configs}


class DirectoryLock(contextlib.AbstractContextManager["DirectoryLock"]):
    """Held by the one process that may write into a run directory.

    The operating system frees it when the process ends, however it ends, even if processes that it
    started live on: programs that it executes do not inherit the file, and its forks close theirs.
    The file `lock` has the id of the process, and is removed with the lock; one that a killed
    process left does no harm.
    """

    # flock: a lock of lockf does not keep out threads, and is lost when any file of it is closed.

    def __init__(self, directory: Path):
        """Locks at once if the directory exists; if not, `acquire` makes it later."""
        self._directory, self._path = directory, directory / LOCK
        self._file: int | None = None
        self._is_new = not directory.is_dir()
        if not self._is_new:
            self.acquire()

    def acquire(self) -> None:
        """Makes the directory if there is none, and takes the lock, or raises a ValueError."""
        if self._file is not None:
            return
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            while not self._try():
                pass
        except BlockingIOError:
            raise ValueError(
                f"{self._directory} is in use by {self._holder()}, which writes into it: wait for "
                "its end, or choose another run directory."
            ) from None
        except OSError as error:
            raise ValueError(
                f"The run directory {self._directory} cannot be written to: "
                f"{error.strerror or error}."
            ) from error
        _held.add(self)

    def __exit__(self, *error: object) -> None:
        """Frees the lock, and removes a directory that was made for it and is still empty."""
        if self._file is None:  # or a fork's, whose parent keeps it
            return
        with contextlib.suppress(OSError):  # the directory may have been removed
            self._path.unlink()
            if self._is_new:
                self._directory.rmdir()
        self.forget()

    def forget(self) -> None:
        """Closes the file; in a fork of the process that holds the lock, that one keeps it."""
        file, self._file = self._file, None
        _held.discard(self)
        if file is not None:
            os.close(file)

    def _try(self) -> bool:
        """Locks the file; False if its holder removed it meanwhile."""
        file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)  # not inherited
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), self._path.stat()):
                    os.ftruncate(file, 0)
                    os.write(file, f"{os.getpid()}\n".encode())
                    self._file = file
        finally:
            if self._file is None:
                os.close(file)
        return self._file is not None

    def _holder(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            return f"process {int(self._path.read_text(encoding='ascii'))}"
        return "another process"


def _forget_all() -> None:
    for lock in list(_held):
        lock.forget()


os.register_at_fork(after_in_child=_forget_all)
