"""How a program is run, read by `retrax launch` before anything heavy: see `isolation`."""

import dataclasses
import importlib.metadata
import importlib.util
from typing import Annotated, Literal

from ...basics.validation import Range, check_fields
from . import isolation

OLDEST_RAY = (2, 48)
_WITH_TOKENS = (2, 52)  # the oldest Ray that answers only those who know a token
_LAUNCHPAD = ("launchpad", "reverb", "acme", "courier")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProgramOptions:
    """What a program has besides its run, for its nodes."""

    max_lead: Annotated[int, Range(0)] = 256
    """Maximum rows that the replay accepts while a due update has not begun; actors may be 64 steps
    of each environment further ahead. Under launchpad, Reverb's limits apply."""

    acme: str | None = None
    """`package.module:NAME` of your own Acme loggers, observers or environment loop
    (launchpad_programs/README.md). Each actor then runs an environment loop of Acme."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineOptions(ProgramOptions):
    """How a program is run."""

    engine: Literal["launchpad", "ray", "threads"] | None = None
    """What runs the nodes. launchpad ends the program when a process dies; ray restarts the
    process; threads runs them in one process, for debuggers. The default is launchpad where it is
    installed, and ray elsewhere."""

    ray_address: str | None = None
    """HOST:PORT of the head of a running Ray cluster to which this machine belongs
    (docs/clusters.md). By default, --engine ray starts Ray on this machine."""

    max_failures: Annotated[int, Range(0)] = 5
    """Successive deaths of one process that --engine ray tolerates: less than a minute apart, or in
    the same way without a new snapshot."""

    listen_everywhere: bool = False
    """Listen on all interfaces, without a network namespace: anyone who connects can run code."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def name(self) -> Literal["launchpad", "ray", "threads"]:
        """The engine."""
        return self.engine or ("ray" if missing_packages() else "launchpad")

    @property
    def needs_namespace(self) -> bool:
        """Whether a network namespace keeps others from connecting."""
        is_private = self.name == "threads" or (self.name == "ray" and has_tokens())
        return not is_private and not self.listen_everywhere

    def network(self, refused: str) -> list[str]:
        """Who can connect, for the log; refuses if others could unasked, `refused` as `isolate`."""
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


def missing_packages() -> list[str]:
    """Packages that the engine launchpad needs and that are not installed."""
    return [name for name in _LAUNCHPAD if importlib.util.find_spec(name) is None]


def ray_version() -> tuple[int, int]:
    """Ray's version; (0, 0) if it is not installed."""
    try:
        major, minor = importlib.metadata.version("ray").split(".")[:2]
    except importlib.metadata.PackageNotFoundError:
        return 0, 0
    return int(major), int(minor)


def has_tokens() -> bool:
    """Whether the installed Ray answers only those who know a token."""
    return ray_version() >= _WITH_TOKENS
