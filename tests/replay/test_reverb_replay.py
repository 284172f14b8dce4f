"""Replay over a real Reverb server, against the in-process store."""

import collections
import contextlib
import dataclasses
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from dm_env import specs

pytest.importorskip("reverb", reason="needs the distributed tier (Python 3.10, Linux)")

from retrax.datatypes import EnvironmentSpec
from retrax.replay import ReplayConfig, Row, SequenceSpec, SequenceStore, reverb_replay
from retrax.replay.pacing import Pacing
from retrax.replay.reverb_library import reverb
from retrax.replay.reverb_reader import Reader
from retrax.replay.reverb_tables import CHUNK_ROWS, Columns

pytestmark = pytest.mark.distributed

SPEC = EnvironmentSpec(specs.Array((2,), np.float32), specs.DiscreteArray(3))
State = collections.namedtuple("State", ["hidden", "cell"])
BIG = ReplayConfig(capacity=2000, min_rows=1, batch_size=4, acting_steps_per_update=0.3)
SECONDS = 20.0  # nothing here takes as long, unless it fails


def sequence_spec(length=4, period=1, crosses=True, stored=False):
    extras = {"mu": jax.ShapeDtypeStruct((3,), np.float32)}
    if stored:
        hidden = jax.ShapeDtypeStruct((4,), np.float32)
        extras["memory"] = State(hidden, hidden)
    return SequenceSpec(
        length=length,
        period=period,
        crosses_episodes=crosses,
        extras=extras,
        first_row_extras=("memory",) if stored else (),
    )


def stream(environment, num_rows, stored=False, ends=0.2):
    """Rows of one environment, unbatched; each row's numbers tell where it is from."""
    rng = np.random.default_rng(environment)
    last = True
    for number in range(num_rows):
        first, last = last, not last and rng.random() < ends
        extras = {"mu": np.full(3, number, np.float32)}
        if stored:
            extras["memory"] = State(np.full(4, number, "f"), np.full(4, environment, "f"))
        yield Row(
            observation=np.array([environment, number], np.float32),
            reward=np.float32(rng.normal()),
            discount=np.float32(0 if last and rng.random() < 0.5 else 1),
            is_first=np.bool_(first),
            is_last=np.bool_(last),
            action=np.int32(rng.integers(3)),
            extras=extras,
        )


@contextlib.contextmanager
def serve(tables):
    running = reverb.Server(tables)
    try:
        yield f"127.0.0.1:{running.port}"
    finally:
        running.stop()


def server(sequence, replay, num_environments=1):
    return serve(
        reverb_replay.make_tables(SPEC, sequence, replay, num_environments=num_environments)
    )


def writer(address, sequence, replay, environment=0, **options):
    options = {"patience": SECONDS, **options}
    return reverb_replay.RowWriter(
        address, SPEC, sequence, replay, environment=environment, **options
    )


def write_on(out, rows):
    for row in rows:
        out.write(row)


def write_all(address, sequence, config, rows, environment=0):
    with contextlib.closing(writer(address, sequence, config, environment)) as out:
        write_on(out, rows)


@contextlib.contextmanager
def writing(*arguments):
    """Writes in a thread: the table's rate limiter may want samples meanwhile."""
    thread = threading.Thread(target=write_all, args=arguments, daemon=True)
    thread.start()
    yield thread
    thread.join(SECONDS)
    assert not thread.is_alive()


def use(function, times):
    for _ in range(times):
        function()


def learner_replay(address, sequence, replay, num_environments=1, **options):
    options = {"patience": SECONDS, **options}
    replay = reverb_replay.make_learner_replay(
        address, SPEC, sequence, replay, num_environments=num_environments, seed=0, **options
    )
    return contextlib.closing(replay)


def wait_for(condition, seconds=SECONDS):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def expected_sequences(sequence, num_environments, num_rows, stored):
    """Every sequence that the in-process store makes of the streams, by its first row."""
    store = SequenceStore(SPEC, sequence, BIG, num_envs=num_environments, seed=0)
    for environment in range(num_environments):
        for row in stream(environment, num_rows, stored):
            batched = jax.tree.map(lambda x: np.asarray(x)[None], row)
            store.add(batched, np.array([environment]))
    slots = np.flatnonzero(store.state()["selector"]["present"])
    rows, mask = store.read(slots)
    return {
        tuple(rows.observation[i, 0].tolist()): jax.tree.map(lambda x, i=i: x[i], (rows, mask))
        for i in range(len(slots))
    }


