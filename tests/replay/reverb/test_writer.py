"""The actors' side: the sequences that travel equal the local store's; what is refused; the end."""

import dataclasses
import time

import jax
import pytest
from replay_rows import SPEC, assert_equal, sequence_spec, stream
from reverb_servers import (
    BIG,
    draw,
    each_once,
    expected_sequences,
    make_writer,
    open_replay,
    serve,
    server,
    shapes_of,
    write_all,
    write_on,
)

from retrax.replay.interface import WaitTimeout
from retrax.replay.reverb import TABLE, Layout
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
    given = stream(50, 2, sequence)
    wanted = expected_sequences(sequence, given)
    with serve([each_once(sequence, config)]) as address:
        write_all(address, sequence, config, given, (0, 1))
        assert reverb.Client(address).server_info(timeout=5)[TABLE].current_size == len(wanted)
        with open_replay(address, sequence, config, 2) as replay:
            for _ in range(len(wanted)):
                sample = draw(replay).sample
                assert replay.shapes == [shapes_of(sample)]
                rows, mask = jax.tree.map(lambda x: x[0], (sample.rows, sample.mask))
                assert_equal((rows, mask), wanted.pop(tuple(rows.observation[0, -2:].tolist())))


def test_rows_of_another_number_of_environments_are_refused():
    sequence = sequence_spec()
    with server(sequence, BIG, 2) as address:
        writer = make_writer(address, sequence, BIG, (0, 1))
        with pytest.raises(ValueError, match="rows must be of 2 environments, got 1"):
            write_on(writer, stream(1, 1))
        writer.close()
        with pytest.raises(ValueError, match="rows must be of 0 environments, got 2"):
            write_on(writer, stream(1, 2))


def test_new_sequences_have_the_priority_that_was_given():
    sequence, config = sequence_spec(length=2), dataclasses.replace(BIG, selector="proportional")
    with server(sequence, config) as address:
        writer = make_writer(address, sequence, config)
        for row, priority in zip(stream(3, 1), (1.0, 2.0, 5.0), strict=True):
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
        with pytest.raises(WaitTimeout, match="to accept the rows of environment"):
            write_on(writer, stream(1000, 4))  # nobody draws
        started = time.monotonic()
        writer.close()
        assert time.monotonic() - started < 6
