"""Batches that are read ahead: none is lost, none waits for longer than it must."""

import contextlib
import dataclasses
import time

import pytest
from replay_rows import SPEC, sequence_spec, stream
from reverb_servers import (
    BIG,
    SECONDS,
    draw,
    each_once,
    make_writer,
    open_replay,
    serve,
    server,
    write_all,
)
from waiting import wait_for

from retrax.replay.reverb import TABLE, Layout, replay
from retrax.replay.reverb.library import reverb, tensorflow
from retrax.replay.reverb.replay import Reader

pytestmark = pytest.mark.distributed

PAUSE = 0.5  # longer than Reverb waits for an item
SEQUENCE = sequence_spec(length=2)
CONFIG = dataclasses.replace(BIG, selector="uniform", batch_size=4)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(replay, "_POLL_SECONDS", 0.2)


@contextlib.contextmanager
def reading():
    """A writer with an endless stream, and a reader of batches of 4 of its sequences, each once."""
    layout = Layout(SPEC, SEQUENCE, CONFIG)
    with (
        serve([each_once(SEQUENCE, CONFIG)]) as address,
        contextlib.closing(make_writer(address, SEQUENCE, CONFIG)) as writer,
        contextlib.closing(Reader(address, layout, batch_size=4, max_wait=SECONDS)) as reader,
    ):
        rows = iter(stream(1000, 1, ends=0.0))
        writer.write(next(rows))

        def write(count):
            for _ in range(count):
                writer.write(next(rows))
            for each in writer._streams:
                each._writer.flush()

        def take(timeout):
            batch = reader.take(timeout)
            if batch is None:
                return None
            assert {len(column) for column in (*batch.info, *batch.data)} == {4}
            rows, _ = layout.packing.unpack(batch.data)
            return rows.observation[:, 0, 1].astype(int).tolist()

        yield write, take


def test_no_item_is_lost_when_nothing_arrives_for_a_while():
    """Each of the items is drawn once; two workers draw them in another order."""
    drawn = []
    with reading() as (write, take):
        write(6)
        drawn += take(SECONDS)
        assert take(PAUSE) is None
        write(1)
        assert take(PAUSE) is None
        write(6)
        drawn += take(SECONDS)
        drawn += take(SECONDS)
        assert take(PAUSE) is None
        write(3)
        drawn += take(SECONDS)
    assert sorted(drawn) == list(range(16))


class _Reset:
    """A dataset whose first pass cannot begin, since its server dies at that moment."""

    def __init__(self, dataset):
        self._dataset, self._passes = dataset, 0

    def as_numpy_iterator(self):
        self._passes += 1
        if self._passes == 1:
            raise tensorflow.errors.InternalError(None, None, "Connection reset by peer")
        return self._dataset.as_numpy_iterator()


def test_a_server_that_dies_as_a_pass_begins_is_waited_for(monkeypatch):
    dataset = Reader._dataset
    monkeypatch.setattr(Reader, "_dataset", lambda reader: _Reset(dataset(reader)))
    with reading() as (write, take):
        write(4)
        assert sorted(take(SECONDS)) == [0, 1, 2, 3]


def test_two_batches_are_drawn_ahead():
    """One by Reverb and one by the reader: newer priorities take effect after them."""
    config = dataclasses.replace(CONFIG, acting_steps_per_update=0.01)
    with server(SEQUENCE, config) as address:
        write_all(address, SEQUENCE, config, stream(5, 1))
        table = reverb.Client(address).server_info

        def drawn():
            return table(timeout=5)[TABLE].rate_limiter_info.sample_stats.completed

        with open_replay(address, SEQUENCE, config) as replay:
            for number in range(1, 6):
                draw(replay)
                wait_for(lambda number=number: drawn() >= 4 * (number + 1))
                time.sleep(0.1)
                assert drawn() <= 4 * (number + 2)
