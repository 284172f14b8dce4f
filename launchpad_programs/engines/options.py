"""Which engine runs a program, and whether it can."""

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator
from typing import cast

from ...experiments.commands.launch import EngineName
from ...runtime.numbered_folders import newest_snapshot
from ..config import ProgramConfig
from ..kinds import nodes_of
from ..replay import check_kept, is_kept
from . import installed, isolation
from .engine import Engine


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Where the nodes of a program run.

    Attributes:
      engine: launchpad or ray; None is launchpad where it is installed, ray elsewhere.
      ray_address: HOST:PORT of a running cluster's head; None starts Ray on this machine.
      max_failures: deaths of a process in a row, less than a minute apart, that Ray forgives.
    """

    engine: EngineName | None = None
    ray_address: str | None = None
    max_failures: int = 5

    @property
    def name(self) -> EngineName:
        """The engine."""
        return self.engine or cast(EngineName, installed.default_engine())

    def check(self, program: ProgramConfig, *, mode: str, listen_everywhere: bool) -> None:
        """Refuses what could not run; the other arguments are those of `retrax.launch`.

        Raises:
          ModuleNotFoundError: the engine is not installed.
          ValueError: one sentence about what is wrong.
        """
        if self.max_failures < 0:
            raise ValueError(f"--max-failures must be at least 0, got {self.max_failures}.")
        if mode != "local_mp" and self.engine is not None:
            raise ValueError(f"--engine {self.engine} runs processes: leave --launch {mode} out.")
        is_ray = mode == "local_mp" and self.name == "ray"
        if self.ray_address is not None and not is_ray:
            raise ValueError("--ray-address needs --engine ray.")
        if program.port is not None and (is_ray or mode != "local_mp"):
            raise ValueError("--port needs --engine launchpad.")
        if is_ray:
            from .ray_session import check_ray

            check_ray(self.ray_address, program, listen_everywhere=listen_everywhere)
        elif mode == "local_mp":
            _check_launchpad()
            if program.port is not None:
                called = sum(spec.kind.is_called for spec in nodes_of(program))
                isolation.check_ports(program.port, called)

    def network(self, refused: str, *, mode: str, listen_everywhere: bool) -> list[str]:
        """Sentences for the log: who can connect.

        Args:
          refused: why this process has no network namespace of its own; "" if it has one.
          mode: as of `retrax.launch`.
          listen_everywhere: as of `retrax.launch`.

        Raises:
          ValueError: others could connect, and nobody asked for that.
        """
        if mode == "local_mt":
            return []
        # Whether a running cluster asks for a token is its own matter.
        if self.name == "ray" and installed.has_tokens() and self.ray_address is None:
            return ["Only processes that know the token of this program's Ray can connect to it."]
        if listen_everywhere:
            who = "whoever can connect can execute code in this program"
            return [f"Listening on all interfaces: {who}."]
        isolation.check_allowed(refused)
        return ["Only this program can connect to it: it has a network namespace of its own."]

    @contextlib.contextmanager
    def open(self, program: ProgramConfig, *, mode: str) -> Iterator[Engine]:
        """The engine, which is ended at the end of the block."""
        if mode == "local_mt":
            from .threads import ThreadEngine

            yield ThreadEngine()
        elif self.name == "ray":
            from .ray_session import ray_session

            with ray_session(self.ray_address, program) as session:
                from .ray import RayEngine

                yield RayEngine(session, max_failures=self.max_failures)
        else:
            from .launchpad import LaunchpadEngine

            yield LaunchpadEngine()

    def replay_check(self, program: ProgramConfig, *, mode: str) -> Callable[[int], None] | None:
        """What a snapshot needs besides its own files: `also` of `open_snapshots`.

        Raises:
          ValueError: Launchpad is asked to continue a run whose rows are not Reverb's.
        """
        directory = program.directory
        if program.has_workers:
            return None
        if mode == "local_mt" or self.name == "ray":
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

    def replay_notes(self, program: ProgramConfig, *, mode: str) -> list[str]:
        """Sentences for the log about the replay of a program that is resumed."""
        steps = program.resumed_at
        reads = mode == "local_mt" or self.name == "ray"
        if not reads or steps is None or program.has_workers or is_kept(program.directory, steps):
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
            f"Python {version}; not installed: {', '.join(missing)}). --engine ray, --launch "
            "local_mt and --launch sync work without it."
        )
