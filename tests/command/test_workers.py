"""Workers in turn from the command line; what they do: tests/training/test_workers.py."""

from run_files import rows

from retrax.training.config_file import read_config
from retrax.training.gradient_server import DROPPED
from retrax.training.run_config import WorkerOptions


def test_workers_in_turn_from_the_command_line(retrax, tmp_path):
    train = ["train", "average_agent:ENTRY", "--environment", "catch", "--num-workers", "2"]
    train += ["--max-staleness", "0", "--gradients-per-fetch", "2"]
    assert "must be False in one process" in retrax(*train, "--decoupled", "--plain")[2]
    status, _, told = retrax(*train, "--run-directory", tmp_path, "--steps", "60", "--plain")
    assert status == 0, told
    options = WorkerOptions(num_workers=2, max_staleness=0, gradients_per_fetch=2)
    assert read_config(tmp_path).workers == options
    status, _, told = retrax("train", "--resume", tmp_path, "--steps", "90", "--plain")
    assert status == 0, told
    told = rows(tmp_path)
    assert int(told[-1]["steps"]) == 90
    dropped = [float(row[DROPPED]) for row in told if row[DROPPED]]  # a row, a gradient of each
    assert dropped == [0.0, 1.0] * (len(dropped) // 2) + [0.0] * (len(dropped) % 2)
    status, out, told = retrax("evaluate", tmp_path, "--episodes", "1")
    assert (status, "90" in out + told) == (0, True)
