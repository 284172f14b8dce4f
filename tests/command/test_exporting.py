"""Exported agents: they act as the run's agent does, bit for bit, in a process without retrax."""

import json
from unittest.mock import Mock

import chex
import jax
import numpy as np
import pytest
from dm_env import TimeStep
from fresh_python import run_python
from run_files import write_untrained_run

import retrax
from retrax.agents import d4pg, reactor
from retrax.basics.prng_keys import without_keys
from retrax.command import exporting
from retrax.command.exported_agent import ExportedAgent
from retrax.command.trained import load_agent
from retrax.training.run_config import RunConfig

FILES = {"act.py", "agent.json", "config.json", "parameters.npz"}
FILES |= {"begin.stablehlo", "exploit.stablehlo"}
SEED, STEPS = 0, 9

# Acts on the time steps of a file, where nothing can be imported but JAX, NumPy and what they need.
ACT = """
import sys
for name in ("retrax", "haiku", "optax", "chex", "dm_env", "flatbuffers"):
    sys.modules[name] = None
import numpy as np
for directory in sys.argv[1:]:
    sys.path.insert(0, directory)
    sys.modules.pop("act", None)
    import act
    assert act.__file__.startswith(directory)
    agent, found = act.ExportedAgent(), {}
    state = agent.begin(0)
    steps = np.load(f"{directory}/../time_steps.npz")
    for number, step in enumerate(zip(*(steps[f"arr_{field}"] for field in range(4)))):
        decision = agent.act(state, *step)
        state = decision.state
        arrays = [decision.action, *decision.extras.values(), *state]
        found |= {f"{number}.{index}": np.asarray(x) for index, x in enumerate(arrays)}
    np.savez(f"{directory}/../acted.npz", **found)
    sys.path.remove(directory)
"""

# The smallest agent of ours that still has all its parts, and a recurrent state.
SIZES = {"memory_size": 4, "shared_size": 4, "head_size": 4, "vector_sizes": (4,)}
REACTOR = reactor.Config.small(num_atoms=5, **SIZES)
D4PG = d4pg.Config.small(policy_sizes=(4, 4), critic_sizes=(4, 4), num_atoms=5)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of a recurrent agent with discrete actions, and one with continuous actions."""
    folder = tmp_path_factory.mktemp("runs")
    agents = {
        "discrete": {"agent": "reactor", "environment": "catch", "agent_config": REACTOR},
        "continuous": {"agent": "d4pg", "environment": "Pendulum-v1", "agent_config": D4PG},
    }
    return {
        kind: write_untrained_run(folder / kind, RunConfig(preset="small", steps=10, **fields))
        for kind, fields in agents.items()
    }


@pytest.fixture(scope="module")
def exported(runs, tmp_path_factory):
    """The exports of both, acted with by one process without retrax."""
    folders = {}
    for name, run in runs.items():
        folders[name] = tmp_path_factory.mktemp(name) / "agent"
        retrax.export(run, folders[name])
        steps = time_steps(load_agent(run).spec)
        np.savez(folders[name].parent / "time_steps.npz", *steps)
    run_python("-c", ACT, *folders.values())
    return folders


def time_steps(spec):
    """Two episodes, `[STEPS, ...]` of each field."""
    rng = np.random.default_rng(0)
    step_type = np.array([0, 1, 1, 1, 2, 0, 1, 1, 1], np.int32)
    reward = rng.normal(size=STEPS).astype(np.float32)
    discount = np.where(step_type == 2, 0.0, 1.0).astype(np.float32)
    observation = rng.normal(size=(STEPS, *spec.observations.shape)).astype(np.float32)
    return TimeStep(step_type, reward, discount, observation)


def of_run(run):
    """Every array that the run's own agent gives."""
    trained = load_agent(run)
    exploit = jax.jit(trained.agent.exploit)
    state = trained.agent.begin(jax.random.key(SEED), 0, 1)
    steps = time_steps(trained.spec)
    found = {}
    for number in range(STEPS):
        timestep = jax.tree.map(lambda x: x[number], steps)  # noqa: B023
        decision = exploit(trained.params, state, timestep)
        state = decision.state
        arrays = jax.tree.leaves((decision.action, decision.extras, state))
        for index, array in enumerate(arrays):
            is_key = jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key)
            data = jax.random.key_data(array) if is_key else array
            found[f"{number}.{index}"] = np.asarray(data)
    return found


@pytest.mark.parametrize("name", ["discrete", "continuous"])
def test_it_acts_without_retrax_as_the_run_does(name, runs, exported):
    wanted = of_run(runs[name])
    with np.load(exported[name].parent / "acted.npz") as acted:
        assert set(acted) == set(wanted)
        for key, array in wanted.items():
            assert acted[key].dtype == array.dtype, key
            np.testing.assert_array_equal(acted[key], array, err_msg=key)
    first, later = (np.concatenate([wanted[f"{n}.{i}"].ravel() for i in (0, 1)]) for n in (0, 3))
    assert not np.array_equal(first, later)  # it does not act alike at every step
    trained = load_agent(runs[name])
    for number, (kind, reward, _, seen) in enumerate(zip(*time_steps(trained.spec), strict=True)):
        if kind == 0:
            trained.reset()
        arrays = [array for key, array in wanted.items() if key.startswith(f"{number}.")]
        action, state = trained.act(seen, reward), jax.tree.leaves(without_keys(trained._state))
        chex.assert_trees_all_equal([action, *state], [arrays[0], *arrays[-len(state) :]])
    with pytest.raises(ValueError, match=r"^observation (must be|has shape).*\.$"):
        trained.act(seen[:1])
    with pytest.raises(ValueError, match="observation must be finite"):
        trained.act(seen * np.float32(np.nan))


