"""Benchmarks, and other scripts, as modules: their folders are no packages."""

import importlib.util
import pathlib

FOLDER = pathlib.Path(__file__).parents[1] / "benchmarks"


def load(name, folder=FOLDER):
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
