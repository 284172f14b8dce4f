"""Weights & Biases, MLflow or Trackio, whose calls are alike, under one of their names."""

import sys

_steps = []


def init(*, project="retrax", name="", run_name="", config=None):
    assert project == "retrax"
    assert "-catch" in name + run_name
    log_params(config or {"environment": "catch"})
    return sys.modules[__name__]


def set_experiment(name):
    assert name == "retrax"


def log_params(config):
    assert config["environment"] == "catch"
    assert not _steps


def log(metrics, step):
    assert all(type(value) is float for value in metrics.values())
    assert metrics["steps_per_second"] > 0
    assert "steps" not in metrics
    _steps.append(step)


def finish():
    assert _steps == sorted(_steps)
    assert _steps[-1] >= 400
    _steps.clear()


start_run, log_metrics, end_run = init, log, finish
