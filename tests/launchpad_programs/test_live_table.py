"""The live table, and the line in its place."""

import io

import pytest
from rich.console import Console

pytest.importorskip("launchpad", reason="needs the distributed tier (Python 3.10, Linux)")

from retrax.launchpad_programs import live_table

pytestmark = pytest.mark.distributed

STATUS = {
    "phase": "learning",
    "last_step": 60_000,
    "steps": 1200,
    "episodes": 10,
    "updates": 140,
    "learning_since": 500,
    "seconds": 12.0,
    "steps_per_second": 480.0,
    "updates_per_second": 96.0,
    "eta_seconds": 122.4,
    "nodes": {
        "actor/0": {
            "state": "acting",
            "steps_per_second": 240.0,
            "staleness": 3,
            "return": -0.5,
            "silent_seconds": 0.1,
        },
        "actor/1": {"state": "acting", "silent_seconds": 40.0, "staleness": 5, "failures": 2},
        "evaluator/0": {"state": "waiting", "return": 0.25, "silent_seconds": 1.0},
        "learner/0": {
            "state": "learning",
            "updates_per_second": 96.0,
            "idle_share": 0.25,
            "replay_rows": 1190,
            "replay_sequences": 1100,
            "silent_seconds": 0.5,
        },
    },
}


def text(table):
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def test_the_table_has_everything():
    shown = text(live_table.table(STATUS))
    for part in (
        "learning: 1200/60000 steps, 140 updates, 0:00:12, ETA 0:02:02",
        "240.0 steps/s",
        "3 versions behind",
        "silent for 40 s",
        "learner away",
        "96.0 updates/s",
        "25% idle",
        "480.0 rows/s",
        "1190 rows, 1100 sequences",
        "0.25",
    ):
        assert part in shown


def test_an_ended_node_is_shown_as_such():
    assert "was killed by SIGKILL" in text(
        live_table.table(STATUS, {"actor/0": "was killed by SIGKILL"})
    )


def test_the_line_by_hand():
    assert live_table.line(STATUS) == (
        "learning | 1200/60000 steps | 480 steps/s | 140 updates, 96.0/s, idle 25% | "
        "replay 1190 rows | staleness 4 | return -0.5, evaluator 0.25 | ETA 0:02:02"
    )


def test_a_program_that_has_just_started_can_be_shown():
    status = {**STATUS, "phase": "starting", "eta_seconds": None, "nodes": {}}
    assert "starting" in text(live_table.table(status))
    assert "return -, evaluator - | ETA -" in live_table.line(status)


def test_plain_gives_a_line_at_each_change_of_phase():
    with live_table.LiveTable(plain=True) as view:
        assert view.show({}, {}) == ""
        assert view.show(STATUS, {}) == live_table.line(STATUS)
        assert view.show(STATUS, {}) == ""
        assert view.show({**STATUS, "phase": "finished"}, {}).startswith("finished")


def test_restarts_are_shown_where_there_are_any():
    assert "restart" not in live_table.line(STATUS)
    status = {**STATUS, "restarts": {"replay/0": 2, "actor/0": 1}}
    assert "| restarts: 3 |" in live_table.line(status)
    shown = text(live_table.table(status)).splitlines()
    counts = {row.split()[1]: row for row in shown if "restarts: " in row}
    assert sorted(counts) == ["actor/0", "replay/0"]
    assert "restarts: 2" in counts["replay/0"]
    assert "restarts: 1" in counts["actor/0"]
