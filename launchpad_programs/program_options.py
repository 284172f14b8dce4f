"""Options of a program that its nodes read, too; the engine's are in `engines.options`."""

import dataclasses
from typing import Annotated

from ..basics.validation import Range


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProgramOptions:
    """What a program has besides its run."""

    max_lead: Annotated[int, Range(0)] = 256
    """Rows that the replay takes in at most while an update is due that the learner has not begun;
    actors may be 64 steps of each environment further. Under launchpad, Reverb's limits hold."""

    acme: str | None = None
    """`package.module:NAME` of your own Acme loggers, observers or environment loop
    (launchpad_programs/README.md): each actor then runs an environment loop of Acme."""
