"""Every benchmark runs, at a size that takes seconds, and prints its figures."""

import pathlib
import subprocess
import sys

import pytest

BENCHMARKS = pathlib.Path(__file__).parents[1] / "benchmarks"


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (
            "acer_step.py --environment catch --updates 3 --num-envs 4",
            ["update on resident data", "training loop", "share of the loop outside jitted calls"],
        ),
        (
            "reactor_step.py --environment catch --updates 3 --keys 1000",
            [
                "update on resident data",
                "share of the target in it",
                "naive scan / ours",
                "share of the loop outside jitted calls",
                "set_priorities",
            ],
        ),
        (
            "agent57_step.py --batch 1 --trace 2 --scale 0.05 --memory 100 --repeats 1",
            ["acting step", "share of the look-up", "update of 1 x 2"],
        ),
        (
            "d4pg_step.py --preset small --updates 3 --rows 1200",
            [
                "updates/s on resident data",
                "updates/s in the training loop",
                "loop / resident",
                "drawing for a call",
                "setting its priorities",
            ],
        ),
    ],
)
def test_benchmark_runs(arguments, printed, tmp_path):
    name, *rest = arguments.split()
    command = [sys.executable, str(BENCHMARKS / name), *rest]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert result.returncode == 0, result.stderr
    for line in printed:
        assert line in result.stdout


def test_every_benchmark_is_run_by_a_test():
    tests = "".join(path.read_text() for path in pathlib.Path(__file__).parent.rglob("test_*.py"))
    for path in BENCHMARKS.glob("*.py"):
        assert path.name in tests, path.name
