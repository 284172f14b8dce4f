"""The sequences that travel through Reverb equal the local store's, row by row."""

import dataclasses

import jax
import pytest

pytest.importorskip("reverb", reason="needs the distributed tier (Python 3.10, Linux)")

from replay_rows import sequence_spec
from reverb_servers import (
    BIG,
    assert_same,
    draw,
    each_once,
    expected_sequences,
    open_replay,
    serve,
    shapes_of,
    streams,
    write_all,
)

from retrax.replay.reverb import TABLE
from retrax.replay.reverb.library import reverb

pytestmark = pytest.mark.distributed


@pytest.mark.parametrize(
    ("length", "period", "crosses", "stored", "frame_stack"),
    [
        (4, 1, True, False, 1),
        (5, 3, True, True, 1),
        (4, 1, False, True, 1),
        (6, 4, False, True, 1),
        (5, 4, True, False, 4),
        (4, 1, False, True, 3),
    ],
)
def test_the_table_holds_the_sequences_of_the_local_store(
    length, period, crosses, stored, frame_stack
):
    """One writer writes for two environments."""
    sequence = sequence_spec(length, period, crosses, stored, frame_stack)
    config = dataclasses.replace(BIG, selector="uniform", batch_size=1)
    wanted = expected_sequences(sequence, 2, 50, stored)
    with serve([each_once(sequence, config)]) as address:
        write_all(address, sequence, config, streams(2, 50, stored), (0, 1))
        table = reverb.Client(address).server_info(timeout=5)[TABLE]
        assert table.current_size == len(wanted)
        with open_replay(address, sequence, config, 2) as replay:
            for _ in range(len(wanted)):
                sample = draw(replay).sample
                assert replay.shapes == [shapes_of(sample)]
                rows, mask = jax.tree.map(lambda x: x[0], (sample.rows, sample.mask))
                assert_same((rows, mask), wanted.pop(tuple(rows.observation[0, -2:].tolist())))
