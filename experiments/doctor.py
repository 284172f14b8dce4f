"""`retrax doctor`: which parts of retrax work on this machine, and the commands that mend others.

Requirements and installed versions are read from package metadata. Only ale-py is imported; JAX and
MuJoCo are imported in subprocesses.
"""

import contextlib
import dataclasses
import io
import os
import platform
import shutil
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .. import __version__
from ..basics.subprocess_probe import ask, devices
from .parsing import parse

_TIERS = ("core", "distributed", "cluster", "mujoco", "minatar", "bsuite", "video")
_MEND = {tier: f'pip install "retrax[{tier}]"' for tier in _TIERS}
_MEND["core"] = "pip install retrax"
_MEND["distributed"] = "pip install -r requirements.txt"  # the tested set; the extra has ranges
_ENGINES = {"distributed": "Launchpad", "cluster": "Ray"}
_NEEDED = ("Python", "core", "JAX")
_MUJOCO_PROGRAM = """
import json
from retrax.environments import opengl
print(json.dumps(opengl.draw()))
"""


@dataclasses.dataclass(frozen=True)
class DoctorArguments:
    """Versions, tiers, devices and ROMs, and the command that installs what is missing."""


class Check(NamedTuple):
    """What was checked, whether it works, the finding, and the command that mends it, if any."""

    name: str
    works: bool
    detail: str
    mend: str | None = None


def doctor_command(arguments: Sequence[str]) -> int:
    """Prints what works on this machine.

    Returns:
      The exit status: 1 if the core does not work, else 0.
    """
    parse(DoctorArguments, arguments, prog="retrax doctor")
    return print_report(Console(), report())


def report() -> list[Check]:
    """Runs all checks, in a few seconds. Missing packages raise no error."""
    core, *extras = _tiers()
    jax = _try("JAX", lambda: ", ".join(devices()), "pip install --upgrade jax")
    found = [_python(), core, jax, *_idle_gpu(jax), *extras, _programs(extras)]
    if _version("mujoco") is not None:  # `evaluate --video` draws with it
        mend = "unset MUJOCO_GL" if "MUJOCO_GL" in os.environ else "apt-get install libegl1 libgl1"
        found.append(_try("MuJoCo rendering", lambda: f"drawn by {ask(_MUJOCO_PROGRAM)}", mend))
    again = "pip install --force-reinstall --no-deps ale-py"
    mend = "unset ALE_ROMS_DIR" if "ALE_ROMS_DIR" in os.environ else again
    found.append(_try("Atari ROMs", _roms, mend))
    return [*found, _try("free memory", _memory, _MEND["core"])]


def print_report(console: Console, checks: Sequence[Check]) -> int:
    """Prints checks as a table of at most 80 columns, followed by the commands that mend.

    Returns:
      The exit status: 1 if the core does not work, else 0.
    """
    table = Table("check", "works", "result", title=f"retrax {__version__}")
    broken = [check for check in checks if not check.works]
    for check in checks:
        mark = Text("yes", "green") if check.works else Text("no", "red")
        table.add_row(check.name, mark, Text(check.detail))
    console.print(table)
    for mend, name in {check.mend: check.name for check in broken if check.mend}.items():
        line = f"To fix {name}:  {mend}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return int(any(check.name in _NEEDED for check in broken))


def _tiers() -> list[Check]:
    """For each tier, whether what it requires on this Python and system is installed."""
    found: dict[str, list[tuple[str, str]]] = {tier: [] for tier in _TIERS}  # and what is wrong
    try:
        from packaging.requirements import Requirement  # comes with matplotlib, may be missing

        required = [*map(Requirement, metadata.requires("retrax") or []), Requirement("jaxlib")]
    except (ImportError, metadata.PackageNotFoundError):
        return [Check("core", False, "retrax is not installed", "pip install -e .")]
    for wanted in required:
        tiers = [x for x in _TIERS if not wanted.marker or wanted.marker.evaluate({"extra": x})]
        version, wrong = _version(wanted.name), ""
        if version is None:
            wrong = f"{wanted.name} is missing"
        elif not wanted.specifier.contains(version, prereleases=True):
            wrong = f"{wanted.name} {version} is not {wanted.specifier}"
        if tiers:  # all of them for the core's
            found[tiers[0]].append((f"{wanted.name} {version}", wrong))
    return [_tier(tier, packages) for tier, packages in found.items()]


def _tier(tier: str, packages: Sequence[tuple[str, str]]) -> Check:
    name = tier if tier == "core" else f"{tier} tier"
    if not packages:
        return Check(name, False, "not available here: it needs Linux and Python 3.10")
    if problems := [wrong for _, wrong in packages if wrong]:
        return Check(name, False, "; ".join(problems), _MEND[tier])
    return Check(name, True, ", ".join(package for package, _ in packages))


def _version(name: str) -> str | None:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(name)
    return None


def _python() -> Check:
    detail = f"{platform.python_version()} on {platform.system()}"
    if sys.flags.optimize >= 2:
        detail += " without docstrings, which libraries need (PYTHONOPTIMIZE or -OO)"
        return Check("Python", False, detail, "unset PYTHONOPTIMIZE")
    works = sys.version_info >= (3, 10)
    return Check("Python", works, detail if works else f"{detail}; retrax needs 3.10 or newer")


def _programs(tiers: Sequence[Check]) -> Check:
    """The engines of `retrax launch` that are installed, the default first."""
    works = [check.name for check in tiers if check.works]
    found = [engine for tier, engine in _ENGINES.items() if f"{tier} tier" in works]
    if not found:
        return Check("programs", False, "neither Launchpad nor Ray", _MEND["cluster"])
    return Check("programs", True, ", ".join([f"{found[0]} (default)", *found[1:]]))


def _idle_gpu(jax: Check) -> list[Check]:
    """A failed check if there is a GPU that JAX does not see."""
    if not jax.works or "cpu" not in jax.detail or shutil.which("nvidia-smi") is None:
        return []
    mend = f'pip install "jax[cuda12]=={_version("jax")}"'
    return [Check("GPU", False, "nvidia-smi is installed, but JAX sees no GPU", mend)]


def _try(name: str, find: Callable[[], str], mend: str) -> Check:
    try:
        return Check(name, True, find())
    except Exception as error:  # an incompatible extension module may raise any exception
        return Check(name, False, str(error), mend)


def _roms() -> str:
    with contextlib.redirect_stdout(io.StringIO()):  # ale-py prints the directory of each ROM
        from ale_py import roms

        count = 0
        for rom in roms.get_all_rom_ids():
            with contextlib.suppress(OSError):
                count += roms.get_rom_path(rom) is not None
    if not count:
        raise FileNotFoundError("none found")
    return f"{count} games"


def _memory() -> str:
    import psutil

    return f"{psutil.virtual_memory().available / 2**30:.1f} GiB"
