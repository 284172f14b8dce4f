"""Sequences read and rows written per second through Reverb, and those of a table of ten columns.

    python benchmarks/reverb_replay.py [--batch 64] [--environments 4] [--seconds 2] [--repeats 3]

Sequences of 6 rows, 158 bytes a row, one starting at every row; the server is a process of its own,
and a writer has as many environments as an actor of a program.
Ours is what programs use: rows packed into bytes, read in batches. The other table has a column for
each leaf of a row, and is read item by item. Both writers make one item of each row.
"""

import argparse
import contextlib
import itertools
import multiprocessing
import statistics
import time

import jax
import numpy as np
from dm_env import specs

from retrax.datatypes import EnvironmentSpec, ReplayConfig, Row, SequenceSpec
from retrax.replay.reverb import Layout, ReverbReplay, ReverbWriter, make_tables
from retrax.replay.reverb.library import reverb, tensorflow

LENGTH = 6
FLOAT = jax.ShapeDtypeStruct((), np.float32)
SPEC = EnvironmentSpec(
    specs.Array((22,), np.float32), specs.BoundedArray((6,), np.float32, -1.0, 1.0)
)
SEQUENCE = SequenceSpec(
    length=LENGTH,
    extras={
        "mu": jax.ShapeDtypeStruct((6,), np.float32),
        "value": FLOAT,
        "advantage": FLOAT,
        "log_prob": FLOAT,
    },
)
READ_LIMIT, WRITTEN_LIMIT = 40_000, 12_000
NEVER_WAIT = 1e9  # a ratio of steps to updates, or its inverse, at which nobody waits


def make_rows(count, num_envs, episode=1000):
    """Rows `[num_envs, ...]` with random numbers, of episodes that begin and end together."""
    rng = np.random.default_rng(0)

    def floats(*shape):
        return rng.normal(size=(num_envs, *shape)).astype(np.float32)

    return [
        Row(
            observation=floats(22),
            reward=floats(),
            discount=np.ones(num_envs, np.float32),
            is_first=np.full(num_envs, number % episode == 0),
            is_last=np.full(num_envs, number % episode == episode - 1),
            action=floats(6),
            extras={
                "mu": floats(6),
                "value": floats(),
                "advantage": floats(),
                "log_prob": floats(),
            },
        )
        for number in range(count)
    ]


def config_of(options, steps_per_update):
    return ReplayConfig(
        selector="proportional",
        capacity=options.rows,
        min_rows=options.rows // 2,
        batch_size=options.batch,
        acting_steps_per_update=steps_per_update,
    )


def our_tables(options, steps_per_update):
    config = config_of(options, steps_per_update)
    return make_tables(Layout(SPEC, SEQUENCE, config), num_envs=options.environments)


def column_tables(options):
    row = make_rows(1, 1)[0]
    signature = [
        tensorflow.TensorSpec((LENGTH, *x.shape[1:]), x.dtype) for x in jax.tree.leaves(row)
    ]
    return [
        reverb.Table(
            "columns",
            reverb.selectors.Prioritized(1.0),
            reverb.selectors.Fifo(),
            options.rows,
            reverb.rate_limiters.MinSize(1),
            signature=signature,
        )
    ]


def run_server(make, arguments, ports):
    server = reverb.Server(make(*arguments))
    ports.put(server.port)
    server.wait()


@contextlib.contextmanager
def serving(make, *arguments):
    """The address of a server in a process of its own."""
    context = multiprocessing.get_context("spawn")
    ports = context.Queue()
    process = context.Process(target=run_server, args=(make, arguments, ports))
    process.start()
    try:
        yield f"127.0.0.1:{ports.get(timeout=120)}"
    finally:
        process.kill()
        process.join()


def rates(options, do):
    """Each repetition's rate of `do()`, which returns how many it has done."""
    found = []
    for _ in range(options.repeats):
        count, started = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - started) < options.seconds:
            count += do()
        found.append(count / elapsed)
    return found


def our_writer(address, options, config):
    environments = range(options.environments)
    return ReverbWriter(address, Layout(SPEC, SEQUENCE, config), environments=environments)


def our_writing(options, rows):
    config = config_of(options, NEVER_WAIT)
    with serving(our_tables, options, NEVER_WAIT) as address:
        writer = our_writer(address, options, config)

        def write():
            for row in rows:
                writer.write(row)
            return len(rows) * options.environments

        found = rates(options, write)
        writer.close()
    return found


def our_reading(options, rows):
    config = config_of(options, 1 / NEVER_WAIT)
    with serving(our_tables, options, 1 / NEVER_WAIT) as address:
        writer = our_writer(address, options, config)
        for row in itertools.islice(itertools.cycle(rows), config.min_rows // options.environments):
            writer.write(row)
        writer.close()
        number = options.environments
        replay = ReverbReplay(address, Layout(SPEC, SEQUENCE, config), num_envs=number)

        def read():
            return len(replay.sample(60.0)[0])

        read()
        found = rates(options, read)
        replay.close()
    return found


def column_rates(options, rows):
    """Steps and sequences per second of the table of ten columns."""
    with serving(column_tables, options) as address:
        client = reverb.Client(address)
        writers = [client.trajectory_writer(LENGTH) for _ in range(options.environments)]

        def write():
            for row in rows:
                leaves = jax.tree.leaves(row)
                for number, writer in enumerate(writers):
                    writer.append([x[number] for x in leaves])
                    if writer.episode_steps >= LENGTH:
                        item = [column[-LENGTH:] for column in writer.history]
                        writer.create_item("columns", 1.0, item)
                        writer.flush(LENGTH, 500)
            return len(rows) * options.environments

        written = rates(options, write)
        while reverb.Client(address).server_info()["columns"].current_size < options.rows // 2:
            write()
        dataset = reverb.TrajectoryDataset.from_table_signature(
            address,
            "columns",
            max_in_flight_samples_per_worker=options.batch,
            num_workers_per_iterator=1,
        )
        items = iter(dataset)

        def read():
            batch = [next(items) for _ in range(options.batch)]
            columns = [[np.asarray(column) for column in item.data] for item in batch]
            jax.tree.map(lambda *x: np.stack(x), *columns)
            return len(batch)

        read()
        return written, rates(options, read)


def report(name, ours, columns, limit):
    middle, other = statistics.median(ours), statistics.median(columns)
    each = ", ".join(f"{rate:.0f}" for rate in ours)
    print(
        f"{name:<18}{middle:>7.0f} (at least {limit}: {'ok' if middle >= limit else 'MISSED'})   "
        f"ten columns {other:>6.0f}   x {middle / other:.1f}  ({each})"
    )


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=64, help="sequences in a batch")
    parser.add_argument("--environments", type=int, default=4, help="of the writer")
    parser.add_argument("--rows", type=int, default=20_000, help="capacity of each table")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each measurement")
    parser.add_argument("--repeats", type=int, default=3, help="the medians are printed")
    options = parser.parse_args(arguments)
    rows = make_rows(1000, options.environments)
    written, read = column_rates(options, rows)
    report("sequences/s read", our_reading(options, rows), read, READ_LIMIT)
    report("steps/s written", our_writing(options, rows), written, WRITTEN_LIMIT)


if __name__ == "__main__":
    main()
