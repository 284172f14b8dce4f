"""What the files of a run hold, and signals in the middle of one."""

import json
import os

import jax
import numpy as np
from fresh_python import run_python

from retrax.environments import make
from retrax.environments.plain_data import unpack
from retrax.evaluation.suites import read_rows
from retrax.replay.local import LocalReplay
from retrax.training.assembly import make_environments, make_loop
from retrax.training.learner import Learner, Snapshot
from retrax.training.loop import Actor, Loop
from retrax.training.recorder import WALL_CLOCK_COLUMNS
from retrax.training.run_config import write_config
from retrax.training.snapshots import Snapshots, read_state

# TensorBoard's own reader would load TensorFlow where it is installed, so it runs elsewhere.
READER = """
import json, sys, warnings
warnings.simplefilter("ignore")
sys.modules["tensorflow"] = None
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata
events = EventAccumulator(sys.argv[1]).Reload()
tags = events.Tags()["scalars"]
scalars = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in tags}
try:
    (content,) = events.PluginTagToContent("hparams").values()
    values = metadata.parse_session_start_info_plugin_data(content).hparams
except KeyError:  # there was no config.json
    values = {}
kinds = {name: value.WhichOneof("kind") for name, value in values.items()}
print(json.dumps([scalars, {name: getattr(values[name], kind) for name, kind in kinds.items()}]))
"""


def read_tensorboard(directory):
    """Its scalars as (step, value), and the hyper-parameters."""
    curves, config = json.loads(run_python("-c", READER, directory).splitlines()[-1])
    return {tag: [tuple(point) for point in points] for tag, points in curves.items()}, config


def write_untrained_run(directory, config):
    """A run whose learner is drawn by NumPy: no update is compiled, nor the agent's `init`."""
    directory.mkdir()
    write_config(directory, config)
    agent = config.entry.make_agent(make(config.environment).spec, config.agent_config)
    generator = np.random.default_rng(config.seed)

    def draw(leaf):
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.key(0)
        return generator.normal(size=leaf.shape).astype(leaf.dtype)

    learner = jax.tree.map(draw, jax.eval_shape(agent.init, jax.random.key(0)))
    snapshot = Snapshot(learner, {"nothing": np.zeros(1)}, {"steps": config.steps})
    Snapshots(directory).save(config.steps, snapshot)
    return directory


def loop_of(config, wrap=lambda environment, index: environment, agent=None):
    """The loop of a run without files; `wrap` may change each actor's environments."""
    environments = make_environments(config)
    config = config.resolve(environments[0].spec)
    agent = agent or config.entry.make_agent(environments[0].spec, config.agent_config)
    environments = [wrap(made, index) for index, made in enumerate(environments)]
    return make_loop(config, agent, environments)


def loop_in(environment, agent, config, key, **options):
    """The loop of one actor in environments, with a replay's config; its replay."""
    count, per_call = environment.num_envs, config.updates_per_call
    local = LocalReplay(environment.spec, agent.sequence, config, num_envs=count, seed=0)
    learner_key, actors_key = jax.random.split(key)
    learner = Learner(agent, local, key=learner_key, updates_per_call=per_call)
    keys, writer = jax.random.split(actors_key, count), local.writer(range(count))
    actor = Actor(agent, environment, writer, learner, keys=keys, **options)
    return Loop([actor], learner, [local]), local


def flip(path, bit):
    """Flips one bit of a file; flipping it again restores the file."""
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def rows(directory):
    """metrics.csv without the columns of wall-clock time."""
    return [
        {name: cell for name, cell in row.items() if name not in WALL_CLOCK_COLUMNS}
        for row in read_rows(directory / "metrics.csv")
    ]


def snapshots(directory):
    """The steps of all snapshots."""
    return Snapshots(directory).steps()


def newest(directory):
    """Steps of the newest snapshot, and everything in it but its counters: bytes of arrays."""
    steps = snapshots(directory)[-1]
    parts = read_state(directory / "snapshots" / f"{steps}.npz")
    del parts["counters"]  # they have seconds
    if "running" in parts:  # equal data may be different pickles
        parts["running"] = unpack(parts["running"])
    found = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(parts)[0]:
        if isinstance(leaf, np.random.Generator):
            leaf = leaf.bit_generator.state
        is_array = isinstance(leaf, np.ndarray | np.generic)
        found[jax.tree_util.keystr(path)] = leaf.tobytes() if is_array else repr(leaf)
    return steps, found


def check_equal(one, other):
    """Both runs wrote the same metrics, and the same newest snapshot bit for bit."""
    assert rows(one) == rows(other)
    steps, arrays = newest(one)
    other_steps, other_arrays = newest(other)
    assert (steps, arrays.keys()) == (other_steps, other_arrays.keys())
    assert [name for name in arrays if arrays[name] != other_arrays[name]] == []


def stop_with(monkeypatch, *numbers, at=100):
    """Sends signals to this process once the loop has come to `at` steps."""
    advance = Loop.advance

    def signalled(self):
        advance(self)
        if self.counters.steps == at:
            for number in numbers:
                os.kill(os.getpid(), number)

    monkeypatch.setattr(Loop, "advance", signalled)
