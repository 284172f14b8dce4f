"""The tests of this folder execute documents, examples and benchmarks: `pytest -m documents`."""

import importlib.util
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items):
    """Puts the tests of this folder into their tier."""
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker("documents")


def pytest_runtest_setup(item):
    """Skips programs of many processes where no engine is installed."""
    engines = ("launchpad", "ray")
    if item.get_closest_marker("distributed") and not any(map(importlib.util.find_spec, engines)):
        pytest.skip("needs the cluster tier or the distributed one")
