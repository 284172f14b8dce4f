"""`retrax doctor`: which parts of retrax work on this machine, and the commands that fix others.

Requirements and installed versions are read from package metadata; JAX is imported in a subprocess.
What a run reports itself (missing memory, ROMs or a renderer) is not checked here.
"""

import platform
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .. import __version__
from ..basics.machine import devices

_TIERS: tuple[str, ...] = ("core", "distributed", "cluster", "mujoco", "minatar", "bsuite", "box2d")
_TIERS += ("envpool", "video", "brax", "craftax", "gymnax", "jumanji", "pgx", "xminigrid")
_MEND = {tier: f'pip install "retrax[{tier}]"' for tier in _TIERS}
_MEND["core"] = "pip install retrax"
_MEND["distributed"] = "pip install -r requirements.txt"  # the tested set; the extra has ranges
_NEEDED = ("Python", "core", "JAX")


class Check(NamedTuple):
    """What was checked, whether it works, the finding, and the command that fixes it, if any."""

    name: str
    works: bool
    detail: str
    mend: str | None = None


def doctor() -> int:
    """Versions, tiers and devices, and the command that installs what is missing."""
    return print_report(Console(), report())


def report() -> list[Check]:
    """All checks; requirements come first."""
    python = Check("Python", True, f"{platform.python_version()} on {platform.system()}")
    if sys.flags.optimize >= 2:
        wrong = "without docstrings, which libraries need (PYTHONOPTIMIZE or -OO)"
        python = Check("Python", False, f"{python.detail} {wrong}", "unset PYTHONOPTIMIZE")
    try:
        jax = Check("JAX", True, ", ".join(devices()))
    except OSError as error:
        jax = Check("JAX", False, str(error), "pip install --upgrade jax")
    found: dict[str, dict[str, str]] = {tier: {} for tier in _TIERS}  # by package, what is wrong
    try:
        from packaging.requirements import Requirement  # comes with matplotlib, may be missing

        required = [*map(Requirement, metadata.requires("retrax") or []), Requirement("jaxlib")]
    except (ImportError, metadata.PackageNotFoundError):
        return [python, Check("core", False, "retrax is not installed", "pip install -e ."), jax]
    for wanted in required:
        tiers = [x for x in _TIERS if not wanted.marker or wanted.marker.evaluate({"extra": x})]
        name, wrong = wanted.name, ""
        try:
            name = f"{name} {metadata.version(name)}"
            if not wanted.specifier.contains(name.split()[1], prereleases=True):
                wrong = f"{name} is not {wanted.specifier}"
        except metadata.PackageNotFoundError:
            wrong = f"{name} is missing"
        for tier in tiers[:1]:  # the core has all of them
            found[tier][name] = wrong
    checks = [python]
    for tier, packages in found.items():
        name = tier if tier == "core" else f"{tier} tier"
        wrong = "; ".join(filter(None, packages.values()))
        mend = _MEND[tier] if wrong else None
        detail = wrong or ", ".join(packages) or "not available for this Python and system"
        checks.append(Check(name, not wrong and bool(packages), detail, mend))
    checks.insert(2, jax)  # after the core, which it belongs to
    return checks


def print_report(console: Console, checks: Sequence[Check]) -> int:
    """Prints a table and the commands that fix it; returns 1 if the core does not work, or 0."""
    table = Table("check", "works", "result", title=f"retrax {__version__}")
    broken = [check for check in checks if not check.works]
    for check in checks:
        mark = Text("yes", "green") if check.works else Text("no", "red")
        table.add_row(check.name, mark, Text(check.detail))
    console.print(table)
    for mend, name in {check.mend: check.name for check in broken if check.mend}.items():
        what = f"To {'fix' if name in _NEEDED else 'add the'} {name}:"
        console.print(f"{what}  {mend}", markup=False, highlight=False, soft_wrap=True)
    return int(any(check.name in _NEEDED for check in broken))