def test_its_files_are_plain(runs, exported):
    for name, folder in exported.items():
        assert {path.name for path in folder.iterdir() if path.is_file()} == FILES
        trained = load_agent(runs[name])
        found = json.loads((folder / "agent.json").read_text())
        assert found["steps"] == trained.steps
        assert found["versions"]["jax"] == jax.__version__
        assert found["spec"]["observations"]["shape"] == list(trained.spec.observations.shape)
        config = json.loads((folder / "config.json").read_text())
        assert (config["agent"], config["search_path"]) == (found["agent"], "")
        leaves = jax.tree.leaves(trained.params)
        with np.load(folder / "parameters.npz", allow_pickle=False) as arrays:
            for key, leaf in zip(found["parameters"], leaves, strict=True):
                np.testing.assert_array_equal(arrays[key], leaf)
    actions = json.loads((exported["continuous"] / "agent.json").read_text())["spec"]["actions"]
    assert actions == {"shape": [1], "dtype": "float32", "minimum": [-2.0], "maximum": [2.0]}


def test_an_older_snapshot_is_exported(finished, tmp_path, retrax):
    """Into an empty directory; the first state is that of a warm start."""
    (tmp_path / "agent").mkdir()
    options = ["--output", tmp_path / "agent", "--snapshot", 160, "--platforms", "cpu"]
    assert retrax("export", finished, *options)[:2] == (0, f"{tmp_path / 'agent'}\n")
    found = json.loads((tmp_path / "agent" / "agent.json").read_text())
    assert (found["steps"], found["platforms"]) == (160, ["cpu"])
    *_, state = ExportedAgent(tmp_path / "agent").begin(0)
    assert state == sum(load_agent(finished, 160).actors.calls) > 0


@pytest.mark.parametrize(
    ("arrived", "message"),
    [
        ((0, 0.0, 1.0, np.zeros(3)), r"observation must be finite, float32 of shape \(50,\), got"),
        ((0, 0.0, 1.0, np.full(50, np.nan)), "observation must be .* that is not finite"),
        ((0, [0.0], 1.0, np.zeros(50)), r"reward must be finite, float32 of shape \(\), got float"),
        ((0.5, 0.0, 1.0, np.zeros(50)), "step_type must be finite, int32"),
    ],
)
def test_wrong_arguments_are_refused(exported, arrived, message):
    agent = ExportedAgent(exported["discrete"])
    with pytest.raises(ValueError, match=message):
        agent.act(agent.begin(), *arrived)


def test_what_is_no_export_is_refused(exported, tmp_path):
    with pytest.raises(ValueError, match="holds an exported agent, not a run"):
        retrax.load_agent(exported["discrete"])
    with pytest.raises(ValueError, match=r"holds no exported agent: it has no agent\.json"):
        ExportedAgent(tmp_path)
    (tmp_path / "agent.json").write_text('{"format": 2}')
    with pytest.raises(ValueError, match="has format 2, and this file reads 1"):
        ExportedAgent(tmp_path)


def test_wrong_input_is_one_sentence(refused, finished, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    for run, output, sentence in (
        (tmp_path / "none", "new", f"{tmp_path / 'none'} is not a run directory"),
        (finished, "full", f"The output {tmp_path / 'full'} must be a new directory or an empty"),
        (finished, "full/file", f"The output {tmp_path / 'full/file'} must be a new directory or"),
    ):
        err = refused("export", run, "--output", tmp_path / output)
        assert err.startswith(f"retrax: {sentence}")
    refused("export", finished, "--output", tmp_path / "x", "--snapshot", "77")


def test_nothing_half_written_stays(finished, tmp_path, monkeypatch):
    full = OSError(28, "No space left on device")
    monkeypatch.setattr(exporting.shutil, "copyfile", Mock(side_effect=full))
    with pytest.raises(OSError, match=r"agent cannot be written: No space left on device\."):
        retrax.export(finished, tmp_path / "agent", platforms=("cpu",))
    assert list(tmp_path.iterdir()) == []


def test_what_a_platform_lacks_is_named(finished, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"must be some of cpu, cuda, rocm, tpu, got abacus"):
        retrax.export(finished, tmp_path / "agent", platforms=("cpu", "abacus"))
    lacking = NotImplementedError("No rule for 'sort' on platform tpu.\nMore.")
    monkeypatch.setattr(jax.export, "export", Mock(side_effect=lacking))
    sentence = (
        "noisy_agent:NOISY cannot be exported for cpu, tpu: No rule for 'sort' on platform tpu."
    )
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        retrax.export(finished, tmp_path / "agent", platforms=("cpu", "tpu"))
    assert list(tmp_path.iterdir()) == []
