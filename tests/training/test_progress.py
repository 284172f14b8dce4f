"""What a person sees of a run that is going on."""

import io

import pytest
from rich.console import Console

from retrax.training import recorder as progress
from retrax.training.learner import Counters
from retrax.training.recorder import Progress

CLOCK = {
    "steps_per_second": 1234.4,
    "acting_steps_per_second": 5678.0,
    "learning_updates_per_second": 91.2,
}


@pytest.fixture
def terminal(monkeypatch):
    """Makes Progress believe in a terminal of 80 columns, and gives what it wrote."""
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=80, color_system=None)
    monkeypatch.setattr(progress, "Console", lambda stderr: console)
    return written


def test_bar_shows_everything_in_80_columns(terminal):
    with Progress(50_000_000, Counters()) as bar:
        bar.show(Counters(steps=12_345_678, updates=17), 0.512, CLOCK)
    lines = terminal.getvalue().replace("\r", "\n").splitlines()
    (line, *_) = [line for line in lines if "12345678" in line]
    assert "12345678/50000000 steps, 1234 steps/s, 91 updates/s, return 0.512, ETA -" in line
    assert bar.has_bar


def test_a_notebook_has_one_line_with_a_bar(monkeypatch, capsys):
    console = Console(force_jupyter=True)
    monkeypatch.setattr(progress, "Console", lambda stderr: console)
    with Progress(100, Counters()) as bar:
        bar.show(Counters(steps=25, updates=17), 0.512, CLOCK)
        bar.show(Counters(steps=100, updates=90), 0.5, CLOCK)
    first, compiling, quarter, whole = capsys.readouterr().out.split("\r")
    assert (first, compiling) == ("", "compiling")
    assert quarter.startswith("[#####...............] 25/100 steps, 1234 steps/s, 91 updates/s, ")
    assert whole.rstrip(" ").endswith("ETA 0:00:00\n") or whole.endswith("\n")
    assert len(whole.rstrip("\n")) >= len(quarter)  # nothing of the longer line is left
    assert bar.has_bar


@pytest.mark.parametrize(
    ("rate", "told"),
    [(91.4, "91 updates/s"), (0.64, "0.6 updates/s"), (float("nan"), "0 updates/s")],
)
def test_lines_without_a_terminal(rate, told):
    shown = Progress(100, Counters(), plain=True)
    assert not shown.has_bar
    clock = {**CLOCK, "learning_updates_per_second": rate}
    with shown:
        line = shown.show(Counters(steps=100, updates=17), 0.5, clock)
    assert line == (
        f"100/100 steps | 1234 steps/s (acting 5678 steps/s, learning {told}) | 17 updates | "
        "return 0.5 | ETA 0:00:00"
    )


def test_lines_are_seldom_but_the_last_one_always_comes(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    shown = Progress(100, Counters(steps=20, updates=3), plain=True)
    assert shown.show(Counters(steps=40, updates=3), 0.5, CLOCK) == ""
    now[0] = 15.0
    assert shown.show(Counters(steps=60, updates=3), 0.5, CLOCK).endswith("ETA -")
    now[0] = 16.0
    assert shown.show(Counters(steps=62, updates=3), 0.5, CLOCK) == ""
    assert shown.show(Counters(steps=101, updates=9), 0.5, CLOCK).endswith("ETA 0:00:00")


def test_remaining_time_is_of_the_speed_since_the_first_updates(monkeypatch):
    """40 steps/s of acting, 50 s of compiling, then 2 steps/s: 60 steps take 30 s."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    shown, ends = Progress(200, Counters(), plain=True), []
    for now[0], steps, updates in ((2.0, 80, 0), (60.0, 100, 5), (80.0, 140, 25)):
        ends.append(shown.show(Counters(steps=steps, updates=updates), 0.5, CLOCK)[-7:])
    assert ends == ["", "| ETA -", "0:00:30"]
