import importlib
import sys

import pytest

pytest.importorskip("reverb", reason="needs the distributed tier (Python 3.10, Linux)")

from replay_rows import sequence_spec
from reverb_servers import SPEC

from retrax.replay import ReplayConfig
from retrax.replay.reverb import Layout, make_tables

pytestmark = pytest.mark.distributed


def test_a_table_too_small_for_its_environments_is_refused():
    config = ReplayConfig(capacity=100, min_rows=1)
    with pytest.raises(ValueError, match=r"keeps 25 rows each, but a sequence needs 33"):
        make_tables(Layout(SPEC, sequence_spec(33), config), num_envs=4)


@pytest.mark.parametrize("num_envs", [1, 16])
def test_a_capacity_for_each_environment(num_envs):
    config = ReplayConfig(capacity=60, capacity_per_environment=True, min_rows=1)
    tables = make_tables(Layout(SPEC, sequence_spec(4, 3), config), num_envs=num_envs)
    assert tables[0].info.max_size == 60 * num_envs // 3


def test_more_rows_to_start_with_than_fit_are_refused():
    config = ReplayConfig(capacity=60, capacity_per_environment=True, min_rows=200)
    with pytest.raises(ValueError, match=r"min_rows must be .* >= 1 and <= 120, got 200"):
        make_tables(Layout(SPEC, sequence_spec(), config), num_envs=2)


def test_without_reverb_the_error_names_the_requirements(monkeypatch):
    monkeypatch.setitem(sys.modules, "reverb", None)
    monkeypatch.delitem(sys.modules, "retrax.replay.reverb.library")
    expected = r"Reverb needs Python 3\.10 .*: pip install -r requirements\.txt \(.*reverb"
    with pytest.raises(ModuleNotFoundError, match=expected):
        importlib.import_module("retrax.replay.reverb.library")
