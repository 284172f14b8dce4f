"""What a step of ACER costs: the loop at a replay ratio, and what it spends outside jitted calls.

    python benchmarks/acer_step.py [--environment CartPole-v1] [--updates 200] [--ratio 4]

16 environments, 20-step segments, and a network for CartPole: two layers of 64.
"""

import argparse
import dataclasses

import jax
from reactor_step import say, seconds, timed_loop  # beside this file

from retrax.agents.acer import PRESETS, default_preset, make_agent
from retrax.environments import make
from retrax.experiments.loop import Loop
from retrax.replay import SequenceStore


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--environment", default="CartPole-v1")
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--ratio", type=float, default=4.0)
    given = parser.parse_args(arguments)
    environment = make(given.environment, seed=0, num_envs=given.num_envs)
    config = PRESETS[default_preset(given.environment, environment.spec)]()
    replay = dataclasses.replace(config.replay, replay_ratio=given.ratio, batch_size=given.num_envs)
    config = dataclasses.replace(config, sequence_length=21, hidden_size=64, replay=replay)
    agent = make_agent(environment.spec, config)
    store = SequenceStore(environment.spec, agent.sequence, replay, num_envs=given.num_envs, seed=0)
    loop = Loop(agent, environment, store, replay, seed=0)
    print(f"jax {jax.__version__} on {jax.devices()[0]}, {given.environment}")
    while store.num_rows < replay.min_rows or loop.counters.updates < 2:
        loop.advance()
    sample = jax.device_put(store.sample()[1])
    update = jax.jit(agent.update)
    learner = loop.learner
    whole = seconds(lambda: update(learner, sample), given.updates)
    say("update on resident data", f"{1e3 * whole:.2f} ms")
    steps, updates, outside = timed_loop(loop, given.updates)
    say("training loop", f"{steps:.0f} steps/s", f"({updates:.1f} updates/s)")
    say("share of the loop outside jitted calls", f"{100 * outside:.1f} %")
    environment.close()


if __name__ == "__main__":
    main()