def same(found, wanted):
    jax.tree.map(np.testing.assert_array_equal, found, wanted)
    types = jax.tree.map(lambda x: x.dtype, (found, wanted))
    assert types[0] == types[1]


LAYOUTS = [(4, 1, True, False), (5, 3, True, True), (4, 1, False, True), (6, 4, False, True)]


def each_once(sequence, config):
    """The table of sequences, but it gives out every one of them once, in order."""
    return reverb.Table(
        name=reverb_replay.SEQUENCES,
        sampler=reverb.selectors.Fifo(),
        remover=reverb.selectors.Fifo(),
        max_size=1000,
        max_times_sampled=1,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature=Columns(SPEC, sequence, config).signature(),
    )


@pytest.mark.parametrize(("length", "period", "crosses", "stored"), LAYOUTS)
def test_the_table_holds_the_sequences_of_the_in_process_store(length, period, crosses, stored):
    sequence = sequence_spec(length, period, crosses, stored)
    config = dataclasses.replace(BIG, selector="uniform", batch_size=1)
    wanted = expected_sequences(sequence, 2, 50, stored)
    with serve([each_once(sequence, config)]) as address:
        for environment in range(2):
            rows = stream(environment, 50, stored)
            write_all(address, sequence, config, rows, environment)
        table = reverb.Client(address).server_info(timeout=5)[reverb_replay.SEQUENCES]
        assert table.current_size == len(wanted)
        with learner_replay(address, sequence, config, 2) as replay:
            (shape,) = replay.sample_shapes()
            for _ in range(len(wanted)):
                _, sample = replay.sample()
                assert shape == jax.tree.map(
                    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), sample
                )
                rows, mask = jax.tree.map(lambda x: x[0], (sample.rows, sample.mask))
                same((rows, mask), wanted.pop(tuple(rows.observation[0].tolist())))


@pytest.mark.parametrize(("length", "period", "crosses", "stored"), LAYOUTS)
def test_the_queue_fills_the_store_as_the_in_process_store(length, period, crosses, stored):
    sequence = sequence_spec(length, period, crosses, stored)
    config = dataclasses.replace(
        BIG, selector="contextual", min_rows=100, acting_steps_per_update=1e6
    )
    wanted = expected_sequences(sequence, 2, 50, stored)
    with (
        server(sequence, config, 2) as address,
        learner_replay(address, sequence, config, 2) as replay,
        writing(address, sequence, config, stream(0, 50, stored), 0),
        writing(address, sequence, config, stream(1, 50, stored), 1),
    ):
        wait_for(lambda: replay.receive(0.1) or replay.num_sequences == len(wanted))
        slots = np.flatnonzero(replay.state()["selector"]["present"])
        rows, mask = replay.store.read(slots)
        assert len(slots) == len(wanted)
        for i in range(len(slots)):
            found = jax.tree.map(lambda x, i=i: x[i], (rows, mask))
            same(found, wanted[tuple(found[0].observation[0].tolist())])


def test_the_queue_lets_in_as_many_rows_as_the_ratio_permits():
    """Fast actors wait for the learner: rows on their way are a few chunks."""
    sequence = sequence_spec()
    config = ReplayConfig(
        selector="contextual", capacity=10_000, min_rows=32, batch_size=2, acting_steps_per_update=4
    )
    written, stop = [0], threading.Event()

    def act():
        with contextlib.suppress(reverb_replay.Stopped):
            out = writer(address, sequence, config, stop=stop.is_set)
            for row in stream(0, 100_000, ends=0.0):
                out.write(row)
                written[0] += 1

    with server(sequence, config) as address, learner_replay(address, sequence, config) as replay:
        actor = threading.Thread(target=act, daemon=True)
        actor.start()
        updates = 0
        while updates < 50:
            replay.receive(1.0)
            while replay.ready:
                replay.sample()
                updates += 1
        time.sleep(0.3)
        on_their_way = 7 * CHUNK_ROWS  # being written, in the queue, in the reader, taken in
        assert 32 + updates * 4 <= written[0] <= 32 + updates * 4 + on_their_way
        counters = replay.counters()
        assert counters["updates"] == updates
        assert counters["steps"] - counters["learning_since"] < 4 * (updates + 1) + CHUNK_ROWS
        asked = time.monotonic()
        stop.set()
        actor.join(SECONDS)
        assert time.monotonic() - asked < 1.5


