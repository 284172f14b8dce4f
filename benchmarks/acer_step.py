"""Time of an ACER step: the update, the loop at a replay ratio, its share outside jitted calls.

    python benchmarks/acer_step.py [--environment CartPole-v1] [--updates 200] [--ratio 4]

16 environments, 20-step segments, and a network for CartPole: two layers of 64.
"""

import argparse
import dataclasses

import jax
from reactor_step import report, seconds, timed_loop  # beside this file

from retrax.agents import update
from retrax.training import RunConfig
from retrax.training.assembly import make_environments, make_loop


def with_sizes(run, ratio):
    """The run with the sizes of this benchmark, a sequence of each environment in a batch."""
    config = run.agent_config
    replay = dataclasses.replace(config.replay, replay_ratio=ratio, batch_size=run.num_envs)
    config = dataclasses.replace(config, sequence_length=21, hidden_size=64, replay=replay)
    return dataclasses.replace(run, agent_config=config)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--environment", default="CartPole-v1")
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--ratio", type=float, default=4.0)
    options = parser.parse_args(arguments)
    run = RunConfig(agent="acer", environment=options.environment, num_envs=options.num_envs)
    environments = make_environments(run, resumed_at=None)
    spec = environments[0].spec
    run = with_sizes(run.resolve(spec), options.ratio)
    agent = run.entry.make_agent(spec, run.agent_config)
    loop = make_loop(run, agent, environments)
    print(f"jax {jax.__version__} on {jax.devices()[0]}, {options.environment}")
    local = loop.replays[0]
    while local.num_rows < run.replay.min_rows or loop.counters.updates < 2:
        loop.advance()
    sample = jax.device_put(local.packing.sample(local.draw_now()))
    jitted = jax.jit(update(agent))
    state = loop.learner.state
    whole = seconds(lambda: jitted(state, sample), options.updates)
    report("update on resident data", f"{1e3 * whole:.2f} ms")
    steps, updates, outside = timed_loop(loop, options.updates)
    report("training loop", f"{steps:.0f} steps/s", f"({updates:.1f} updates/s)")
    report("share of the loop outside jitted calls", f"{100 * outside:.1f} %")
    loop.close()


if __name__ == "__main__":
    main()
