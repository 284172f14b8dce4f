"""The table of sequences."""

import contextlib
import dataclasses
import time

import numpy as np
import pytest
from replay_rows import SPEC, sequence_spec, stream
from reverb_servers import BIG, draw, make_writer, open_replay, server, write_on, writing
from waiting import wait_for

from retrax.replay import LocalReplay, ReplayConfig
from retrax.replay.interface import WaitTimeout
from retrax.replay.reverb.library import reverb

pytestmark = pytest.mark.distributed


def test_the_table_keeps_the_ratio_on_both_sides():
    sequence = sequence_spec()
    config = ReplayConfig(
        selector="proportional",
        capacity=10_000,
        min_rows=50,
        batch_size=4,
        acting_steps_per_update=2,
    )
    with (
        server(sequence, config) as address,
        open_replay(address, sequence, config) as replay,
        contextlib.closing(make_writer(address, sequence, config, max_wait=0.3)) as writer,
    ):
        with pytest.raises(
            WaitTimeout,
            match=r"Waited . s for the replay to accept the rows of environment 0: table sequences "
            r"at 127.0.0.1:\d+ holds \d+ of at most 10000 items \(minimum 47\), after \d+ inserts "
            r"and \d+ samples",
        ):
            write_on(writer, stream(2000, 1))
        drawn = 0
        while (batch := replay.sample(0.5)) is not None:
            drawn += len(batch[0])
        limits = reverb.Client(address).server_info(timeout=5)["sequences"].rate_limiter_info
        inserted = limits.insert_stats.completed
        assert abs(drawn - 2 * (inserted - 47)) < 50
        status = replay.status()
        assert (status.num_rows, status.num_sequences) == (inserted, inserted)
        assert (status.steps, status.learning_since) == (None, None)


def set_priorities_to_numbers(replay, missing):
    """Gives row n the priority n, in 20 batches; whether all that were `missing` have got theirs.

    Sequences that begin with row 0 have none.
    """
    for _ in range(20):
        keys, sample, updates = draw(replay)
        assert updates == 2
        numbers = sample.rows.observation[:, 0, 1]
        replay.set_priorities(keys, numbers)
        missing.difference_update(numbers.astype(int).tolist())
    return not missing


def test_priorities_decide_what_the_table_draws_and_weights_correct_for_it():
    sequence = sequence_spec(length=2, period=1)
    config = ReplayConfig(
        selector="proportional",
        capacity=100,
        min_rows=1,
        batch_size=10,
        updates_per_call=2,
        acting_steps_per_update=0.01,
        uniform_fraction=0.2,
    )
    with server(sequence, config) as address, open_replay(address, sequence, config) as replay:
        with writing(address, sequence, config, stream(6, 1)):
            wait_for(lambda: draw(replay) and replay.status().num_sequences == 5)
        assert replay.status().new_priority == 1.0
        # A second time, with the mean of the priorities that the first has set: the first may set
        # all of them with the mean of before, if what it draws was drawn before.
        for _ in range(2):
            missing = set(range(5))
            wait_for(lambda missing=missing: set_priorities_to_numbers(replay, missing))
            time.sleep(0.3)
            for _ in range(5):  # drawn before
                draw(replay)
        drawn, weights = [], []
        for _ in range(30):
            sample = draw(replay).sample
            drawn.append(sample.rows.observation[:, 0, 1].astype(int))
            weights.append(sample.weights)
        drawn, weights = np.concatenate(drawn), np.concatenate(weights)
        frequency = np.bincount(drawn, minlength=5) / drawn.size
        mixture = 0.2 / 5 + 0.8 * np.arange(5) / 10
        np.testing.assert_allclose(frequency, mixture, atol=0.08)
        np.testing.assert_allclose(np.mean(weights), 1.0, atol=0.1)
        for number in range(5):
            wanted = 1 / (5 * mixture[number])
            np.testing.assert_allclose(weights[drawn == number], wanted, rtol=0.35)
        assert replay.status().new_priority == 4.0


@pytest.mark.parametrize("selector", ["proportional", "uniform"])
def test_bad_priorities_are_never_sent(selector):
    sequence = sequence_spec(length=2)
    config = dataclasses.replace(BIG, selector=selector, batch_size=2, acting_steps_per_update=2)
    with server(sequence, config) as address, open_replay(address, sequence, config) as replay:
        with writing(address, sequence, config, stream(20, 1)):
            keys = draw(replay).keys
        for wrong in (np.nan, np.inf, -1.0):
            with pytest.raises(ValueError, match="priorities must be finite, at least 0"):
                replay.set_priorities(keys, np.array([1.0, wrong]))
        replay.set_priorities(keys, np.array([1.0, 2.0]))
        draw(replay)
        assert len(reverb.Client(address).server_info(timeout=5)) == 1
        with contextlib.closing(make_writer(address, sequence, config)) as writer:
            (row,) = stream(1, 1)
            with pytest.raises(ValueError, match="priorities must be finite, at least 0"):
                writer.write(row, new_priority=np.nan)


def test_state_and_restore():
    sequence = sequence_spec(length=3)
    config = dataclasses.replace(BIG, selector="proportional", acting_steps_per_update=4)
    with server(sequence, config) as address, open_replay(address, sequence, config) as replay:
        with writing(address, sequence, config, stream(20, 1)):
            keys = draw(replay).keys
        replay.set_priorities(keys, np.array([1.0, 2.0, 3.0, 4.0]))
        state, status = replay.state(), replay.status()
        with open_replay(address, sequence, config) as again:
            again.restore(state, {})
            assert again.status().new_priority == status.new_priority == 4.0
        local = LocalReplay(SPEC, sequence, config, num_envs=1, seed=0)
        with pytest.raises(ValueError, match=r"resume with the selector.* of the original run"):
            replay.restore(local.state(), {})
        with pytest.raises(ValueError, match=r"resume with the selector.* of the original run"):
            local.restore(state, {})
        uniform = dataclasses.replace(config, selector="uniform")
        with (
            server(sequence, uniform) as elsewhere,
            open_replay(elsewhere, sequence, uniform) as wrong,
            pytest.raises(ValueError, match=r"have selector proportional, but .* uniform"),
        ):
            wrong.restore(state, {})
