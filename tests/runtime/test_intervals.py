"""When snapshots are due."""

import types

from retrax.runtime import intervals
from retrax.runtime.intervals import SnapshotInterval, next_multiple


def test_multiples_by_hand():
    assert [next_multiple(value, 5) for value in (0, 4, 5, 9, 10)] == [5, 5, 10, 10, 15]


def test_a_snapshot_is_due_after_steps_or_seconds(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(intervals, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    interval = SnapshotInterval(120, every=100, seconds=600.0)
    assert interval.next == 200
    assert not interval.is_due(199)
    assert interval.is_due(200)
    now[0] += 599.0
    assert not interval.is_due(130)
    now[0] += 1.0
    assert interval.is_due(130)
    assert not interval.is_due(120)  # there is nothing new
    interval.saved(130, took=10.0)
    now[0] += 599.0
    assert not interval.is_due(140)
    interval.saved(140, took=60.0)  # of which 20 are a twentieth of 1200 seconds
    now[0] += 1199.0
    assert not interval.is_due(150)
    now[0] += 1.0
    assert interval.is_due(150)
