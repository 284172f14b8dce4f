"""Checks which parts of retrax work on this machine, and suggests fixes for the others.

Requirements and installed versions are read from package metadata. Only ale-py is imported; JAX and
MuJoCo are imported in subprocesses.
"""

import contextlib
import io
import os
import platform
import shutil
import sys
from importlib import metadata
from typing import TYPE_CHECKING, NamedTuple

from .. import __version__
from .._subprocess_probe import ask, devices

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from rich.console import Console

_EXTRAS = ("distributed", "cluster", "mujoco", "minatar", "bsuite", "video")
_MUJOCO_PROGRAM = """
import json
from retrax.environments import opengl
print(json.dumps(opengl.draw()))
"""
_MEND = {
    "core": "pip install retrax",
    # The tested set; "retrax[distributed]" has ranges.
    "distributed": "pip install -r requirements.txt",
    "cluster": 'pip install "retrax[cluster]"',
    "mujoco": 'pip install "retrax[mujoco]"',
    "minatar": 'pip install "retrax[minatar]"',
    "bsuite": 'pip install "retrax[bsuite]"',
    "video": 'pip install "retrax[video]"',
}


class Package(NamedTuple):
    """One required package.

    Attributes:
      tier: `core`, `distributed`, `cluster`, `mujoco`, `minatar`, `bsuite` or `video`.
      name: its name for pip.
      wanted: the supported versions, as a pip specifier; empty for any version.
      installed: the installed version, or None.
      fits: whether a supported version is installed.
    """

    tier: str
    name: str
    wanted: str
    installed: str | None
    fits: bool


class Check(NamedTuple):
    """The result of one check.

    Attributes:
      name: what was checked.
      works: whether it works.
      detail: the finding, in a few words.
      mend: if it does not work: the command that fixes it, or None if there is none.
    """

    name: str
    works: bool
    detail: str
    mend: str | None = None


class Report(NamedTuple):
    """Results of all checks.

    Attributes:
      packages: all packages that any tier requires on this Python.
      checks: Python, the tiers, the devices, the engines of programs, rendering by MuJoCo, the ROMs
        and the memory.
      status: the exit status: 1 if the core does not work, else 0.
    """

    packages: tuple[Package, ...]
    checks: tuple[Check, ...]
    status: int


def report() -> Report:
    """Runs all checks, in a few seconds. Missing packages raise no error."""
    try:
        packages = tuple(package for tier in ("core", *_EXTRAS) for package in _packages(tier))
    except (ImportError, metadata.PackageNotFoundError):
        missing = Check("core", False, "retrax is not installed", "pip install -e .")
        return Report((), (_python(), missing, _memory()), 1)
    devices = _devices()
    core = [_python(), _tier("core", packages), devices]
    extras = [_tier(extra, packages) for extra in _EXTRAS]
    programs = _programs({check.name for check in extras if check.works})
    checks = (*core, *_idle_gpu(devices), *extras, programs, *_pictures(), _roms(), _memory())
    return Report(packages, checks, int(not all(check.works for check in core)))


def print_report(console: "Console", found: Report | None = None) -> int:
    """Prints a report as tables of at most 80 columns, followed by the commands that fix problems.

    Args:
      console: where to print.
      found: the report to print; default: `report()`.

    Returns:
      The exit status: 1 if the core does not work, else 0.
    """
    from rich.table import Table
    from rich.text import Text

    found = report() if found is None else found
    versions = Table("package", "installed", "required", "tier", title=f"retrax {__version__}")
    for package in found.packages:
        style = "" if package.fits else "red"
        cells = (package.name, package.installed or "missing", package.wanted, package.tier)
        versions.add_row(*map(Text, cells), style=style)
    checks = Table("check", "works", "result", title="Checks")
    for check in found.checks:
        mark = Text("yes", "green") if check.works else Text("no", "red")
        checks.add_row(check.name, mark, Text(check.detail))
    console.print(versions)
    console.print(checks)
    broken = {check.mend: check.name for check in found.checks if not check.works and check.mend}
    for mend, name in broken.items():
        line = f"To fix {name}:  {mend}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return found.status


def _requirements(tier: str) -> "list[Requirement]":
    """The tier's requirements on this Python and system, those of the core excluded."""
    from packaging.requirements import Requirement  # comes with matplotlib, may be missing

    required = map(Requirement, metadata.requires("retrax") or [])
    if tier == "core":
        return [r for r in required if r.marker is None or r.marker.evaluate({"extra": ""})]
    return [
        r
        for r in required
        if r.marker and r.marker.evaluate({"extra": tier}) and not r.marker.evaluate({"extra": ""})
    ]


