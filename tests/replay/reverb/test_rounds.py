"""Rounds of the newest sequences and of replayed ones."""

import collections
import contextlib
import dataclasses

import numpy as np
import pytest

pytest.importorskip("reverb", reason="needs the distributed tier (Python 3.10, Linux)")

from reverb_servers import (
    BIG,
    SPEC,
    draw,
    make_writer,
    open_replay,
    sequence_spec,
    server,
    shapes_of,
    stream,
    streams,
    write_on,
    writing,
)

from retrax.replay import LocalReplay, UpdateSchedule
from retrax.replay.reverb.library import reverb
from retrax.replay.waiting import WaitTimeout

pytestmark = pytest.mark.distributed


def test_rounds_are_of_the_newest_sequences_once_each_and_then_of_replayed_ones():
    sequence = sequence_spec(length=4, period=3)
    config = dataclasses.replace(BIG, min_rows=18, pace="rounds", replay_ratio=2.0, on_policy=True)
    num_rounds, expected = 15, UpdateSchedule(config, num_environments=2, seed=0)
    newest, replayed = collections.defaultdict(list), []
    with server(sequence, config, 2) as address, contextlib.ExitStack() as stack:
        for environment in range(2):  # more rows than will be taken: the queue blocks them
            rows = stream(environment, 3 * num_rounds + 1)
            stack.enter_context(writing(address, sequence, config, rows, (environment,)))
        replay = stack.enter_context(open_replay(address, sequence, config, 2))
        for number in range(1, num_rounds + 1):
            keys, sample, _ = draw(replay)
            assert shapes_of(sample) == replay.shapes[1]
            assert sample.weights.tolist() == [1.0, 1.0]
            replay.set_priorities(keys, np.ones(2))
            for environment, start in sample.rows.observation[:, 0].astype(int).tolist():
                newest[environment].append(start)
            expected.observe(steps=0, rows=6 * number + 2, sequences=2 * number, rounds=number)
            assert expected.due == "newest"
            expected.done()
            while expected.due:
                replayed.append(draw(replay).sample)
                expected.done()
    # Either environment may be ahead, but none of its sequences is missed or drawn twice.
    for starts in newest.values():
        assert starts == list(range(0, 3 * len(starts), 3))
    assert sum(map(len, newest.values())) == 2 * num_rounds
    assert len(replayed) > num_rounds / 2
    for sample in replayed:
        assert shapes_of(sample) == replay.shapes[0]
        numbers = sample.rows.observation[..., 1]
        np.testing.assert_array_equal(np.diff(numbers, axis=1), 1)
        assert (numbers[:, 0] % 3 == 0).all()


def updates_of_rounds(sequence, config, num_rows):
    """The calls of each round in one process, their shapes, and the rows after which it begins."""
    local = LocalReplay(SPEC, sequence, config, num_environments=2, seed=0)
    found = {}
    for number, rows in enumerate(streams(2, num_rows)):
        before = local.store.rounds()
        local.add(rows)
        batches = list(iter(local.sample, None))
        if local.store.rounds() > before:
            found[number] = [(shapes_of(sample), updates) for _, sample, updates in batches]
        else:
            assert not batches
    return found


@pytest.mark.parametrize("per_call", [1, 2])
@pytest.mark.parametrize("on_policy", [False, True])
def test_rounds_have_the_draws_of_one_process(on_policy, per_call):
    """Replay begins in the third round, of 20 rows; before, nothing is drawn for it."""
    sequence = sequence_spec(length=4, period=3)
    config = dataclasses.replace(
        BIG,
        min_rows=20,
        pace="rounds",
        replay_ratio=1.5,
        on_policy=on_policy,
        updates_per_call=per_call,
    )
    expected = updates_of_rounds(sequence, config, 34)
    counts = [len(batches) for batches in expected.values()]
    assert len(counts) == 11
    assert counts[:2] == [on_policy, on_policy]
    assert len(set(counts[2:])) > 2 / per_call
    with (
        server(sequence, config, 2) as address,
        open_replay(address, sequence, config, 2) as replay,
        contextlib.closing(make_writer(address, sequence, config, (0, 1))) as writer,
    ):
        third = list(expected)[2]
        for number, rows in enumerate(streams(2, 34)):
            if number == third:
                info = reverb.Client(address).server_info(timeout=5)["sequences"]
                assert info.rate_limiter_info.sample_stats.completed == 0
            writer.write(rows)
            for call in expected.get(number, []):
                _, sample, updates = draw(replay)
                assert (shapes_of(sample), updates) == call
            assert replay.sample(0.02) is None
        assert replay.sample(0.3) is None


