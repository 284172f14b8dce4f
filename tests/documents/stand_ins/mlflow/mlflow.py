"""MLflow."""

rows = []


def set_experiment(name):
    assert name == "retrax"


def start_run(*, run_name):
    assert "-catch" in run_name


def log_params(params):
    assert params["steps"] in (400, 1500)
    assert not rows


def log_metrics(metrics, step):
    assert all(type(value) is float for value in metrics.values())
    rows.append(step)


def end_run():
    assert rows[-1] >= 400
    print(f"mlflow: {len(rows)} rows")
    rows.clear()
