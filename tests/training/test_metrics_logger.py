"""A user's functions that get the rows of a run."""

import sys
import threading
import types

import numpy as np
import pytest

from retrax.training.recorder import MetricsLogger
from retrax.training.run_config import RunConfig


class Tracker:
    """Keeps the arguments of all its calls."""

    def __init__(self):
        self.calls = []
        sys.modules["somebody"].made.append(self)

    def begin(self, config, directory):
        self.calls.append((config["agent"], config["workers.num_workers"], directory))

    def __call__(self, steps, metrics):
        self.calls.append((steps, metrics))
        return "a run of its own"  # not True

    def close(self):
        self.calls.append("close")


class Broken(Tracker):
    def __call__(self, steps, metrics):
        raise RuntimeError("no network\nat all")


class Late(Tracker):
    """Has not begun: a run that its user had opened is neither filled nor closed by it."""

    def begin(self, config, directory):
        raise RuntimeError("no network\nat all")


@pytest.fixture
def module(monkeypatch):
    """A user's module, whose names are loggers."""
    module = types.ModuleType("somebody")
    module.made = []
    monkeypatch.setitem(sys.modules, "somebody", module)
    return module


def make(tmp_path, name=None, on_metrics=None):
    stop = threading.Event()
    logger = None if name is None else f"somebody:{name}"
    config = RunConfig(agent="acer", environment="catch", logger=logger)
    return MetricsLogger(config, tmp_path, on_metrics, stop=stop), stop


def test_config_rows_and_the_end_reach_it(module, tmp_path):
    module.Tracker, rows = Tracker, []
    logger, stop = make(tmp_path, "Tracker", lambda *row: rows.append(row))
    with logger:
        logger.write(3, {"loss": 0.5})
        logger.write(6, {"loss": 0.25})
    (tracker,) = module.made
    expected = [(3, {"loss": 0.5}), (6, {"loss": 0.25})]
    assert tracker.calls == [("acer", 0, tmp_path), *expected, "close"]
    assert rows == expected
    assert not stop.is_set()


def test_a_row_is_its_own(tmp_path):
    logger, _ = make(tmp_path, on_metrics=lambda steps, metrics: metrics.clear())
    row = {"loss": 0.5}
    logger.write(1, row)
    assert row == {"loss": 0.5}


@pytest.mark.parametrize("kind", [Broken, Late])
def test_errors_end_nothing_and_the_first_is_logged(module, tmp_path, caplog, kind):
    module.Logger, rows = kind, []
    logger, stop = make(tmp_path, "Logger", lambda steps, metrics: rows.append(steps))
    with logger:
        logger.write(3, {})
        logger.write(6, {})
    (made,) = module.made
    calls = [("acer", 0, tmp_path), "close"] if kind is Broken else []
    assert (rows, made.calls, stop.is_set()) == ([3, 6], calls, False)
    sentence, trace = caplog.records
    assert sentence.getMessage().startswith(
        "A logger of metrics failed (RuntimeError: no network). The run continues;"
    )
    assert (sentence.exc_info, trace.exc_info[0]) == (None, RuntimeError)


def test_one_that_cannot_be_made_is_logged(module, tmp_path, caplog):
    module.Tracker = type("Tracker", (), {"__init__": lambda self: 1 / 0, "__call__": None})
    with make(tmp_path, "Tracker")[0] as logger:
        logger.write(1, {})
    assert "A logger of metrics failed (ZeroDivisionError: division by zero)." in caplog.text


@pytest.mark.parametrize(
    ("answer", "stops"),
    [(True, True), (np.bool_(True), True), (SystemExit, True), (False, False), (1, False)],
)
def test_true_and_sys_exit_stop_the_run(tmp_path, caplog, answer, stops):
    def function(steps, metrics):
        return sys.exit(0) if answer is SystemExit else answer

    logger, stop = make(tmp_path, on_metrics=function)
    logger.write(1, {})
    assert (stop.is_set(), caplog.text) == (stops, "")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("no_such_module:NAME", "module 'no_such_module' cannot be imported from"),
        ("somebody:NAME", "RunConfig.logger must name a function of steps and metrics as package"),
        ("somebody:TEXT", "package.module:NAME, got somebody:TEXT."),
        ("somebody", "package.module:NAME, got somebody."),
    ],
)
def test_what_is_no_function_is_refused(module, name, sentence):
    module.TEXT = "text"
    with pytest.raises(ValueError, match=sentence):
        RunConfig(agent="acer", environment="catch", logger=name).find_logger()
