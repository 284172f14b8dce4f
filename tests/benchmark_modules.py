"""Benchmarks, and other scripts, as modules: their folders are no packages."""

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
