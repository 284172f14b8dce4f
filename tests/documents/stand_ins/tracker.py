"""Weights & Biases, MLflow or Trackio, under one of their names: runs are objects, or have ids."""

from types import SimpleNamespace


class Run:
    """Checks what it gets."""

    def __init__(self, config):
        assert config["environment"] == "catch"
        self.steps = []

    def log(self, metrics, step):
        assert all(type(value) is float for value in metrics.values())
        assert metrics["steps_per_second"] > 0
        assert "steps" not in metrics
        self.steps.append(step)

    def finish(self):
        assert self.steps == sorted(self.steps)
        assert self.steps[-1] >= 400


def init(*, project, name, config, reinit="create_new"):
    assert (project, reinit) == ("retrax", "create_new")
    assert "-catch" in name
    return Run(config)


def set_experiment(name):
    assert name == "retrax"
    return SimpleNamespace(experiment_id="7")


class MlflowClient:
    def create_run(self, experiment_id, *, run_name):
        assert (experiment_id, "-catch" in run_name) == ("7", True)
        self.params, self.steps = {}, []
        return SimpleNamespace(info=SimpleNamespace(run_id="8"))

    def log_param(self, run_id, key, value):
        assert not self.steps
        self.params[run_id, key] = value

    def log_metric(self, run_id, key, value, *, step):
        assert (type(value), key != "steps") == (float, True)
        self.steps.append(step)

    def set_terminated(self, run_id):
        run = Run({"environment": self.params[run_id, "environment"]})
        run.steps = self.steps
        run.finish()