def test_the_table_keeps_the_ratio_on_both_sides():
    sequence = sequence_spec()
    config = ReplayConfig(
        selector="proportional",
        capacity=10_000,
        min_rows=50,
        batch_size=4,
        acting_steps_per_update=2,
    )
    with server(sequence, config) as address, learner_replay(address, sequence, config) as replay:
        out = writer(address, sequence, config, patience=0.5)
        with pytest.raises(
            reverb_replay.ReplayTimeout,
            match=r"Waited . s for the replay to take the rows of environment 0: table sequences "
            r"at 127.0.0.1:\d+ holds \d+ of at most 10000 items \(minimum 47\), after \d+ inserts "
            r"and \d+ samples",
        ):
            write_on(out, stream(0, 2000))
        drawn = 0
        while True:
            replay.receive(1.0)
            if not replay.ready:
                break
            keys, _ = replay.sample()
            drawn += len(keys)
        limits = reverb.Client(address).server_info(timeout=5)["sequences"].rate_limiter_info
        inserted = limits.insert_stats.completed
        assert abs(drawn - 2 * (inserted - 47)) < 50
        assert replay.num_rows == inserted


def test_rounds_are_of_the_newest_sequences_once_each_and_then_of_replayed_ones():
    sequence = sequence_spec(length=4, period=3)
    config = dataclasses.replace(BIG, min_rows=18, pace="rounds", replay_ratio=2.0, on_policy=True)
    num_rounds, expected = 15, Pacing(config, seed=0)
    newest, replayed = collections.defaultdict(list), []
    with server(sequence, config, 2) as address, contextlib.ExitStack() as stack:
        for environment in range(2):  # more rows than will be taken: the queue holds them back
            rows = stream(environment, 3 * num_rounds + 1)
            stack.enter_context(writing(address, sequence, config, rows, environment))
        replay = stack.enter_context(learner_replay(address, sequence, config, 2))
        for number in range(1, num_rounds + 1):
            keys, sample = take(replay)
            assert sample_like(sample) == replay.sample_shapes()[1]
            assert sample.weights.tolist() == [1.0, 1.0]
            replay.set_priorities(keys, np.ones(2))
            for environment, start in sample.rows.observation[:, 0].astype(int).tolist():
                newest[environment].append(start)
            expected.observe(steps=0, rows=6 * number, sequences=2 * number, rounds=number)
            assert expected.due == "newest"
            expected.done()
            while expected.due:
                replayed.append(take(replay)[1])
                expected.done()
    # Either environment may be ahead, but none of its sequences is missed or seen twice.
    for starts in newest.values():
        assert starts == list(range(0, 3 * len(starts), 3))
    assert sum(map(len, newest.values())) == 2 * num_rounds
    assert len(replayed) > num_rounds / 2
    for sample in replayed:
        numbers = sample.rows.observation[..., 1]
        np.testing.assert_array_equal(np.diff(numbers, axis=1), 1)
        assert (numbers[:, 0] % 3 == 0).all()


def take(replay):
    wait_for(lambda: replay.receive(0.1) or replay.ready)
    return replay.sample()


def sample_like(sample):
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), sample)


def test_fast_actors_wait_for_on_policy_updates():
    sequence = sequence_spec(length=4, period=3)
    config = dataclasses.replace(BIG, pace="rounds", replay_ratio=0.0, on_policy=True)
    with server(sequence, config) as address:
        out = writer(address, sequence, config, patience=0.5)
        with pytest.raises(reverb_replay.ReplayTimeout, match="the rows of environment 0"):
            write_on(out, stream(0, 100))
        sizes = {
            name: info.current_size for name, info in reverb.Client(address).server_info().items()
        }
        out.close()
    assert sizes["newest"] == 1
    assert sizes["sequences"] <= 2


