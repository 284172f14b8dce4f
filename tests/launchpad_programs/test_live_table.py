"""The live table, and the line in its place."""

import io

from rich.console import Console

from retrax.launchpad_programs import live_table

NAMES = ("replay/0", "counter/0", "learner/0", "actor/0", "actor/1", "evaluator/0")
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
        "actor/1": {"state": "acting", "silent_seconds": 40.0, "staleness": 5},
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


class Running:
    """A running node."""

    pid = 4321

    def __init__(self, name, how=""):
        self.name, self.how = name, how

    def ended(self):
        return self.how


RUNNING = [Running(name) for name in NAMES]


def text(table):
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def test_the_table_has_everything():
    shown = text(live_table.table(STATUS, RUNNING))
    for part in (
        "learning: 1200/60000 steps, 480 steps/s, 140 updates, 0:00:12, ETA 0:02:02",
        "240.0 steps/s",
        "3 versions behind",
        "silent for 40 s",
        "96.0 updates/s",
        "25% idle",
        "1190 rows, 1100 sequences",
        "0.25",
    ):
        assert part in shown
    rows = [line.split() for line in shown.splitlines() if "/0 " in line or "/1 " in line]
    assert [row[1] for row in rows] == list(NAMES)
    assert {row[3] for row in rows} == {"4321"}
    assert {row[1] for row in rows if "serving" in row} == {"replay/0", "counter/0"}


def test_an_ended_node_is_shown_as_such():
    killed = [Running("actor/0", "was killed by SIGKILL"), *RUNNING]
    assert "was killed by SIGKILL" in text(live_table.table(STATUS, killed))


def test_the_line_by_hand():
    assert live_table.line(STATUS) == (
        "learning | 1200/60000 steps | 480 steps/s | 140 updates, 96.0/s, idle 25% | "
        "replay 1190 rows | staleness 4 | return -0.5, evaluator 0.25 | ETA 0:02:02"
    )


def test_a_program_that_has_just_started_can_be_shown():
    status = {**STATUS, "phase": "starting", "eta_seconds": None, "nodes": {}}
    assert "starting" in text(live_table.table(status, RUNNING))
    thread = Running("learner/0")
    thread.pid = None
    shown = text(live_table.table({}, [thread])).split()
    assert [word for word in shown if word.isascii()][-4:] == ["learner/0", "-", "starting", "-"]
    assert "return -, evaluator - | ETA -" in live_table.line(status)


def test_plain_gives_a_line_at_each_change_of_phase():
    with live_table.LiveTable(plain=True) as view:
        assert view.show(STATUS, []) == live_table.line(STATUS)
        assert view.show(STATUS, []) == ""
        assert view.show({**STATUS, "phase": "finished"}, []).startswith("finished")


def test_plain_tells_what_nodes_do_until_the_clock_runs():
    states = {"learner/0": {"state": "compiling"}, "actor/0": {"state": "compiling"}}
    status = {**STATUS, "phase": "starting", "nodes": states}
    nodes = [Running("learner/0"), Running("actor/0"), Running("actor/1")]
    with live_table.LiveTable(plain=True) as view:
        assert view.show({}, nodes) == "starting | learner/0, actor/0, actor/1: starting"
        assert view.show({}, nodes) == ""
        line = "starting | learner/0, actor/0: compiling | actor/1: starting"
        assert view.show(status, nodes) == line
        states["actor/0"]["silent_seconds"] = 20.0  # while it compiles
        assert view.show(status, nodes) == ""
        assert view.show(STATUS, nodes).startswith("learning")


def test_restarts_are_shown_where_there_are_any():
    assert "restart" not in live_table.line(STATUS)
    status = {**STATUS, "restarts": {"replay/0": 2, "actor/0": 1}}
    assert "| restarts: 3 |" in live_table.line(status)
    shown = text(live_table.table(status, RUNNING)).splitlines()
    counts = {row.split()[1]: row for row in shown if "restarts: " in row}
    assert sorted(counts) == ["actor/0", "replay/0"]
    assert "restarts: 2" in counts["replay/0"]
    assert "restarts: 1" in counts["actor/0"]
