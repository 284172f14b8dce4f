"""Two golden runs, on the machine that recorded them; `golden.py compare` has them all."""

import importlib.util
import json
from pathlib import Path

import pytest

_SPEC = importlib.util.spec_from_file_location("golden", Path(__file__).with_name("golden.py"))
golden = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(golden)


@pytest.mark.parametrize("name", ["reactor-train-0", "d4pg-train-0"])
def test_a_golden_run_is_repeated_bit_for_bit(name, tmp_path):
    recorded = json.loads((golden.FOLDER / f"{name}.json").read_text())
    if recorded["fingerprint"] != golden.fingerprint():
        pytest.skip(f"recorded on {recorded['fingerprint']}, this is {golden.fingerprint()}")
    assert golden.differences(recorded, golden.run(name, tmp_path / "run")) == []


def test_every_difference_is_found():
    old = {"metrics": {"steps": ["1", "2"], "gone": ["1"]}, "params": {"w": ["a", 1.0]}}
    new = {"metrics": {"steps": ["1", "3"]}, "params": {"w": ["b", 1.0], "v": ["c", 1.0]}}
    assert golden.differences(old, old) == []
    assert golden.differences(old, new) == [
        "column gone only in one",
        "column steps: 2 -> 3",
        "parameters v",
        "parameters w",
    ]


def test_processors_of_one_name_are_told_apart(tmp_path):
    def named(model, flags, cores=1):
        core = f"processor : 0\ncpu family\t: 25\nmodel\t\t: {model}\nmodel name\t: AMD EPYC\n"
        path = tmp_path / "cpuinfo"
        path.write_text(f"{core}stepping : 1\nflags\t: {flags}\ncpu MHz : {cores}\n\n" * cores)
        return golden.processor(path)

    assert named(1, "fma avx2").startswith("AMD EPYC 25-1-1 ")
    assert named(1, "fma avx2") == named(1, "avx2 fma", cores=2)
    assert len({named(1, "fma avx2"), named(17, "fma avx2"), named(1, "fma avx2 avx512f")}) == 3
    assert golden.processor(tmp_path / "none")
