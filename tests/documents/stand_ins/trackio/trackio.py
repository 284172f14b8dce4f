"""Trackio."""

rows = []


def init(project, *, name, config):
    assert project == "retrax"
    assert config["environment"] == "catch"


def log(metrics, step):
    rows.append((step, "evaluation_return" in metrics))


def finish():
    assert [step for step, evaluated in rows if evaluated] == [200, 400]
    print(f"trackio: {len(rows)} rows")