def _packages(tier: str) -> list[Package]:
    packages = []
    for requirement in _requirements(tier):
        installed = _version(requirement.name)
        fits = installed is not None and requirement.specifier.contains(installed, prereleases=True)
        wanted = str(requirement.specifier)
        packages.append(Package(tier, requirement.name, wanted, installed, fits))
        if (tier, requirement.name) == ("core", "jax"):
            jaxlib = _version("jaxlib")
            packages.append(Package(tier, "jaxlib", "", jaxlib, jaxlib is not None))
    return packages


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _python() -> Check:
    version = platform.python_version()
    works = sys.version_info >= (3, 10)
    detail = f"{version} on {platform.system()}"
    if sys.flags.optimize >= 2:
        detail += " without docstrings, which libraries need (PYTHONOPTIMIZE or -OO)"
        return Check("Python", False, detail, "unset PYTHONOPTIMIZE")
    return Check("Python", works, detail if works else f"{detail}; retrax needs 3.10 or newer")


def _tier(tier: str, packages: tuple[Package, ...]) -> Check:
    mine = [package for package in packages if package.tier == tier]
    name = tier if tier == "core" else f"{tier} tier"
    if not mine:
        return Check(name, False, "not available here: it needs Linux and Python 3.10")
    missing = [p.name for p in mine if p.installed is None]
    wrong = [
        f"{p.name} {p.installed} is not {p.wanted}" for p in mine if p.installed and not p.fits
    ]
    if not missing and not wrong:
        return Check(name, True, f"all {len(mine)} packages")
    found = ["missing: " + ", ".join(missing)] if missing else []
    return Check(name, False, "; ".join(found + wrong), _MEND[tier])


def _programs(tiers: set[str]) -> Check:
    """The engines of `retrax launch` that the working tiers have, the default first."""
    of_tier = {"distributed tier": "Launchpad", "cluster tier": "Ray"}
    engines = [engine for tier, engine in of_tier.items() if tier in tiers]
    if not engines:
        return Check("programs", False, "neither Launchpad nor Ray", _MEND["cluster"])
    return Check("programs", True, ", ".join([f"{engines[0]} (default)", *engines[1:]]))


def _devices() -> Check:
    if _version("jax") is None:
        return Check("JAX", False, "is missing", _MEND["core"])
    try:
        return Check("JAX", True, ", ".join(devices()))
    except RuntimeError as error:
        return Check("JAX", False, str(error), "pip install --upgrade jax")


def _pictures() -> list[Check]:
    """Whether MuJoCo, if installed, can render: `evaluate --video` requires it."""
    if _version("mujoco") is None:
        return []
    name = "MuJoCo rendering"
    try:
        return [Check(name, True, f"drawn by {ask(_MUJOCO_PROGRAM)}")]
    except RuntimeError as error:
        mend = "unset MUJOCO_GL" if "MUJOCO_GL" in os.environ else "apt-get install libegl1 libgl1"
        return [Check(name, False, str(error), mend)]


def _idle_gpu(devices: Check) -> list[Check]:
    """A failed check if there is a GPU that JAX does not see."""
    if not devices.works or "cpu" not in devices.detail or shutil.which("nvidia-smi") is None:
        return []
    mend = f'pip install "jax[cuda12]=={_version("jax")}"'
    return [Check("GPU", False, "nvidia-smi is installed, but JAX sees no GPU", mend)]


def _roms() -> Check:
    count = 0
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # ale-py prints the directory of each ROM
            from ale_py import roms

            for name in roms.get_all_rom_ids():
                with contextlib.suppress(OSError):
                    count += roms.get_rom_path(name) is not None
    except Exception as error:  # an incompatible extension module may raise any exception
        return Check("Atari ROMs", False, f"ale-py: {error}", "pip install --upgrade ale-py")
    if not count:
        mend = "unset ALE_ROMS_DIR" if "ALE_ROMS_DIR" in os.environ else None
        mend = mend or "pip install --force-reinstall --no-deps ale-py"
        return Check("Atari ROMs", False, "none found", mend)
    return Check("Atari ROMs", True, f"{count} games")


def _memory() -> Check:
    try:
        import psutil
    except ImportError:
        return Check("free memory", False, "unknown without psutil", _MEND["core"])
    return Check("free memory", True, f"{psutil.virtual_memory().available / 2**30:.1f} GiB")
