"""Launchpad's pickled nodes: only their owner may read or write them."""

import os
import tempfile

import pytest

pytest.importorskip("launchpad", reason="needs the distributed tier (Python 3.10, Linux)")

from retrax.launchpad_programs.workers import _temporary_files

pytestmark = pytest.mark.distributed


def test_pickled_nodes_are_their_owners(tmp_path):
    before, umask = tempfile.gettempdir(), os.umask(0)
    folder = tmp_path / "logs" / "jobs"
    try:
        with _temporary_files(folder):
            assert folder.stat().st_mode & 0o777 == 0o700
            made = tempfile.mkdtemp()
            with open(os.path.join(made, "job.pkl"), "w"):
                pass
    finally:
        os.umask(umask)
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.rglob("*")}
    assert modes == {os.path.basename(made): 0o700, "job.pkl": 0o600}
    assert tempfile.gettempdir() == before
