"""What a person sees of a run that is going on."""

import io

import pytest
from rich.console import Console

from retrax.experiments import progress
from retrax.experiments.progress import Progress
from retrax.runtime.metrics import Counters

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
    with Progress(50_000_000) as bar:
        bar.show(Counters(steps=12_345_678, updates=17), 0.512, CLOCK)
    lines = terminal.getvalue().replace("\r", "\n").splitlines()
    (line, *_) = [line for line in lines if "12345678" in line]
    assert "12345678/50000000 steps, 1234 steps/s, 91 updates/s, return 0.512, ETA 0:00:0" in line
    assert bar.has_bar


def test_lines_without_a_terminal(monkeypatch):
    shown = Progress(100, plain=True)
    assert not shown.has_bar
    with shown:
        line = shown.show(Counters(steps=100, updates=17), 0.5, CLOCK)
    assert line == (
        "100/100 steps | 1234 steps/s (acting 5678 steps/s, learning 91 updates/s) | 17 updates | "
        "return 0.5 | ETA 0:00:00"
    )


def test_lines_are_seldom_but_the_last_one_always_comes(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    shown = Progress(100, start=20, plain=True)
    assert shown.show(Counters(steps=40), 0.5, CLOCK) == ""
    now[0] = 15.0
    assert shown.show(Counters(steps=60), 0.5, CLOCK).endswith("ETA 0:00:15")
    now[0] = 16.0
    assert shown.show(Counters(steps=62), 0.5, CLOCK) == ""
    assert shown.show(Counters(steps=101), 0.5, CLOCK).endswith("ETA 0:00:00")


@pytest.mark.parametrize(
    ("rate", "told"),
    [(91.4, "91 updates/s"), (0.64, "0.6 updates/s"), (float("nan"), "learning 0 updates/s")],
)
def test_slow_learning_has_a_digit_behind_the_point(rate, told):
    clock = {**CLOCK, "learning_updates_per_second": rate}
    assert told in Progress(100, plain=True).show(Counters(steps=100, updates=17), 0.5, clock)