def test_priorities_decide_what_the_table_draws_and_weights_undo_it():
    sequence = sequence_spec(length=2, period=1)
    config = ReplayConfig(
        selector="proportional",
        capacity=100,
        min_rows=1,
        batch_size=20,
        acting_steps_per_update=0.02,
        uniform_fraction=0.2,
    )
    with server(sequence, config) as address, learner_replay(address, sequence, config) as replay:
        with writing(address, sequence, config, stream(0, 6)):
            wait_for(lambda: replay.sample() and replay.num_sequences == 5)
        assert replay.new_priority == 1.0
        for _ in range(20):
            keys, sample = replay.sample()
            # Row n is worth n; those that begin with row 0 are worth nothing.
            replay.set_priorities(keys, sample.rows.observation[:, 0, 1])
        time.sleep(0.3)
        for _ in range(5):  # drawn before
            replay.sample()
        drawn, weights = [], []
        for _ in range(30):
            _, sample = replay.sample()
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
        assert replay.new_priority == 4.0


@pytest.mark.parametrize("selector", ["contextual", "proportional", "uniform"])
def test_bad_priorities_never_leave(selector):
    sequence = sequence_spec(length=2)
    config = dataclasses.replace(BIG, selector=selector, batch_size=2, acting_steps_per_update=2)
    with server(sequence, config) as address, learner_replay(address, sequence, config) as replay:
        with writing(address, sequence, config, stream(0, 20)):
            replay.receive(SECONDS)
            keys, _ = replay.sample()
        for wrong in (np.nan, np.inf, -1.0):
            with pytest.raises(ValueError, match="priorities must be finite, at least 0"):
                replay.set_priorities(keys, np.array([1.0, wrong]))
        replay.set_priorities(keys, np.array([1.0, 2.0]))
        replay.sample()
        info = reverb.Client(address).server_info(timeout=5)
        assert len(info) == 1
        if selector == "proportional":
            out = writer(address, sequence, config)
            out.new_priority = np.nan
            with pytest.raises(ValueError, match="priorities must be finite, at least 0"):
                write_on(out, stream(0, 20))


def test_an_actor_that_begins_anew_cuts_its_episode():
    sequence = sequence_spec(length=3)
    config = dataclasses.replace(BIG, selector="contextual", acting_steps_per_update=1e6)
    with server(sequence, config) as address, learner_replay(address, sequence, config) as replay:
        for _ in range(2):
            out = writer(address, sequence, config)
            write_on(out, stream(0, 10, ends=0.0))
            out.close()
            replay.receive(0.3)
        assert replay.num_rows == 20
        rows, _ = replay.store.read(np.array([7, 8, 9]))
        assert rows.is_last[:, :].tolist() == [[0, 0, 1], [0, 1, 0], [1, 0, 0]]
        assert rows.is_first[1].tolist() == [0, 0, 1]
        # The rows between are lost with the actor; the next episode is let in.
        out = writer(address, sequence, config)
        rows = list(stream(0, 3, ends=0.0))
        write_on(out, [*rows[1:], *rows])
        out.close()
        replay.receive(0.3)
        assert replay.num_rows == 23


def test_an_environment_that_nobody_expects_is_refused():
    sequence = sequence_spec(length=3)
    config = dataclasses.replace(BIG, selector="contextual")
    with server(sequence, config) as address, learner_replay(address, sequence, config) as replay:
        out = writer(address, sequence, config, environment=1)
        write_on(out, stream(1, 3))
        out.close()
        with pytest.raises(ValueError, match=r"Rows of environment 1 arrived, but .* made for 1"):
            replay.receive(SECONDS)


@pytest.mark.parametrize("selector", ["contextual", "proportional"])
def test_state_and_restore(selector):
    sequence = sequence_spec(length=3)
    config = dataclasses.replace(BIG, selector=selector, acting_steps_per_update=4)
    with server(sequence, config) as address, learner_replay(address, sequence, config) as replay:
        with writing(address, sequence, config, stream(0, 20)):
            replay.receive(SECONDS)
            keys, _ = replay.sample()
        replay.set_priorities(keys, np.array([1.0, 2.0, 3.0, 4.0]))
        state, counters = replay.state(), replay.counters()
        other_selector = {"contextual": "proportional", "proportional": "contextual"}[selector]
        other = dataclasses.replace(config, selector=other_selector)
        with learner_replay(address, sequence, config) as again:
            again.restore(state, counters)
            assert again.counters() == counters
            assert again.new_priority == replay.new_priority
            if selector == "contextual":
                assert again.num_sequences == replay.num_sequences
        with (
            server(sequence, other) as elsewhere,
            learner_replay(elsewhere, sequence, other) as wrong,
            pytest.raises(ValueError, match="go on with the selector and the launcher"),
        ):
            wrong.restore(state, counters)


