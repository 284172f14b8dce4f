"""The benchmark of reading and writing runs, and prints its figures."""

import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("reverb", reason="needs the distributed tier (Python 3.10, Linux)")

pytestmark = [pytest.mark.distributed, pytest.mark.documents]


def test_the_benchmark_prints_both_ways():
    script = pathlib.Path(__file__).parents[3] / "benchmarks" / "reverb_replay.py"
    sizes = ["--batch", "4", "--rows", "400", "--seconds", "0.05", "--repeats", "1"]
    result = subprocess.run(
        [sys.executable, str(script), *sizes], capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr
    read, written = result.stdout.splitlines()
    assert read.startswith("sequences/s read")
    assert written.startswith("steps/s written")
    assert "ten columns" in read
    assert "ten columns" in written
