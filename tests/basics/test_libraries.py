"""Hygiene of imports: the core loads nothing of the distributed tier, whatever came before."""

import importlib.util
from pathlib import Path

import pytest
from fresh_python import run_python

import retrax

ROOT = Path(retrax.__file__).parent
FOLDERS = (
    *("basics", "losses", "networks", "agents", "replay", "environments"),
    *("training", "device", "evaluation", "command"),
)
DISTRIBUTED = ("tensorflow", "reverb", "acme", "launchpad")

# Imports each module given, and prints what it should not load.
IMPORT_EACH = f"""
import gc, importlib, sys

gc.disable()  # modules that are imported again are many objects

def loaded():
    return {{name: sys.modules[name] for name in {DISTRIBUTED} if name in sys.modules}}

before = loaded()
for name in sys.argv[1:]:
    importlib.import_module(name)
    after = loaded()
    changed = [key for key in before | after if before.get(key) is not after.get(key)]
    if changed:
        print(name, "changes", *changed)
"""
# As if it were the first of ours.
IMPORT_EACH_FIRST = IMPORT_EACH.replace(
    "    importlib",
    """    for module in [module for module in sys.modules if module.split(".")[0] == "retrax"]:
        del sys.modules[module]
    importlib""",
)


def core_modules():
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    paths += ROOT.glob("*.py")
    names = []
    for path in sorted(paths):
        if path.parent == ROOT / "replay" / "reverb":
            continue
        parts = ["retrax", *path.relative_to(ROOT).with_suffix("").parts]
        names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return names


def run(code, *arguments, options=()):
    return run_python(*options, "-c", code, *arguments).split("\n")[:-1]


def test_no_module_loads_the_distributed_tier_or_warns_while_it_is_imported():
    names = core_modules()
    assert {"retrax", "retrax.losses", "retrax.command.main"} <= set(names)
    assert not [name for name in names if "reverb" in name or "launchpad" in name]
    assert run(IMPORT_EACH_FIRST, *names, options=["-W", "error"]) == []


@pytest.fixture
def here(tmp_path):
    """Code that makes empty modules of these names the ones that are found."""
    for name in DISTRIBUTED:
        (tmp_path / f"{name}.py").touch()
    return f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"


@pytest.mark.parametrize(
    ("first", "name"),
    [("", "retrax.losses"), ("", "retrax.agents.reactor"), ("import tensorflow", "retrax.losses")],
)
def test_a_module_alone_loads_nothing_of_the_distributed_tier(here, first, name):
    """In a process of its own: what another module loads first could hide what this one lacks.

    A TensorFlow that is loaded already is put back; it would fail where it is used.
    """
    assert run(f"{here}{first}\n{IMPORT_EACH}", name) == []


@pytest.mark.parametrize("first", ["tensorflow", "launchpad, reverb, acme.adders.reverb"])
def test_imports_after_the_distributed_tier(first):
    """And leaves what was loaded as it was, TensorFlow above all."""
    if importlib.util.find_spec(first.split(",")[0]) is None:
        pytest.skip(f"{first} is not installed")
    assert run(f"import {first}\n{IMPORT_EACH}", *core_modules()) == []


JAX = {"jax", "haiku", "numpy", "rlax", *DISTRIBUTED}


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("retrax.command.main", JAX),
        ("retrax.launchpad_programs.launch_command", JAX),  # before NumPy's threads: `isolation`
        ("retrax.environments", {"gymnasium", "ale_py", "dm_control", "mujoco"}),
    ],
)
def test_what_must_be_quick_loads_no_jax_and_environments_no_simulator(name, others):
    assert run(f"import sys, {name}\nprint(*{others} & set(sys.modules))") == [""]
