"""Speed of workers around a parameter server, compared with one process.

    python benchmarks/parameter_server.py [--agent reactor] [--environment catch] [--preset NAME]
        [--workers 1 2 4] [--steps 20000] [--engine NAME] [--out DIR]

Each worker has one environment, and one process as many as the most workers. Rates are over the
time in which gradients are applied, without compilation. Bytes are those of packed gradients, and
of the states that workers fetch after each. The server's own time is that of
`GradientServer.apply`, in this process. A run that has ended is kept in --out, and is not repeated;
without --out, in a temporary folder.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import time

import jax
import numpy as np
from distributed import learning_rows, mean, rate  # beside this file

from retrax.training.assembly import spec_of
from retrax.training.run_config import RunConfig, WorkerOptions
from retrax.training.workers import WorkerFactory

MAIN = "import sys; from retrax.command.main import main; sys.exit(main())"


def run(directory, options, workers):
    """Trains with so many workers, 0 for one process, unless it was done before."""
    done = directory / "done"
    if done.exists():
        return
    if directory.exists():  # it was interrupted
        raise SystemExit(f"{directory} holds an unfinished run: remove it.")
    command = ["train", options.agent, "--num-envs", str(max(options.workers))]
    if workers:
        command = ["train", options.agent, "--num-workers", str(workers)]
        if options.engine != "train":
            command = ["launch", *command[1:], "--engine", options.engine]
    command += ["--environment", options.environment, "--steps", str(options.steps), "--plain"]
    command += [] if options.preset is None else ["--preset", options.preset]
    command += ["--run-directory", str(directory), "--log-every", str(max(1, options.steps // 50))]
    subprocess.run([sys.executable, "-c", MAIN, *command], check=True, capture_output=True)
    done.touch()


def factory_of(options):
    """The packings of the agent."""
    config = RunConfig(
        agent=options.agent,
        environment=options.environment,
        preset=options.preset,
        steps=1,
        num_envs=1,
        workers=WorkerOptions(num_workers=1),
    )
    spec = spec_of(config)
    config = config.resolve(spec)
    return WorkerFactory(config, config.entry.make_agent(spec, config.agent_config), spec)


def server_times(factory, count):
    """Seconds of a gradient and of a fetch, and bytes of each."""
    server = factory.server()
    server.compile()
    zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), factory.gradients.like)
    blob = factory.gradients.pack(zeros)
    _, state = server.fetch(-1)
    jax.block_until_ready(server.state)
    fetching = 0.0
    for number in range(count):
        server.apply(0, (0, number), number, blob)
        started = time.perf_counter()
        server.fetch(number)
        fetching += time.perf_counter() - started
    return server.busy_seconds / count, fetching / count, len(blob), len(state)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--agent", default="reactor")
    parser.add_argument("--environment", default="catch")
    parser.add_argument("--preset")
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--steps", type=int, default=20_000)
    engines = ["launchpad", "ray", "threads", "train"]
    parser.add_argument("--engine", choices=engines, default="launchpad")
    parser.add_argument("--gradients", type=int, default=200, help="timed in the server alone")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    applying, fetching, sent, fetched = server_times(factory_of(options), options.gradients)
    sizes = f"a gradient has {sent} bytes, a state {fetched}"
    print(f"{options.agent} on {options.environment}: {sizes}")
    times = f"{1e3 * applying:.2f} ms for a gradient, {1e3 * fetching:.2f} ms for a fetch"
    print(f"the server alone: {times}")
    print("| workers | gradients/s | / one process | MB/s | staleness | waiting | server idle |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        out, alone = options.out or pathlib.Path(folder), None
        for workers in [0, *options.workers]:
            directory = out / f"workers_{workers}"
            run(directory, options, workers)
            speed = rate(*learning_rows(directory), "updates")
            alone = alone or speed
            figures = [f"{speed:.1f}", f"{speed / alone:.2f}", "-", "-", "-", "-"]
            if workers:
                names = ("gradient_staleness", "worker_waiting_share", "server_idle_share")
                shown = [f"{mean(directory, name):.2f}" for name in names]
                figures = [*figures[:2], f"{speed * (sent + fetched) / 1e6:.2f}", *shown]
            print(f"| {workers or 'one process'} | {' | '.join(figures)} |", flush=True)


if __name__ == "__main__":
    main()
