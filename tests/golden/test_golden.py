"""Two golden runs; `golden.py compare` has them all."""

import json
from pathlib import Path

import pytest
from benchmark_modules import load

golden = load("golden", Path(__file__).parent)


@pytest.mark.parametrize("name", ["reactor-train-0", "d4pg-train-0"])
def test_a_golden_run_is_repeated(name, tmp_path):
    """Bit for bit where it was recorded, within a tolerance elsewhere."""
    recorded = json.loads((golden.FOLDER / f"{name}.json").read_text())
    assert golden.compare(recorded, name, tmp_path / "run") == []


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


def test_deviations_beyond_the_tolerance_are_found_up_to_the_first_row_with_updates():
    old = {"updates": ["0", "9", "18"], "loss": ["", "2.0", "1.0"], "cut_traces": ["", "1", "1"]}
    new = {**old, "loss": ["", "2.001", "9.0"], "cut_traces": ["", "0", "0"]}
    assert golden.deviations({"metrics": old}, {"metrics": new}) == []
    for wrong in ("2.003", "", "nan"):
        changed = {"metrics": {**old, "loss": ["", wrong], "gone": ["1", "1"]}}
        assert golden.deviations({"metrics": old}, changed) == [
            "column gone only in one",
            f"row 1, column loss: 2.0 -> {wrong}",
        ]
