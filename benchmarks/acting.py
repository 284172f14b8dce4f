"""Speed of acting, compared with the environments alone.

    python benchmarks/acting.py [AGENT] [--environment ID] [--num-envs 8] [--steps 16000]
                                [--repeats 3]

Time steps per second over all environments: of the library's own vector of them (ale-py's or
Gymnasium's), of the same environments behind our interface, and of an actor, which decides with an
untrained network and writes its rows into a replay. Medians, the sides in turn. The last column is
the cores that were busy, processor time per second of all threads: where an actor leaves none idle,
stepping half of its environments while it decides for the others gains nothing.
"""

import argparse
import statistics
import time

import ale_py
import gymnasium
import numpy as np
from ale_py.vector_env import AtariVectorEnv

from retrax.replay.local import LocalReplay
from retrax.training.assembly import make_environments, spec_of
from retrax.training.learner import Learner
from retrax.training.loop import Actor
from retrax.training.run_config import RunConfig

LIMIT = 0.5  # of the speed of the environments alone
gymnasium.register_envs(ale_py)


def library_steps(config, actions):
    """Steps the library's environments."""
    if config.environment.startswith("ALE/"):
        game = gymnasium.spec(config.environment).kwargs["game"]
        environments = AtariVectorEnv(game, config.num_envs, stack_num=1, use_fire_reset=False)
    else:
        environments = gymnasium.make_vec(
            config.environment, config.num_envs, vectorization_mode="sync"
        )
    environments.reset(seed=config.seed)
    return lambda: environments.step(actions())


def interface_steps(config, actions):
    """Steps our adapter of them."""
    (environments,) = make_environments(config, None)
    environments.reset()
    return lambda: environments.step(actions())


def actor_steps(config, spec):
    """Steps an actor."""
    agent = config.entry.make_agent(spec, config.agent_config)
    (environments,) = make_environments(config, None)
    replay = LocalReplay(
        spec, agent.sequence, config.replay, num_envs=config.num_envs, seed=config.seed
    )
    learner = Learner(agent, replay, key=config.prng_keys()[0])
    writer = replay.writer(range(config.num_envs))
    actor = Actor.of_run(config, agent, environments, 0, writer, learner)
    actor.compile()
    return actor.step


def measure(step, count, num_envs):
    """Steps per second, and busy cores."""
    started, before = time.perf_counter(), time.process_time()
    for _ in range(count):
        step()
    seconds = time.perf_counter() - started
    return count * num_envs / seconds, (time.process_time() - before) / seconds


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("agent", nargs="?", default="reactor")
    parser.add_argument("--environment", default="ALE/Pong-v5")
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=16_000, help="of each side, each time")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(arguments)
    run = RunConfig(agent=options.agent, environment=options.environment, num_envs=options.num_envs)
    spec = spec_of(run)
    config = run.resolve(spec)
    rng = np.random.default_rng(0)

    def actions():
        return rng.integers(spec.actions.num_values, size=config.num_envs)

    sides = {
        "the library alone": library_steps(config, actions),
        "behind our interface": interface_steps(config, actions),
        "an actor": actor_steps(config, spec),
    }
    count, found = max(1, options.steps // config.num_envs), {name: [] for name in sides}
    for _ in range(options.repeats):
        for name, step in sides.items():
            measure(step, max(1, count // 10), config.num_envs)
            found[name].append(measure(step, count, config.num_envs))
    medians = {
        name: tuple(map(statistics.median, zip(*measured, strict=True)))
        for name, measured in found.items()
    }
    print(f"{options.agent}, {options.environment}, {config.num_envs} environments, steps/s:")
    for name, (rate, cores) in medians.items():
        ratio = rate / medians["the library alone"][0]
        limit = f"   (limit: at least {LIMIT})" if name == "an actor" else ""
        print(f"{name:<24}{rate:>10.0f}{ratio:>8.2f}{cores:>8.2f} cores{limit}")


if __name__ == "__main__":
    main()