def test_rounds_without_updates_do_not_stop_the_actors():
    sequence = sequence_spec(length=4, period=3)
    config = dataclasses.replace(BIG, pace="rounds", replay_ratio=0.05)
    num_updates = sum(map(len, updates_of_rounds(sequence, config, 301).values()))
    assert 0 < num_updates < 20
    with (
        server(sequence, config, 2) as address,
        open_replay(address, sequence, config, 2) as replay,
        writing(address, sequence, config, streams(2, 301), (0, 1)) as actor,
    ):
        updates = 0
        while actor.is_alive():
            updates += replay.sample(0.1) is not None
        while replay.sample(0.5) is not None:
            updates += 1
    assert updates == num_updates


def test_replays_begin_at_the_least_rows_of_all_environments():
    sequence = sequence_spec(length=4, period=3)
    fields = {"capacity": 12, "capacity_per_environment": True, "min_rows": 18}
    config = dataclasses.replace(
        BIG, pace="rounds", replay_ratio=50.0, on_policy=True, batch_size=3, **fields
    )
    with server(sequence, config, 2) as address, contextlib.ExitStack() as stack:
        for environment in range(2):
            rows = stream(environment, 10)
            stack.enter_context(writing(address, sequence, config, rows, (environment,)))
        replay = stack.enter_context(open_replay(address, sequence, config, 2))
        sizes = [len(draw(replay).sample.weights) for _ in range(5)]
    assert sizes == [2, 2, 2, 3, 3], "three rounds of 6 rows, then replays"


def test_a_restored_replay_continues_the_round():
    sequence = sequence_spec(length=4, period=3)
    config = dataclasses.replace(BIG, min_rows=1, pace="rounds", replay_ratio=6.0, on_policy=True)
    with server(sequence, config) as address:
        with open_replay(address, sequence, config) as replay:
            with writing(address, sequence, config, stream(0, 4)):
                draw(replay)
            state = replay.state()
        left = UpdateSchedule(config, num_environments=1, seed=0)
        counters = {"steps": 3, "updates": 1, "learning_since": 3}
        left.restore(state["schedule"], counters)
        with open_replay(address, sequence, config) as again:
            again.restore(state, counters)
            while left.due:
                assert left.due == "replayed"
                assert shapes_of(draw(again).sample) == again.shapes[0]
                left.done()
            assert left.updates > 1
            assert again.sample(0.2) is None, "the queue is empty"


@pytest.mark.parametrize("on_policy", [False, True])
def test_fast_actors_wait_for_the_rounds(on_policy):
    sequence = sequence_spec(length=4, period=3)
    config = dataclasses.replace(BIG, pace="rounds", replay_ratio=100.0, on_policy=on_policy)
    with (
        server(sequence, config) as address,
        open_replay(address, sequence, config) as replay,
        contextlib.closing(make_writer(address, sequence, config, max_wait=0.2)) as writer,
    ):
        for _ in range(2):
            with pytest.raises(WaitTimeout, match="the rows of environment 0"):
                write_on(writer, stream(0, 100))
            draw(replay)
        tables = reverb.Client(address).server_info(timeout=5)
    assert tables["newest"].current_size == 1
    # Taken by two rounds, read ahead twice, in the queue, and two that wait.
    assert tables["sequences"].current_size <= 7
