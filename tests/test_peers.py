"""benchmarks/peers.py: what counts as solved, and that runs which have ended are not repeated."""

import csv
import json
import pathlib
import subprocess
import sys

import pytest
from benchmark_modules import load

peers = load("peers")
CURVE = [(100, 1.0, 15, 10.0), (200, 2.0, 15, 30.0), (300, 3.0, 10, 60.0), (400, 4.0, 10, 0.0)]


@pytest.mark.parametrize(
    ("rows", "mean"), [(1, None), (2, 20.0), (3, (15 * 30 + 10 * 60) / 25), (4, 30.0)]
)
def test_the_mean_of_the_last_episodes(rows, mean):
    assert peers.last_mean(CURVE[:rows]) == mean


@pytest.mark.parametrize(
    ("threshold", "found"), [(20.0, (200, 2.0)), (42.0, (300, 3.0)), (42.1, (None, None))]
)
def test_solved_is_the_first_moment(threshold, found):
    assert peers.solved(CURVE, threshold) == found


@pytest.fixture
def peer(tmp_path):
    """A Python that says what it was asked for, and learns CartPole in 30 episodes."""
    program = f"""#!{sys.executable}
import json, sys
given = json.load(sys.stdin)
open({str(tmp_path / "asked")!r}, "a").write(json.dumps(given) + "\\n")
for episode in range(1, 31):
    print(json.dumps([10 * episode, 0.5 * episode, 500.0 if episode > 10 else 9.0]))
print(given["evaluated"] + 400.0)
"""
    path = tmp_path / "python"
    path.write_text(program)
    path.chmod(0o755)
    return str(path)


REAL_RUN = subprocess.run


def fake_run(command, **options):
    """A run of ours, two rows with episodes and two without, or its evaluation."""
    if command[0] != sys.executable:
        return REAL_RUN(command, **options)
    if "evaluate" in command:
        assert command[-3:] == ["--episodes", "20", "--json"]
        return subprocess.CompletedProcess(command, 0, stdout=b'{"mean_return": 123.5}')
    run = pathlib.Path(command[command.index("--run-directory") + 1])
    run.mkdir(parents=True)
    rows = ("50,15,100.0,2.0", "60,15,,2.5", "90,25,480.0,4.0", "99,25,,4.8")
    rows = "\n".join(("steps,episodes,episode_return,seconds", *rows, ""))
    (run / "metrics.csv").write_text(rows)
    return subprocess.CompletedProcess(command, 0)


def test_runs_that_ended_are_not_repeated(tmp_path, peer, monkeypatch, capsys):
    monkeypatch.setattr(peers.subprocess, "run", fake_run)
    arguments = [str(tmp_path / "here"), "--peer", peer, "--tasks", "cart-pole", "--seeds"]
    peers.main([*arguments, "1"])
    first = capsys.readouterr().out.splitlines()
    with (tmp_path / "here" / "peers.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert [row[1] for row in rows] == ["side", "acer", "reactor", "sb3-dqn", "sbx-dqn", "sb3-ppo"]
    mean = str((15 * 100 + 10 * 480) / 25)
    named, solved = (dict(zip(rows[0], row, strict=True)) for row in (rows[1], rows[3]))
    # Steps are all, though no episode ended after 90.
    ours = {"steps": "99", "seconds": "4.8", "last": mean, "evaluated": "123.5"}
    assert named == named | ours | {"seed": "0", "solved_steps": "", "solved_seconds": ""}
    assert (solved["solved_steps"], solved["solved_seconds"]) == ("290", "14.5")  # 19 of 20: 500
    assert first[2:4] == [
        f"| cart-pole | acer | 0 of 1 |  |  |  | {mean} | 123.5 | 5 |",
        f"| cart-pole | reactor | 0 of 1 |  |  |  | {mean} | 123.5 | 5 |",
    ]
    assert first[4] == "| cart-pole | sb3-dqn | 1 of 1 | 290 | 14.5 | 1.00 | 500.0 | 420.0 | 15 |"
    asked = [json.loads(line) for line in (tmp_path / "asked").read_text().splitlines()]
    modules = ["stable_baselines3", "sbx", "stable_baselines3"]
    assert [(each["module"], each["seed"]) for each in asked] == [(name, 0) for name in modules]
    peers.main([*arguments, "2", "--sides", "acer", "sb3-dqn"])
    asked = [json.loads(line) for line in (tmp_path / "asked").read_text().splitlines()]
    assert [each["seed"] for each in asked] == [0, 0, 0, 1]
    assert "| cart-pole | sb3-dqn | 2 of 2 |" in capsys.readouterr().out
