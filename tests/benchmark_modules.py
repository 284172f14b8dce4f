"""Benchmarks as modules: the folder is no package."""

import importlib.util
import pathlib

FOLDER = pathlib.Path(__file__).parents[1] / "benchmarks"


def load(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
