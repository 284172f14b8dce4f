"""A full disk: one sentence with the path, never a traceback."""

import contextlib
import pathlib

import numpy as np
import pytest

from retrax.training.learner import Counters, Snapshot
from retrax.training.process import run_log
from retrax.training.recorder import MetricsTable
from retrax.training.snapshots import Snapshots

FULL = pathlib.Path("/dev/full")
pytestmark = pytest.mark.skipif(not FULL.exists(), reason="/dev/full is Linux's")


@pytest.mark.parametrize("size", [2, 1_000_000])  # in a buffer, or not
def test_a_snapshot_that_does_not_fit_leaves_the_older_ones(tmp_path, size):
    snapshots = Snapshots(tmp_path)
    snapshot = Snapshot(np.ones(2), {"rows": np.ones(size)}, {"steps": 1})
    snapshots.save(1, snapshot)
    (snapshots.directory / "2.npz.partial").symlink_to(FULL)
    with pytest.raises(OSError, match=r"snapshots/2.npz cannot be written: No space left on"):
        snapshots.save(2, snapshot)
    assert [path.name for path in snapshots.directory.iterdir()] == ["1.npz"]
    snapshots.save(2, snapshot._replace(counters={"steps": 2}))
    assert snapshots.steps() == [1, 2]


def test_metrics(tmp_path):
    with contextlib.closing(MetricsTable(tmp_path, [], resumed_at=None)) as table:
        table._csv.close()
        table._csv = FULL.open("w")
        path = tmp_path / "metrics.csv"
        with pytest.raises(OSError, match=f"^{path} cannot be written: No space left on device.$"):
            table.write(Counters(steps=1), {}, {})


@pytest.mark.parametrize("folder", [False, True])
def test_the_log_says_it_once(tmp_path, capsys, folder):
    if folder:  # cannot even be opened
        (tmp_path / "log.txt").mkdir()
    else:
        (tmp_path / "log.txt").symlink_to(FULL)
    with run_log(tmp_path) as log:
        log.info("one")
        log.info("two")
    reason = "Is a directory" if folder else "No space left on device"
    sentence = f"retrax: {tmp_path / 'log.txt'} cannot be written: {reason}.\n"
    assert capsys.readouterr().err == f"{sentence}one\ntwo\n"
