"""Servers, writers and replays for tests of replay over Reverb. Needs the distributed tier."""

import contextlib
import socket
import threading

import jax
import numpy as np
from replay_rows import SPEC

from retrax.datatypes import ReplayConfig
from retrax.replay import LocalReplay
from retrax.replay.reverb import TABLE, Layout, ReverbReplay, ReverbWriter, make_tables
from retrax.replay.reverb.library import reverb

BIG = ReplayConfig(capacity=2000, min_rows=1, batch_size=4, acting_steps_per_update=0.3)
SECONDS = 20.0  # no wait takes as long, unless it fails


@contextlib.contextmanager
def serve(tables):
    running = reverb.Server(tables)
    try:
        yield f"127.0.0.1:{running.port}"
    finally:
        running.stop()


def server(sequence, config, num_envs=1):
    return serve(make_tables(Layout(SPEC, sequence, config), num_envs=num_envs))


def each_once(sequence, config):
    """The table of sequences, but each one is drawn once, in order."""
    return reverb.Table(
        name=TABLE,
        sampler=reverb.selectors.Fifo(),
        remover=reverb.selectors.Fifo(),
        max_size=1000,
        max_times_sampled=1,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature=Layout(SPEC, sequence, config).signature(),
    )


def free_address():
    """An address at which nothing answers."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{unused.getsockname()[1]}"


def make_writer(address, sequence, config, environments=(0,), **options):
    options = {"max_wait": SECONDS, **options}
    layout = Layout(SPEC, sequence, config)
    return ReverbWriter(address, layout, environments=environments, **options)


def write_on(writer, rows):
    for row in rows:
        writer.write(row)


def write_all(address, sequence, config, rows, environments=(0,)):
    with contextlib.closing(make_writer(address, sequence, config, environments)) as writer:
        write_on(writer, rows)


@contextlib.contextmanager
def writing(*arguments):
    """Writes in a thread: the table's rate limiter may require samples meanwhile."""
    thread = threading.Thread(target=write_all, args=arguments, daemon=True)
    thread.start()
    yield thread
    thread.join(SECONDS)
    assert not thread.is_alive()


def open_replay(address, sequence, config, num_envs=1, **options):
    options = {"max_wait": SECONDS, **options}
    layout = Layout(SPEC, sequence, config)
    return contextlib.closing(ReverbReplay(address, layout, num_envs=num_envs, **options))


def draw(replay):
    batch = replay.sample(SECONDS)
    assert batch is not None
    return batch


def shapes_of(sample):
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), sample)


def expected_sequences(sequence, stream):
    """Every sequence that the local store makes of the rows of two environments, by its first."""
    store = LocalReplay(SPEC, sequence, BIG, num_envs=2, seed=0)
    for rows in stream:
        store.add(rows)
    slots = np.flatnonzero(store.state()["selector"]["present"])
    rows, mask = store.read(slots)
    return {
        tuple(rows.observation[i, 0, -2:].tolist()): jax.tree.map(lambda x, i=i: x[i], (rows, mask))
        for i in range(len(slots))
    }