def free_address():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{unused.getsockname()[1]}"


@pytest.mark.parametrize("selector", ["contextual", "proportional"])
def test_without_a_server_everything_ends_with_a_sentence(selector):
    sequence, address = sequence_spec(), free_address()
    config = dataclasses.replace(BIG, selector=selector)
    started = time.monotonic()
    with pytest.raises(
        reverb_replay.ReplayTimeout,
        match=f"s for the replay's server: no Reverb server answers at {address}",
    ):
        writer(address, sequence, config, patience=0.5)
    with pytest.raises(reverb_replay.Stopped):
        writer(address, sequence, config, stop=lambda: True)
    with learner_replay(address, sequence, config, patience=0.5) as replay:
        wait_for(lambda: not replay._reader._thread.is_alive())
        with pytest.raises(reverb.errors.DeadlineExceededError):
            replay.receive(1.0)
    assert time.monotonic() - started < 10


PACED = dataclasses.replace(BIG, acting_steps_per_update=4)
SELECTORS = ("contextual", "proportional")
SERVER = """
import sys, time
from test_reverb_replay import *
tables = [
    reverb_replay.make_tables(
        SPEC, sequence_spec(), dataclasses.replace(PACED, selector=selector), num_environments=1
    )[0]
    for selector in SELECTORS
]
running = reverb.Server(tables, port=int(sys.argv[1]))
print("up", flush=True)
time.sleep(300)
"""


@contextlib.contextmanager
def server_process(address):
    """A server over gRPC with both tables: one in the same process is read without."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", SERVER, address.split(":")[1]],
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout.readline() == b"up\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_server_that_dies_holds_nobody_for_ever():
    sequence, address = sequence_spec(), free_address()
    queued, table = (dataclasses.replace(PACED, selector=selector) for selector in SELECTORS)
    with (
        server_process(address) as process,
        learner_replay(address, sequence, queued, patience=1.0) as own,
        learner_replay(address, sequence, table, patience=1.0) as replay,
    ):
        writers = [writer(address, sequence, each, patience=1.0) for each in (queued, table)]
        for out in writers:
            write_on(out, stream(0, CHUNK_ROWS))
        own.receive(SECONDS)
        assert own.num_rows == CHUNK_ROWS
        replay.receive(SECONDS)
        keys, _ = replay.sample()
        process.send_signal(signal.SIGKILL)
        process.wait()
        started = time.monotonic()
        for out in writers:
            with pytest.raises(
                reverb_replay.ReplayTimeout,
                match="replay to take the rows of environment 0: no Reverb server answers at",
            ):
                write_on(out, stream(1, 1000))
            out.close()
        with pytest.raises(reverb_replay.ReplayTimeout, match="for a batch: no Reverb server"):
            use(replay.sample, 10)
        with pytest.raises(reverb_replay.ReplayTimeout, match="for priorities to be taken"):
            use(lambda: replay.set_priorities(keys, np.ones(4)), 30)
        with pytest.raises(
            reverb_replay.ReplayTimeout, match=r"No checkpoint of Reverb: .* no Reverb server"
        ):
            replay.state()
        own.receive(0.1)
    assert time.monotonic() - started < 40


def test_a_reader_tells_what_ended_it():
    sequence, config = sequence_spec(), dataclasses.replace(BIG, selector="uniform")

    def fail(items):
        raise ZeroDivisionError("on purpose")

    with server(sequence, config) as address:
        reader = Reader(address, "sequences", fail, in_flight=1, ahead=1, patience=1.0)
        with pytest.raises(ZeroDivisionError, match="on purpose"):
            reader.take(SECONDS)
        reader.close()


def test_a_table_too_small_for_its_environments_is_refused():
    config = ReplayConfig(capacity=100, min_rows=1)
    with pytest.raises(ValueError, match=r"keeps 25 rows each, but a sequence has 33"):
        reverb_replay.make_tables(SPEC, sequence_spec(33), config, num_environments=4)


def test_without_reverb_the_sentence_tells_what_to_install():
    code = "import sys; sys.modules['reverb'] = None\nfrom retrax.replay import reverb_replay"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert "ModuleNotFoundError: Launching needs Python 3.10" in result.stderr
    assert "pip install -r requirements.txt" in result.stderr
