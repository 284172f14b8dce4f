"""The learner's own replay at the end of a queue."""

import contextlib
import dataclasses
import threading
import time

import jax
import numpy as np
import pytest

pytest.importorskip("reverb", reason="needs the distributed tier (Python 3.10, Linux)")

from replay_rows import sequence_spec
from reverb_servers import (
    BIG,
    ONLY_ROWS,
    SECONDS,
    SPEC,
    draw,
    make_writer,
    open_replay,
    server,
    stream,
    streams,
    write_all,
    write_on,
    writing,
)

from retrax.replay import LocalReplay, ReplayConfig
from retrax.replay.interface import Stopped
from retrax.replay.reverb.tables import CHUNK_ROWS

pytestmark = pytest.mark.distributed


def test_the_queue_admits_as_many_rows_as_the_ratio_permits():
    """Fast actors wait for the learner: a few chunks of rows are in flight."""
    sequence = sequence_spec()
    config = ReplayConfig(
        selector="contextual", capacity=10_000, min_rows=32, batch_size=2, acting_steps_per_update=4
    )
    written, stop = [0], threading.Event()

    def act():
        with contextlib.suppress(Stopped):
            writer = make_writer(address, sequence, config, stop=stop.is_set)
            for row in stream(0, 100_000, ends=0.0):
                writer.write(row)
                written[0] += 1

    with server(sequence, config) as address, open_replay(address, sequence, config) as replay:
        actor = threading.Thread(target=act, daemon=True)
        actor.start()
        updates = 0
        while updates < 50:
            updates += replay.sample(1.0) is not None
        time.sleep(0.3)
        in_flight = 7 * CHUNK_ROWS  # being written, in the queue, in the reader, taken in
        assert 32 + updates * 4 <= written[0] <= 32 + updates * 4 + in_flight
        status = replay.status()
        assert status.steps - status.learning_since < 4 * (updates + 1) + CHUNK_ROWS
        asked = time.monotonic()
        stop.set()
        actor.join(SECONDS)
        assert time.monotonic() - asked < 1.5


@pytest.mark.parametrize("per_call", [1, 2])
@pytest.mark.parametrize("on_policy", [False, True])
def test_rounds_draw_what_one_process_draws(on_policy, per_call):
    """A chunk completes one sequence, so each is the newest once. Replays begin in round 3."""
    sequence, rounds = sequence_spec(length=4, period=3), {"pace": "rounds", "replay_ratio": 6.0}
    config = dataclasses.replace(
        BIG, **rounds, min_rows=18, on_policy=on_policy, updates_per_call=per_call
    )
    local, wanted = LocalReplay(SPEC, sequence, config, num_envs=2, seed=0), []
    for rows in streams(2, 34):
        local.add(rows)
        wanted += iter(local.sample, None)
    assert len(wanted) > 20 / per_call
    with (
        server(sequence, config, 2) as address,
        open_replay(address, sequence, config, 2) as replay,
        writing(address, sequence, config, streams(2, 34), (0, 1)),
    ):
        for keys, sample, updates in wanted:
            found = draw(replay)
            np.testing.assert_array_equal(found.keys[:2], keys[:2])
            jax.tree.map(np.testing.assert_array_equal, found.sample, sample)
            assert found.updates == updates
        assert replay.sample(0.3) is None


def test_a_restarted_actor_cuts_its_episode():
    sequence = sequence_spec(length=3)
    with (
        server(sequence, ONLY_ROWS) as address,
        open_replay(address, sequence, ONLY_ROWS) as replay,
    ):
        for _ in range(2):
            write_all(address, sequence, ONLY_ROWS, stream(0, 10, ends=0.0))
            assert replay.sample(0.3) is None
        assert replay.status().num_rows == 20
        rows, _ = replay.store.read(np.array([7, 8, 9]))
        assert rows.is_last.tolist() == [[0, 0, 1], [0, 1, 0], [1, 0, 0]]
        assert rows.is_first[1].tolist() == [0, 0, 1]
        # The rows between are lost with the actor; the next one joins in the middle.
        write_all(address, sequence, ONLY_ROWS, list(stream(0, 6, ends=0.0))[1:])
        assert replay.sample(0.3) is None
        assert replay.status().num_rows == 25
        rows, _ = replay.store.read(np.array([19]))
        assert (rows.is_last.tolist(), rows.is_first.tolist()) == ([[1, 0, 0]], [[0, 1, 0]])


def test_a_restored_replay_cuts_the_running_episodes():
    sequence = sequence_spec(length=3)
    counters = {"steps": 0, "updates": 0, "learning_since": -1}
    with (
        server(sequence, ONLY_ROWS) as address,
        open_replay(address, sequence, ONLY_ROWS) as replay,
        contextlib.closing(make_writer(address, sequence, ONLY_ROWS)) as writer,
    ):
        rows = list(stream(0, 2 * CHUNK_ROWS, ends=0.0))
        write_on(writer, rows[:CHUNK_ROWS])
        assert replay.sample(0.3) is None
        replay.restore(replay.state(), counters)
        write_on(writer, rows[CHUNK_ROWS:])
        assert replay.sample(0.3) is None
        assert replay.status().num_rows == 2 * CHUNK_ROWS
        rows, _ = replay.store.read(np.array([CHUNK_ROWS - 1]))
        assert (rows.is_last.tolist(), rows.is_first.tolist()) == ([[1, 0, 0]], [[0, 1, 0]])
