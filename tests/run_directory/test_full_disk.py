"""A full disk: one sentence with the path, never a traceback."""

import contextlib
import errno
import os
import pathlib

import numpy as np
import pytest

from retrax.run_directory.log import close_log, setup_log
from retrax.run_directory.metrics_writer import MetricsTable
from retrax.run_directory.snapshots import Snapshots
from retrax.run_directory.state_file import pack_state, write_state
from retrax.runtime.learner import Snapshot
from retrax.runtime.metrics import Counters

FULL = pathlib.Path("/dev/full")
pytestmark = pytest.mark.skipif(not FULL.exists(), reason="/dev/full is Linux's")


def raise_full(*arguments, **options):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def raise_as_orbax(*arguments, **options):
    raise ValueError('RESOURCE_EXHAUSTED: Error writing "r/0" [ENOSPC No space left on device]')


@pytest.mark.parametrize("error", [raise_full, raise_as_orbax])
def test_a_snapshot_that_does_not_fit_leaves_the_older_ones(tmp_path, monkeypatch, error):
    snapshots = Snapshots(tmp_path)
    snapshot = Snapshot(np.ones(2), {"rows": np.ones(2)}, {"steps": 1})
    snapshots.save(1, snapshot)

    def save(path, **options):
        path.mkdir()
        error()

    with monkeypatch.context() as patch:
        patch.setattr(snapshots._checkpointer, "save", save)
        with pytest.raises(OSError, match=r"snapshots/2\S* cannot be written: No space left on"):
            snapshots.save(2, snapshot)
    assert [path.name for path in snapshots.directory.iterdir()] == ["1"]
    snapshots.save(2, snapshot._replace(counters={"steps": 2}))
    assert snapshots.steps() == [1, 2]
    snapshots.close()


def test_metrics(tmp_path):
    with contextlib.closing(MetricsTable(tmp_path, [], resumed_at=None)) as table:
        table._csv.close()
        table._csv = FULL.open("w")
        path = tmp_path / "metrics.csv"
        with pytest.raises(OSError, match=f"^{path} cannot be written: No space left on device.$"):
            table.write(Counters(steps=1), {}, {})


def test_states(tmp_path, monkeypatch):
    monkeypatch.setattr(pathlib.Path, "write_bytes", raise_full)
    with pytest.raises(OSError, match=f"^{tmp_path / 'a.npz'} cannot be written: No space left"):
        write_state(tmp_path / "a.npz", pack_state(np.ones(2)))


@pytest.mark.parametrize("folder", [False, True])
def test_the_log_says_it_once(tmp_path, capsys, folder):
    if folder:  # cannot even be opened
        (tmp_path / "log.txt").mkdir()
    else:
        (tmp_path / "log.txt").symlink_to(FULL)
    log = setup_log(tmp_path)
    log.info("one")
    log.info("two")
    close_log(log)
    reason = "Is a directory" if folder else "No space left on device"
    sentence = f"retrax: {tmp_path / 'log.txt'} cannot be written: {reason}.\n"
    assert capsys.readouterr().err == f"{sentence}one\ntwo\n"
