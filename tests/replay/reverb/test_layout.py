"""Rows as bytes, and the check that a server's tables hold the same rows."""

import dataclasses

import jax
import numpy as np
import pytest

pytest.importorskip("reverb", reason="needs the distributed tier (Python 3.10, Linux)")

from dm_env import specs
from replay_rows import sequence_spec
from reverb_servers import (
    BIG,
    SECONDS,
    SPEC,
    make_writer,
    open_replay,
    serve,
    server,
)

from retrax.datatypes import EnvironmentSpec
from retrax.replay.reverb import Layout
from retrax.replay.reverb.library import reverb

pytestmark = pytest.mark.distributed


def test_rows_of_the_same_size_have_other_signatures():
    """Of rows, and of extras of first rows; `test_packing` has other cases."""
    config, sequence = BIG, sequence_spec(stored=True)
    one = Layout(SPEC, sequence, config)
    assert one.signature() == Layout(SPEC, sequence_spec(stored=True), config).signature()
    integers = EnvironmentSpec(specs.Array((2,), np.int32), SPEC.actions)
    memory = tuple(jax.ShapeDtypeStruct((size,), np.float32) for size in (3, 5))
    other = dataclasses.replace(sequence, extras={**sequence.extras, "memory": memory})
    for changed in (Layout(integers, sequence, config), Layout(SPEC, other, config)):
        shapes = [[column.shape for column in each.signature()] for each in (one, changed)]
        assert str(shapes[0]) == str(shapes[1])
        assert one.signature() != changed.signature()


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
