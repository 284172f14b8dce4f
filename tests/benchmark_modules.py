"""Modules of no package: benchmarks, other scripts, and what a test writes and installs."""

import importlib.util
import pathlib
import sys

FOLDER = pathlib.Path(__file__).parents[1] / "benchmarks"


def load(name, folder=FOLDER):
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def forget(folder):
    """Modules of a folder can be imported once more."""
    for name, module in [*sys.modules.items()]:
        if (getattr(module, "__file__", None) or "").startswith(f"{folder}/"):
            del sys.modules[name]


def install(folder, distribution, group, **entry_points):
    """The metadata of a distribution in a folder, which registers objects in a group."""
    metadata = folder / f"{distribution}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1\n")
    lines = [f"[{group}]", *(f"{name} = {value}" for name, value in entry_points.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
