"""`retrax doctor`."""

import dataclasses
from collections.abc import Sequence

from rich.console import Console

from .. import doctor
from ..parsing import parse


@dataclasses.dataclass(frozen=True)
class DoctorArguments:
    """Versions, tiers, devices and ROMs, and the command that installs what is missing."""


def doctor_command(arguments: Sequence[str]) -> int:
    """Prints what works on this machine."""
    parse(DoctorArguments, arguments, prog="retrax doctor")
    return doctor.print_report(Console())
