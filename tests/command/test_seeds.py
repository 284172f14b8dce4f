"""`retrax train --seeds`: the same run with several seeds."""

import types

import pytest
from run_files import check_equal, rows, snapshots

from retrax.command import grid
from retrax.command.main import main


@pytest.fixture
def trained(monkeypatch):
    """Trains in this process; the arguments of each."""
    calls = []

    def spawn(cell, arguments, logs, jobs):
        calls.append(arguments)
        status = main(arguments)
        (logs / f"{cell.name}.txt").write_text("retrax: the sentence")
        return types.SimpleNamespace(returncode=status, poll=lambda: status)

    monkeypatch.setattr(grid, "_spawn", spawn)
    monkeypatch.setattr(grid, "_POLL_SECONDS", 0.0)
    return calls


def test_seeds_are_trained_continued_and_drawn_together(
    tiny, finished, retrax, tmp_path, trained, contents
):
    directory = tmp_path / "my runs"
    new = [*tiny, "--seeds", 2, "--jobs", 2, "--run-directory", directory]
    status, out, err = retrax(*new)
    assert (status, len(trained)) == (0, 2)
    assert out.endswith(f"\nRuns in {directory}. Next: retrax plot '{directory}'\n")
    assert "WARNING" not in (directory / "seed_0" / "log.txt").read_text()
    check_equal(directory / "seed_0", finished)
    assert rows(directory / "seed_1") != rows(directory / "seed_0")
    assert "seed_1: complete, return " in err
    status, out, err = retrax(*new)
    assert (status, out) == (2, "")
    assert err == f"retrax: {directory} holds runs already: retrax train --resume '{directory}'\n"
    # As after a kill: the second one lacks its last snapshot.
    (directory / "seed_1" / "snapshots" / "240.npz").unlink()
    first = contents(directory / "seed_0")
    trained.clear()
    assert retrax("train", "--resume", directory)[0] == 0
    assert [call[2] for call in trained] == [str(directory / "seed_1")]
    assert snapshots(directory / "seed_1") == [160, 240]
    assert contents(directory / "seed_0") == first
    status, _, err = retrax("train", "--resume", directory, "--steps", 100)
    assert (status, contents(directory / "seed_0")) == (2, first)
    assert "seed_0 is at 240 steps already: to continue, give more" in err
    assert retrax("train", "--resume", directory, "--steps", 280, "--jobs", 2)[0] == 0
    assert [snapshots(run)[-1] for run in sorted(directory.glob("seed_*"))] == [280, 280]
    status, out, _ = retrax("plot", directory, "--output", tmp_path / "curves.png")
    assert (status, out) == (0, f"{tmp_path / 'curves.png'}\n")


def test_one_that_fails_leaves_the_others_alone(tiny, retrax, tmp_path, trained):
    directory = tmp_path / "runs"
    new = [*tiny, "--agent.rate", "1e38", "--seed", 7, "--seeds", 2]
    status, _, err = retrax(*new, "--run-directory", directory)
    assert status == 1
    for seed in (7, 8):
        log = directory / "logs" / f"seed_{seed}.txt"
        assert f"seed_{seed} failed: retrax: the sentence (full output: {log})" in err


def test_one_that_its_logger_stops_is_not_continued(tiny, retrax, own_modules, trained):
    (own_modules / "early.py").write_text("def stop(steps, metrics):\n    return steps == 80\n")
    directory = own_modules / "runs"
    new = [*tiny, "--seeds", 2, "--logger", "early:stop", "--run-directory", directory]
    status, _, err = retrax(*new)
    assert (status, len(trained)) == (0, 2)
    assert "seed_0: stopped" in err
    assert [snapshots(directory / f"seed_{seed}") for seed in (0, 1)] == [[80], [80]]
