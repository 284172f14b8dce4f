"""The table of sequences: its columns, size, and the check that a server has it."""

import importlib
import pathlib
import sys

import pytest
from fresh_python import run_python
from replay_rows import SPEC, sequence_spec
from reverb_servers import BIG, SECONDS, make_writer, open_replay, serve, server

from retrax.replay import ReplayConfig
from retrax.replay.reverb import Layout, make_tables
from retrax.replay.reverb.library import reverb

pytestmark = pytest.mark.distributed


def test_tables_of_another_layout_are_refused_by_writers_and_replays():
    sequence, config, other = sequence_spec(), BIG, sequence_spec(stored=True)
    found, wanted = (Layout(SPEC, each, config).signature()[0].name for each in (other, sequence))
    sentence = rf"Reverb's table sequences has the columns {found} .* rows make {wanted} [^.]*\.$"
    with server(other, config) as address:
        with pytest.raises(ValueError, match=sentence):
            make_writer(address, sequence, config)
        with open_replay(address, sequence, config) as replay:
            for _ in range(2):
                with pytest.raises(ValueError, match=sentence):
                    replay.sample(SECONDS)


def test_a_missing_table_is_named():
    sequence, config = sequence_spec(), BIG
    expected = r"has the tables \['other'\], but the config asks for sequences"
    with serve([reverb.Table.queue("other", 1)]) as address:
        with pytest.raises(ValueError, match=expected):
            make_writer(address, sequence, config)
        with (
            open_replay(address, sequence, config) as replay,
            pytest.raises(ValueError, match=expected),
        ):
            replay.sample(SECONDS)


@pytest.mark.parametrize("num_envs", [1, 16])
def test_a_capacity_for_each_environment(num_envs):
    config = ReplayConfig(capacity=60, capacity_per_environment=True, min_rows=1)
    tables = make_tables(Layout(SPEC, sequence_spec(4, 3), config), num_envs=num_envs)
    assert tables[0].info.max_size == 60 * num_envs // 3


def test_without_reverb_the_error_names_the_requirements(monkeypatch):
    monkeypatch.setitem(sys.modules, "reverb", None)
    monkeypatch.delitem(sys.modules, "retrax.replay.reverb.library")
    expected = r"Reverb needs Python 3\.10 .*: pip install -r requirements\.txt \(.*reverb"
    with pytest.raises(ModuleNotFoundError, match=expected):
        importlib.import_module("retrax.replay.reverb.library")


@pytest.mark.documents
def test_the_benchmark_prints_both_ways():
    script = pathlib.Path(__file__).parents[3] / "benchmarks" / "reverb_replay.py"
    sizes = ["--batch", "4", "--rows", "400", "--seconds", "0.05", "--repeats", "1"]
    read, written = run_python(script, *sizes).splitlines()
    assert read.startswith("sequences/s read")
    assert written.startswith("steps/s written")
    assert "ten columns" in read
    assert "ten columns" in written
