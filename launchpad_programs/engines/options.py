"""How a program is run: by which engine, and whether that can.

`retrax launch` reads these options before anything heavy is imported: see `isolation`.
"""

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from ...basics.validation import Range, check_fields
from ..program_options import ProgramOptions
from . import isolation
from .installed import has_tokens, missing_packages

if TYPE_CHECKING:
    from ..config import ProgramConfig
    from .engine import Engine


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineOptions(ProgramOptions):
    """How a program is run."""

    launch: Literal["local_mp", "local_mt"] = "local_mp"
    """local_mp: processes. local_mt: threads of one process."""

    engine: Literal["launchpad", "ray"] | None = None
    """What runs the processes. launchpad: ends at the first death of a process. ray: starts
    processes again that die. By default launchpad where it is installed, and ray elsewhere."""

    ray_address: str | None = None
    """HOST:PORT of the head of a running Ray cluster, of which this machine is a part
    (docs/clusters.md); by default, --engine ray starts Ray on this machine."""

    max_failures: Annotated[int, Range(0)] = 5
    """Deaths of the same process in a row that --engine ray forgives: less than a minute apart, or
    the same way without a new snapshot."""

    listen_everywhere: bool = False
    """Listen on all interfaces, in no network namespace: whoever can connect can execute code."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def name(self) -> Literal["launchpad", "ray", "threads"]:
        """The engine."""
        if self.launch == "local_mt":
            return "threads"
        return self.engine or ("ray" if missing_packages() else "launchpad")

    @property
    def needs_namespace(self) -> bool:
        """Whether a network namespace keeps others from connecting."""
        is_private = self.name == "threads" or (self.name == "ray" and has_tokens())
        return not is_private and not self.listen_everywhere

    def check(self, program: "ProgramConfig") -> None:
        """Refuses what could not run.

        Raises:
          ModuleNotFoundError: the engine is not installed.
          ValueError: one sentence about what is wrong.
        """
        program.acme_options()  # imported before any process starts
        if self.name == "threads" and self.engine is not None:
            raise ValueError(
                f"--engine {self.engine} runs processes: leave --launch {self.launch} out."
            )
        if self.ray_address is not None and self.name != "ray":
            raise ValueError("--ray-address needs --engine ray.")
        if self.name == "ray":
            from .ray_session import check_ray

            check_ray(self.ray_address, program, listen_everywhere=self.listen_everywhere)
        elif self.name == "launchpad" and (missing := missing_packages()):
            version = ".".join(map(str, sys.version_info[:2]))
            raise ModuleNotFoundError(
                "--engine launchpad needs Linux, Python 3.10 and the distributed tier: pip install "
                "-r requirements.txt in a clone, elsewhere pip install 'retrax[distributed]' (this "
                f"is Python {version}; not installed: {', '.join(missing)}). --engine ray and "
                "--launch local_mt work without it."
            )

    def network(self, refused: str) -> list[str]:
        """Sentences for the log: who can connect.

        Args:
          refused: why this process has no network namespace of its own; "" if it has one.

        Raises:
          ValueError: others could connect, and nobody asked for that.
        """
        if self.name == "threads":
            return []
        # Whether a running cluster asks for a token is its own matter.
        if self.name == "ray" and has_tokens() and self.ray_address is None:
            return ["Only processes that know the token of this program's Ray can connect to it."]
        if self.listen_everywhere:
            who = "whoever can connect can execute code in this program"
            return [f"Listening on all interfaces: {who}."]
        isolation.check_allowed(refused)
        return ["Only this program can connect to it: it has a network namespace of its own."]

    @contextlib.contextmanager
    def open(self, program: "ProgramConfig") -> "Iterator[Engine]":
        """The engine, which is ended at the end of the block."""
        if self.name == "threads":
            from .threads import start_threads

            yield start_threads
        elif self.name == "ray":
            from .ray_session import ray_session

            with ray_session(self.ray_address, program):
                from .ray import start_actors

                yield functools.partial(start_actors, max_failures=self.max_failures)
        else:
            from .launchpad import start_processes

            yield start_processes
