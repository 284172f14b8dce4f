"""Whole training on a device, compared with the loop of one process: equal config, equal pace.

    python benchmarks/on_device.py [AGENT] [--environment ID] [--num-envs 8] [--steps 40000]
                                   [--repeats 3] [--seeds 8] [--selector SELECTOR]

Time steps and updates per second of both loops, after compilation and once learning has begun, in
turn; medians, and time steps per second of processor time, which other work on the machine disturbs
less. With `--seeds N`, N runs in one call (`jax.vmap`) beside the same number of time steps of one
run: how much a batch of seeds gains. `MinAtar/NAME-v1` of the host is compared with
`pgx:minatar-name`.
"""

import argparse
import dataclasses
import statistics
import time

import jax

from retrax.device import make_train
from retrax.device.loop import make_loops
from retrax.environments.factory import make_pure_vector
from retrax.training.assembly import make_environments, make_loop
from retrax.training.run_config import RunConfig

WARM_UPDATES = 20


def resolved(given, *, on_device):
    """The run, with the agent's default preset and the selector that was asked for."""
    environment = given.environment
    if on_device and environment.startswith("MinAtar/"):
        name = environment.removeprefix("MinAtar/").partition("-")[0]
        environment = f"pgx:minatar-{name.lower()}"
    run = RunConfig(
        agent=given.agent, environment=environment, num_envs=given.num_envs, on_device=on_device
    )
    (vector,) = environments = make_environments(run, None)
    run = run.resolve(vector.spec)
    if given.selector:
        replay = dataclasses.replace(run.replay, selector=given.selector)
        config = dataclasses.replace(run.agent_config, replay=replay)
        run = dataclasses.replace(run, agent_config=config)
    return run, run.entry.make_agent(vector.spec, run.agent_config), environments


def make(given, *, on_device):
    """A loop that has begun to learn."""
    run, agent, environments = resolved(given, on_device=on_device)
    loop = make_loops([run], agent, environments)[0] if on_device else None
    loop = loop or make_loop(run, agent, environments)
    while loop.counters.updates < WARM_UPDATES:
        loop.until = loop.counters.steps + run.num_envs
        loop.advance()
    return loop


def measure(loop, steps):
    """Time steps and updates per second, and time steps per second of processor time."""
    before, updates = loop.counters.steps, loop.counters.updates
    started, busy = time.perf_counter(), time.process_time()
    while loop.counters.steps < before + steps:
        loop.until = before + steps
        loop.advance()
    seconds, busy = time.perf_counter() - started, time.process_time() - busy
    taken = loop.counters.steps - before
    return taken / seconds, (loop.counters.updates - updates) / seconds, taken / busy


def measure_seeds(given, count):
    """Time steps per second of `count` runs in one call, all together."""
    run, agent, _ = resolved(given, on_device=True)
    pure = make_pure_vector(run.environment).pure
    steps = max(1, given.steps // count)
    train = make_train(agent, pure, run.replay, num_envs=run.num_envs, steps=steps)
    keys = jax.random.split(jax.random.key(0), count)
    compiled = jax.jit(jax.vmap(train)).lower(keys).compile()
    started = time.perf_counter()
    jax.block_until_ready(compiled(keys))
    return count * steps / (time.perf_counter() - started)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("agent", nargs="?", default="acer")
    parser.add_argument("--environment", default="CartPole-v1")
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=40_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("--selector", choices=["uniform", "proportional"])
    given = parser.parse_args()
    device = jax.devices()[0]
    print(f"{given.agent} on {given.environment}, {given.num_envs} environments, {device}")
    loops = {name: make(given, on_device=name == "on the device") for name in NAMES}
    found = {name: [] for name in NAMES}
    for _ in range(given.repeats):
        for name, loop in loops.items():
            found[name].append(measure(loop, given.steps))
    medians = {}
    for name, rows in found.items():
        medians[name] = speed = [statistics.median(column) for column in zip(*rows, strict=True)]
        print(
            f"{name:15} {speed[0]:9,.0f} steps/s {speed[1]:8,.1f} updates/s "
            f"{speed[2]:9,.0f} steps per second of processor time"
        )
    ratios = [medians[NAMES[1]][i] / medians[NAMES[0]][i] for i in (0, 2)]
    print(f"on the device / one process: {ratios[0]:.1f}; of processor time {ratios[1]:.1f}")
    for count in [1, given.seeds] if given.seeds else []:
        print(f"{count} seeds in one call: {measure_seeds(given, count):,.0f} steps/s in all")


NAMES = ("one process", "on the device")

if __name__ == "__main__":
    main()
