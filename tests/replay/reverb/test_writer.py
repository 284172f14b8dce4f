"""The actors' side: what is refused, and how it ends."""

import dataclasses
import time

import numpy as np
import pytest

pytest.importorskip("reverb", reason="needs the distributed tier (Python 3.10, Linux)")

from replay_rows import sequence_spec
from reverb_servers import (
    BIG,
    SPEC,
    make_writer,
    server,
    stream,
    streams,
    write_on,
)

from retrax.replay.interface import WaitTimeout
from retrax.replay.reverb import Layout
from retrax.replay.reverb.library import reverb

pytestmark = pytest.mark.distributed


def test_rows_of_another_number_of_environments_are_refused():
    sequence = sequence_spec()
    with server(sequence, BIG, 2) as address:
        writer = make_writer(address, sequence, BIG, (0, 1))
        with pytest.raises(ValueError, match="rows must be of 2 environments, got 1"):
            write_on(writer, stream(0, 1))
        writer.close()
        with pytest.raises(ValueError, match="rows must be of 0 environments, got 2"):
            write_on(writer, streams(2, 1))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"reward": np.zeros(1)}, r"reward as float32 \(1,\), got float64 \(1,\)"),
        (
            {"observation": np.zeros((1, 3), "f")},
            r"observation as float32 \(1, 2\), got .*\(1, 3\)",
        ),
        ({"extras": {}}, "Rows must have the structure .*'mu'.*, got "),
    ],
)
def test_rows_that_are_not_as_specified_are_refused(change, expected):
    sequence = sequence_spec()
    with server(sequence, BIG) as address:
        writer = make_writer(address, sequence, BIG)
        (row,) = stream(0, 1)
        with pytest.raises(ValueError, match=expected):
            writer.write(row._replace(**change))
        writer.write(row)
        writer.close()


def test_new_sequences_have_the_priority_that_was_given():
    sequence, config = sequence_spec(length=2), dataclasses.replace(BIG, selector="proportional")
    with server(sequence, config) as address:
        writer = make_writer(address, sequence, config)
        for row, priority in zip(stream(0, 3), (1.0, 2.0, 5.0), strict=True):
            writer.write(row, priority)
        writer.close()
        items = list(reverb.Client(address).sample("sequences", 30, emit_timesteps=False))
    layout, found = Layout(SPEC, sequence, config), {}
    for item in items:
        rows, _ = layout.packing.unpack([item.data[0][None]])
        found[tuple(rows.observation[0, :, 1].tolist())] = item.info.priority
    assert found == {(0.0, 1.0): 2.0, (1.0, 2.0): 5.0}


def test_close_of_many_environments_takes_bounded_time():
    sequence = sequence_spec()
    with server(sequence, BIG, 4) as address:
        writer = make_writer(address, sequence, BIG, range(4), max_wait=0.5)
        with pytest.raises(WaitTimeout, match="to take the rows of environment"):
            write_on(writer, streams(4, 1000))  # nobody draws
        started = time.monotonic()
        writer.close()
        assert time.monotonic() - started < 6
