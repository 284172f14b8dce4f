"""The tests of this folder execute documents, examples and benchmarks: `pytest -m documents`."""

from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items):
    """Puts the tests of this folder into their tier."""
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker("documents")


def pytest_runtest_setup(item):
    """Skips what needs the distributed tier where it is not installed."""
    if item.get_closest_marker("distributed"):
        pytest.importorskip("launchpad", reason="needs the distributed tier (Python 3.10, Linux)")
