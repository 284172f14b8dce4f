"""Updates of an agent on one and on all local devices: prints what `test_devices.py` compares.

A process of its own: the number of virtual devices is chosen before JAX starts.
"""

import dataclasses
import json
import tempfile
from pathlib import Path

import jax
import noisy_agent
import numpy as np
from linear_agents import random_sample
from node_fakes import BatchReplay
from run_files import rows

import retrax
from retrax.basics.prng_keys import without_keys
from retrax.command.training import train_together
from retrax.device import make_train
from retrax.environments.pure_tasks import PureCatch
from retrax.training.assembly import spec_of
from retrax.training.learner import Learner, Updates
from retrax.training.run_config import RunConfig, read_config

BATCH, UPDATES, PER_CALL = 8, 2, 2
RUN = RunConfig(agent="noisy_agent:NOISY", environment="catch", evaluate_every=0)


def learn(agent, batches, num_devices):
    """State, priorities and metrics after the batches, and the devices of the learner's state."""
    replay = BatchReplay(batches, updates=PER_CALL)
    updates = Updates(agent, num_devices)
    learner = Learner(
        agent, replay, key=jax.random.key(1), updates_per_call=PER_CALL, updates=updates
    )
    learner.compile()
    while learner.step():
        pass
    snapshot = learner.snapshot()
    leaves = [np.asarray(x) for x in jax.tree.leaves(without_keys(snapshot.learner))]
    assert all(len(x.devices()) == 1 for x in jax.tree.leaves(snapshot.learner))
    assert all(len(x.devices()) == 1 for x in jax.tree.leaves(learner.params))
    held = {len(x.devices()) for x in jax.tree.leaves(learner.state)}
    learner.restore(snapshot._replace(counters={"updates": learner.updates}))
    assert held == {len(x.devices()) for x in jax.tree.leaves(learner.state)}
    compiled = learner._updates._jitted.lower(learner.state, batches[0], PER_CALL).compile()
    learner.close()
    metrics = learner.metrics.flush()
    return {
        "state": leaves,
        "priorities": np.concatenate([x for _, x in replay.priorities]),
        "metrics": np.array([metrics[name] for name in sorted(metrics)]),
        "held": sorted(held),
        "operations": compiled.cost_analysis()["flops"],  # of one device
    }


def difference(one, many):
    return np.abs(np.asarray(one, np.float64) - np.asarray(many, np.float64)).max(initial=0.0)


def compare():
    run = RunConfig(agent="d4pg", environment="Pendulum-v1", num_envs=BATCH, preset="small")
    spec = spec_of(run)
    agent = run.entry.make_agent(spec, run.resolve(spec).agent_config)
    batches = [random_sample(agent, spec, seed, PER_CALL * BATCH) for seed in range(UPDATES)]
    one, many = (learn(agent, batches, number) for number in (1, jax.local_device_count()))
    before = jax.tree.leaves(without_keys(jax.jit(agent.init)(jax.random.key(1))))
    changes = [
        difference(*x) for x in zip(before, one["state"], strict=True) if x[0].dtype == np.float32
    ]
    return {
        "learned": max(changes),
        "state": max(map(difference, one["state"], many["state"])),
        "priorities": difference(one["priorities"], many["priorities"]),
        "metrics": difference(one["metrics"], many["metrics"]),
        "held": many["held"],
        "operations": many["operations"] / one["operations"],
    }


def train_and_resume(directory):
    """A run on all devices, continued on one: the learners' devices, and its updates in the end."""
    counts, init = [], Updates.__init__
    Updates.__init__ = lambda self, agent, n: counts.append(n) or init(self, agent, n)
    replay = dataclasses.replace(noisy_agent.Config().replay, batch_size=BATCH)
    config = noisy_agent.Config(replay=replay)
    run = dataclasses.replace(
        RUN, steps=240, learner_devices=jax.local_device_count(), agent_config=config
    )
    first = retrax.train(run, directory, plain=True)
    run = dataclasses.replace(read_config(directory), steps=280, learner_devices=1)
    second = retrax.train(run, directory, resume=True)
    return counts, first.updates, second.updates


def train_seeds(directory):
    """Two seeds, each on a device of its own, against one of them by itself; in Python, too."""
    run = dataclasses.replace(RUN, steps=80, on_device=True)
    runs = {directory / str(seed): dataclasses.replace(run, seed=seed) for seed in (0, 1)}
    (first, second), _ = train_together(runs, plain=True)
    alone = retrax.train(dataclasses.replace(run, seed=1), directory / "alone", plain=True)
    environment = PureCatch()
    agent = noisy_agent.make_agent(environment.spec, noisy_agent.Config())
    train = make_train(agent, environment, noisy_agent.Config().replay, num_envs=2, steps=80)
    mesh = jax.sharding.Mesh(np.array(jax.local_devices()[:2]), ("seeds",))
    axis, keys = jax.sharding.PartitionSpec("seeds"), jax.random.split(jax.random.key(0))
    batched = jax.vmap(train)
    split = jax.shard_map(batched, mesh=mesh, in_specs=axis, out_specs=axis, check_vma=False)
    scores = jax.jit(split)(jax.numpy.concatenate([keys, keys]))[0]["scores"]
    halves = np.split(np.asarray(scores), 2)  # each of one device, which have the same keys
    return {
        "equal": rows(second.directory) == rows(alone.directory) != rows(first.directory),
        "devices": len(scores.devices()),
        "difference": difference(*halves),
        "learned": difference(*halves[0]),
    }


if __name__ == "__main__":
    found = {"learner": compare()}
    with tempfile.TemporaryDirectory() as folder:
        found["run"] = train_and_resume(Path(folder) / "run")
        found["seeds"] = train_seeds(Path(folder) / "seeds")
    print(json.dumps(found))
