"""What a run is: defaults, config.json, differences."""

import dataclasses
import json

import numpy as np
import pytest
from dm_env import specs

from retrax.agents import reactor
from retrax.environments import EnvironmentSpec, make
from retrax.experiments import config as configs
from retrax.experiments.config import RunConfig


def make_run(**changes):
    fields = {
        "agent": "reactor",
        "environment": "catch",
        "preset": "small",
        "steps": 10,
        "seed": 0,
        "num_envs": 2,
        "snapshot_every": 5,
        "log_every": 5,
        "agent_config": reactor.Config.small(),
    }
    return RunConfig(**{**fields, **changes})


@pytest.mark.parametrize(
    "agent_config",
    [
        reactor.Config.paper(),
        reactor.Config.small(learning_rate=1 / 3, vector_sizes=(), distributional=False),
        reactor.Config.tislr(),
    ],
)
def test_config_round_trip(tmp_path, agent_config):
    run = make_run(agent_config=agent_config, seed=2**32 - 1)
    configs.write_config(tmp_path, run)
    assert configs.read_config(tmp_path) == run
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_config_is_readable_json(tmp_path):
    configs.write_config(tmp_path, make_run())
    values = json.loads((tmp_path / "config.json").read_text())
    assert values["agent"] == "reactor"
    assert values["agent_config"]["replay"]["selector"] == "contextual"


@pytest.mark.parametrize("field", ["steps", "num_envs", "snapshot_every", "log_every"])
def test_zero_is_refused(field):
    with pytest.raises(ValueError, match=rf"RunConfig\.{field} must be an integer >= 1, got 0\."):
        make_run(**{field: 0})


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_seeds_out_of_range_are_refused(seed):
    with pytest.raises(ValueError, match=rf"RunConfig\.seed must be .*, got {seed}\."):
        make_run(seed=seed)


def damage(directory, **changes):
    configs.write_config(directory, make_run())
    path = directory / "config.json"
    values = json.loads(path.read_text())
    for name, value in changes.items():
        values[name] = value
    path.write_text(json.dumps(values))


def test_directory_without_config(tmp_path):
    with pytest.raises(ValueError, match=r"nothing is not a run directory: it has no config.json"):
        configs.read_config(tmp_path / "nothing")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", "{}", '{"agent": "reactor"}', '{"agent": "reactor", "agent_conf']
)
def test_damaged_config(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=r"config\.json is damaged or of another version") as error:
        configs.read_config(tmp_path)
    assert "\n" not in str(error.value)


def test_config_that_is_not_text(tmp_path):
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"config\.json is damaged"):
        configs.read_config(tmp_path)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"agent": "acer9"}, "Unknown agent 'acer9'"),
        ({"agent_config": {"foo": 1}}, "Config has no field foo"),
        ({"agent_config": {"replay": {"foo": 1}}}, "ReplayConfig has no field foo"),
        ({"agent_config": {"learning_rate": "x"}}, "Config.learning_rate must be a number"),
        ({"agent_config": 3}, "damaged"),
        ({"steps": "many"}, "RunConfig.steps must be an integer"),
        ({"extra": 1}, "extra"),
    ],
)
def test_config_of_another_version(tmp_path, changes, reason):
    damage(tmp_path, **changes)
    with pytest.raises(ValueError, match=reason) as error:
        configs.read_config(tmp_path)
    assert str(tmp_path / "config.json") in str(error.value)


def test_missing_field_is_named(tmp_path):
    configs.write_config(tmp_path, make_run())
    values = json.loads((tmp_path / "config.json").read_text())
    del values["agent"]
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match=r"agent is missing\.$"):
        configs.read_config(tmp_path)


def test_unknown_agent_and_preset():
    with pytest.raises(ValueError, match=r"Unknown agent 'reactr' \(did you mean reactor\?\)"):
        configs.agent_package("reactr")
    with pytest.raises(ValueError, match=r"Unknown preset 'smal' of reactor \(did you mean small"):
        configs.preset_config("reactor", "smal")


def test_every_agent_has_its_package():
    for agent in configs.AGENTS:
        package = configs.agent_package(agent)
        assert callable(package.make_agent)
        for preset in package.PRESETS:
            assert isinstance(configs.preset_config(agent, preset), package.Config)


@pytest.mark.parametrize(
    ("agent", "environment", "preset", "steps"),
    [
        ("reactor", "catch", "small", configs.SMALL_STEPS["reactor"]["catch"]),
        ("reactor", "CartPole-v1", "small", configs.SMALL_STEPS["reactor"]["CartPole-v1"]),
        ("reactor", "Acrobot-v1", "small", configs.OTHER_STEPS),
        ("reactor", "ALE/Pong-v5", "paper", configs.PAPER_STEPS),
        ("d4pg", "Pendulum-v1", "small", configs.SMALL_STEPS["d4pg"]["Pendulum-v1"]),
    ],
)
def test_defaults(agent, environment, preset, steps):
    made = make(environment)
    assert configs.default_preset(agent, environment, made.spec) == preset
    assert configs.default_steps(agent, environment, made.spec) == steps
    made.close()


def test_defaults_of_the_control_suite():
    spec = EnvironmentSpec(
        specs.Array((5,), np.float32), specs.BoundedArray((1,), np.float32, -1, 1)
    )
    task = "dm_control:cartpole/swingup"
    assert configs.default_preset("d4pg", task, spec) == "control_suite"
    assert configs.default_steps("d4pg", task, spec) == configs.SUITE_STEPS
    assert configs.default_preset("reactor", task, spec) == "small"


def test_differences_name_nested_fields():
    old = make_run()
    replay = dataclasses.replace(old.agent_config.replay, batch_size=7)
    new = make_run(seed=3, agent_config=reactor.Config.small(discount=0.5, replay=replay))
    assert configs.differences(old, new) == [
        "seed: 0 -> 3",
        "agent_config.discount: 0.97 -> 0.5",
        "agent_config.replay.batch_size: 16 -> 7",
    ]
    assert configs.differences(old, make_run()) == []


def test_derived_seeds_differ():
    purposes = [(kind, n) for kind in (configs.EVALUATION, configs.RESUME) for n in (0, 1, 8)]
    seeds = {configs.derive_seed(seed, *purpose) for seed in (0, 1) for purpose in purposes}
    assert len(seeds | {0, 1}) == 14
    assert configs.derive_seed(5, 1) == configs.derive_seed(5, 1)
