"""How a program is run: by which engine, and whether that can."""

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from ...basics.validation import Range, check_fields
from . import installed, isolation
from .installed import EngineName

if TYPE_CHECKING:  # `retrax launch` reads these options before anything heavy is imported
    from ..config import ProgramConfig
    from .engine import Engine


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProgramOptions:
    """What a program has besides its run."""

    max_lead: Annotated[int, Range(0)] = 256
    """Time steps that actors take at most while an update is due that the learner has not begun;
    under launchpad, Reverb's limits hold instead."""

    acme: str | None = None
    """`package.module:NAME` of your own Acme loggers, observers or environment loop
    (launchpad_programs/README.md): each actor then runs an environment loop of Acme."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineOptions(ProgramOptions):
    """How a program is run."""

    launch: Literal["local_mp", "local_mt"] = "local_mp"
    """local_mp: processes. local_mt: threads of one process."""

    engine: EngineName | None = None
    """What runs the processes. launchpad: ends at the first death of a process. ray: starts
    processes again that die. By default launchpad where it is installed, and ray elsewhere."""

    ray_address: str | None = None
    """HOST:PORT of the head of a running Ray cluster, of which this machine is a part
    (docs/clusters.md); by default, --engine ray starts Ray on this machine."""

    max_failures: Annotated[int, Range(0)] = 5
    """Deaths of the same process in a row, less than a minute apart, that --engine ray forgives."""

    listen_everywhere: bool = False
    """Listen on all interfaces, in no network namespace: whoever can connect can execute code."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def needs_namespace(self) -> bool:
        """Whether a network namespace keeps others from connecting."""
        has_token = self.name == "ray" and installed.has_tokens()
        return self.launch == "local_mp" and not has_token and not self.listen_everywhere

    @property
    def name(self) -> EngineName:
        """The engine."""
        return self.engine or installed.default_engine()

    @property
    def _keeps_rows(self) -> bool:
        """Whether the replay is a `ReplayNode`, which keeps its rows beside the snapshots."""
        return self.launch == "local_mt" or self.name == "ray"

    def check(self, program: "ProgramConfig") -> None:
        """Refuses what could not run.

        Raises:
          ModuleNotFoundError: the engine is not installed.
          ValueError: one sentence about what is wrong.
        """
        program.acme_options()  # imported before any process starts
        has_processes = self.launch == "local_mp"
        if not has_processes and self.engine is not None:
            raise ValueError(
                f"--engine {self.engine} runs processes: leave --launch {self.launch} out."
            )
        is_ray = has_processes and self.name == "ray"
        if self.ray_address is not None and not is_ray:
            raise ValueError("--ray-address needs --engine ray.")
        if is_ray:
            from .ray_session import check_ray

            check_ray(self.ray_address, program, listen_everywhere=self.listen_everywhere)
        elif has_processes:
            _check_launchpad()

    def network(self, refused: str) -> list[str]:
        """Sentences for the log: who can connect.

        Args:
          refused: why this process has no network namespace of its own; "" if it has one.

        Raises:
          ValueError: others could connect, and nobody asked for that.
        """
        if self.launch == "local_mt":
            return []
        # Whether a running cluster asks for a token is its own matter.
        if self.name == "ray" and installed.has_tokens() and self.ray_address is None:
            return ["Only processes that know the token of this program's Ray can connect to it."]
        if self.listen_everywhere:
            who = "whoever can connect can execute code in this program"
            return [f"Listening on all interfaces: {who}."]
        isolation.check_allowed(refused)
        return ["Only this program can connect to it: it has a network namespace of its own."]

    @contextlib.contextmanager
    def open(self, program: "ProgramConfig") -> "Iterator[Engine]":
        """The engine, which is ended at the end of the block."""
        if self.launch == "local_mt":
            from .threads import ThreadEngine

            yield ThreadEngine()
        elif self.name == "ray":
            from .ray_session import ray_session

            with ray_session(self.ray_address, program):
                from .ray import RayEngine

                yield RayEngine(max_failures=self.max_failures)
        else:
            from .launchpad import LaunchpadEngine

            yield LaunchpadEngine()

    def replay_check(self, program: "ProgramConfig") -> Callable[[int], None] | None:
        """What a snapshot needs besides its own files: `also` of `open_snapshots`.

        Raises:
          ValueError: Launchpad is asked to continue a run whose rows are not Reverb's.
        """
        from ...run_directory.snapshots import newest_snapshot
        from ..replay import check_kept, is_kept

        directory = program.directory
        if program.has_workers:
            return None
        if self._keeps_rows:
            return lambda steps: check_kept(directory, steps)
        newest = newest_snapshot(directory)
        if newest is not None and is_kept(directory, newest):
            raise ValueError(
                f"The replay of {directory} is not Reverb's, and --engine launchpad cannot restore "
                "it: resume with --engine ray or --launch local_mt."
            )
        from ...replay.reverb import Checkpoints
        from .courier import has_checkpoints

        return Checkpoints(directory).check if has_checkpoints(program) else None

    def replay_notes(self, program: "ProgramConfig") -> list[str]:
        """Sentences for the log about the replay of a program that is resumed."""
        from ..replay import is_kept

        steps = program.resumed_at
        if not self._keeps_rows or steps is None or program.has_workers:
            return []
        if is_kept(program.directory, steps):
            return []
        if (program.directory / "reverb" / str(steps)).is_dir():
            return [
                "The replay's rows are in a checkpoint of Reverb: it is empty here, and refills."
            ]
        return []


def _check_launchpad() -> None:
    if missing := installed.missing_packages():
        version = ".".join(map(str, sys.version_info[:2]))
        raise ModuleNotFoundError(
            "--engine launchpad needs Linux, Python 3.10 and the distributed tier: pip install -r "
            "requirements.txt in a clone, elsewhere pip install 'retrax[distributed]' (this is "
            f"Python {version}; not installed: {', '.join(missing)}). --engine ray and "
            "--launch local_mt work without it."
        )
