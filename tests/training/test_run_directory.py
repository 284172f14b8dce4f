"""What a run is: defaults, config.json, differences."""

import dataclasses
import functools
import json
import re
from pathlib import Path

import numpy as np
import pytest
from dm_env import specs

import retrax
from retrax.agents import acer, d4pg, reactor
from retrax.agents.base import OTHER_STEPS, PAPER_STEPS
from retrax.agents.entry import AgentEntry, agent_names, find_agent
from retrax.datatypes import EnvironmentSpec
from retrax.replay.store import check_capacity
from retrax.training import config_file as configs
from retrax.training.run_config import RunConfig, WorkerOptions

DOCS = Path(retrax.__file__).parent / "docs"


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
        reactor.Config.paper(policy_gradient="tislr"),
    ],
)
def test_config_round_trip(tmp_path, agent_config):
    run = make_run(agent_config=agent_config, seed=2**32 - 1)
    configs.write_config(tmp_path, run)
    assert configs.read_config(tmp_path) == run.anchored()
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_config_is_readable_json(tmp_path):
    configs.write_config(tmp_path, make_run())
    values = json.loads((tmp_path / "config.json").read_text())
    assert values["agent"] == "reactor"
    assert values["agent_config"]["replay"]["selector"] == "contextual"


@pytest.mark.parametrize(
    "field",
    [
        *("steps", "snapshot_every", "log_every"),
        *("keep_snapshots", "evaluation_episodes"),
    ],
)
def test_zero_is_refused(field):
    with pytest.raises(
        ValueError, match=rf"RunConfig\.{field} must be an integer >= 1( or None)?, got 0\."
    ):
        make_run(**{field: 0})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("seed", -1), ("seed", 2**32), ("evaluate_every", -1)),
        *(("num_envs", -1), ("num_actors", -1)),
    ],
)
def test_values_out_of_range_are_refused(field, value):
    with pytest.raises(ValueError, match=rf"RunConfig\.{field} must be .*, got {value}\."):
        make_run(**{field: value})


@pytest.mark.parametrize(
    ("num_envs", "num_actors", "num_workers", "found"),
    [
        (0, 0, 0, (8, 1)),
        (0, 2, 0, (8, 2)),
        (0, 3, 0, (12, 3)),
        (6, 3, 0, (6, 3)),
        (0, 0, 3, (3, 3)),
        (6, 0, 3, (6, 3)),
    ],
)
def test_numbers_of_environments_and_actors(num_envs, num_actors, num_workers, found):
    workers = WorkerOptions(num_workers=num_workers)
    run = make_run(num_envs=num_envs, num_actors=num_actors, workers=workers)
    assert (run.num_envs, run.num_actors) == found


def test_directory_without_config(tmp_path):
    with pytest.raises(ValueError, match=r"nothing is not a run directory: it has no config.json"):
        configs.read_config(tmp_path / "nothing")


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"3", b"{}", b'{"agent": "reactor"}', b'{"agent_conf', b"\xff\xfe\x00"],
)
def test_damaged_config(tmp_path, data):
    (tmp_path / "config.json").write_bytes(data)
    with pytest.raises(ValueError, match=r"config\.json is damaged or of another version") as error:
        configs.read_config(tmp_path)
    assert "\n" not in str(error.value)


MISSING = object()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"agent": "acer9"}, "unknown agent 'acer9'"),
        ({"agent": "no_module:X"}, "module 'no_module' cannot be imported"),
        ({"agent_config": {"foo": 1}}, r"agent_config\.foo is unknown"),
        ({"agent_config.replay": {"foo": 1}}, r"agent_config\.replay\.foo is unknown"),
        ({"agent_config.replay": 2}, r"agent_config\.replay must be an object with fields"),
        ({"agent_config": 3}, "agent_config must be an object with fields"),
        ({"agent_config.learning_rate": "x"}, r"Config\.learning_rate must be a number"),
        ({"steps": "many"}, "RunConfig.steps must be an integer"),
        ({"extra": 1}, "extra is unknown"),
        ({"version": 9}, "its version must be 1, got 9"),
        ({"version": "1"}, "its version must be 1, got '1'"),
        ({"version": MISSING}, r"retrax: its version must be 1, got None\.$"),
        (
            {
                "seed": MISSING,
                "agent_config.learning_rate": MISSING,
                "agent_config.replay.selector": MISSING,
                "agent_config.replay.size": 3,
            },
            r"retrax: seed is missing; agent_config\.learning_rate is missing; "
            r"agent_config\.replay\.selector is missing; agent_config\.replay\.size is unknown\.$",
        ),
        *(
            ({name: MISSING}, rf"retrax: {re.escape(name)} is missing\.$")
            for name in (
                *("agent", "num_actors", "agent_config"),
                *("workers.decoupled", "agent_config.frame_stack"),
            )
        ),
    ],
)
def test_config_of_another_version(tmp_path, changes, reason):
    configs.write_config(tmp_path, make_run())
    path = tmp_path / "config.json"
    values = json.loads(path.read_text())
    for name, value in changes.items():
        *outer, last = name.split(".")
        fields = functools.reduce(dict.__getitem__, outer, values)
        if value is MISSING:
            del fields[last]
        else:
            fields[last] = value
    path.write_text(json.dumps(values))
    with pytest.raises(ValueError, match=reason) as error:
        configs.read_config(tmp_path)
    assert str(path) in str(error.value)


def test_published_runs_can_be_read(tmp_path):
    pages = sorted((DOCS / "results").rglob("configs.json"))
    published = [each["config"] for page in pages for each in json.loads(page.read_text("utf-8"))]
    assert len(published) > 50
    for config in published:
        (tmp_path / "config.json").write_text(json.dumps(config | {"seed": 0}), encoding="utf-8")
        assert configs.read_config(tmp_path).steps == config["steps"]


def test_unknown_preset():
    with pytest.raises(ValueError, match=r"Unknown preset 'smal' of reactor \(did you mean small"):
        find_agent("reactor").config_of("smal")


@pytest.mark.parametrize("agent", agent_names())
def test_every_registered_agent_has_presets_of_its_config(agent):
    entry = find_agent(agent)
    assert entry.name == agent
    for preset in entry.presets:
        assert isinstance(entry.config_of(preset), entry.Config)


SMALL = specs.Array((5,), np.float32)
IMAGE = specs.Array((84, 84, 1), np.uint8)
DISCRETE = specs.DiscreteArray(2)
CONTINUOUS = specs.BoundedArray((1,), np.float32, -1, 1)


@pytest.mark.parametrize(
    ("agent", "spec", "sentence"),
    [
        (
            "acer",
            EnvironmentSpec(IMAGE, DISCRETE),
            "Observations are images of shape (84, 84, 1), with 2 discrete actions: the default "
            "preset of acer for them is atari_laptop.",
        ),
        (
            "d4pg",
            EnvironmentSpec(SMALL, CONTINUOUS),
            "Observations are arrays of shape (5,), with continuous actions of shape (1,): the "
            "default preset of d4pg for them is small.",
        ),
        (
            "agent57",
            EnvironmentSpec(SMALL, DISCRETE, max_episode_steps=200),
            "Observations are arrays of shape (5,), with 2 discrete actions and episodes of at "
            "most 200 steps: the default preset of agent57 for them is small_long.",
        ),
    ],
)
def test_the_default_preset_is_described_with_its_reason(agent, spec, sentence):
    assert find_agent(agent).describe_preset("x", spec) == sentence


@pytest.mark.parametrize(
    ("agent", "environment", "spec", "preset", "steps"),
    [
        ("reactor", "catch", EnvironmentSpec(SMALL, DISCRETE), "small", 20_000),
        ("reactor", "CartPole-v1", EnvironmentSpec(SMALL, DISCRETE), "small", 60_000),
        ("reactor", "Acrobot-v1", EnvironmentSpec(SMALL, DISCRETE), "small", OTHER_STEPS),
        ("reactor", "ALE/Pong-v5", EnvironmentSpec(IMAGE, DISCRETE), "paper", PAPER_STEPS),
        ("acer", "catch", EnvironmentSpec(SMALL, DISCRETE), "small", 40_000),
        ("acer", "CartPole-v1", EnvironmentSpec(SMALL, DISCRETE), "small", 60_000),
        ("acer", "Pendulum-v1", EnvironmentSpec(SMALL, CONTINUOUS), "small_continuous", 100_000),
        ("acer", "ALE/Pong-v5", EnvironmentSpec(IMAGE, DISCRETE), "atari_laptop", 2_500_000),
        ("d4pg", "Pendulum-v1", EnvironmentSpec(SMALL, CONTINUOUS), "small", 40_000),
        (
            "d4pg",
            "dm_control:cartpole/swingup",
            EnvironmentSpec(SMALL, CONTINUOUS),
            "small",
            OTHER_STEPS,
        ),
        ("agent57", "deep_sea", EnvironmentSpec(SMALL, DISCRETE), "small", 60_000),
        ("agent57", "memory", EnvironmentSpec(SMALL, DISCRETE), "small", 20_000),
        (
            "agent57",
            "Acrobot-v1",
            EnvironmentSpec(SMALL, DISCRETE, max_episode_steps=500),
            "small_long",
            OTHER_STEPS,
        ),
    ],
)
def test_defaults_of_an_environment(agent, environment, spec, preset, steps):
    run = RunConfig(agent=agent, environment=environment).resolve(spec)
    assert (run.preset, run.steps) == (preset, steps)
    assert run.agent_config == run.entry.presets[preset]()
    assert run.snapshot_every == steps // 5
    assert run.log_every == min(steps // 100, 10_000)
    assert run.replay == run.agent_config.replay
    assert run.resolve(spec) == run


def test_more_rows_to_start_with_than_the_environments_keep_are_refused():
    small = acer.Config.small()
    replay = dataclasses.replace(small.replay, capacity=100, min_rows=250)
    config = dataclasses.replace(small, replay=replay)
    spec = EnvironmentSpec(SMALL, DISCRETE)
    run = make_run(agent="acer", agent_config=config, num_envs=3).resolve(spec)
    sequence = run.entry.make_agent(spec, config).sequence
    check_capacity(spec, sequence, run.replay, num_envs=run.environments_per_replay)
    sentence = r"ReplayConfig\.min_rows must be an integer >= 1 and <= 200, got 250\."
    with pytest.raises(ValueError, match=sentence):
        check_capacity(spec, sequence, run.replay, num_envs=2)


def test_what_is_given_is_kept():
    given = make_run(steps=7, snapshot_every=3, log_every=2, preset="paper_workers")
    run = given.resolve(EnvironmentSpec(SMALL, DISCRETE))
    assert dataclasses.replace(run, search_path="") == given
    assert (
        RunConfig(agent="reactor", environment="catch", preset="paper_workers", steps=3)
        .resolve(EnvironmentSpec(SMALL, DISCRETE))
        .agent_config
        == reactor.Config.paper_workers()
    )


def test_an_empty_preset_is_none_of_the_presets():
    run = RunConfig(agent="reactor", environment="catch", preset="")
    with pytest.raises(ValueError, match="Unknown preset '' of reactor"):
        run.resolve(EnvironmentSpec(SMALL, DISCRETE))


def test_the_first_preset_is_the_default_and_steps_must_come_from_somewhere():
    entry = AgentEntry(
        name="mine",
        make_agent=reactor.make_agent,
        Config=reactor.Config,
        presets={"one": reactor.Config.small, "two": reactor.Config.paper},
    )
    spec = EnvironmentSpec(SMALL, DISCRETE)
    assert entry.preset_of("catch", spec) == "one"
    with pytest.raises(ValueError, match="mine has no default number of steps: give steps"):
        entry.steps_of("catch", "one")


@pytest.mark.parametrize(
    "fields", [{"num_envs": 3, "num_actors": 2}, {"num_envs": 1, "num_actors": 4}]
)
def test_actors_share_environments_evenly(fields):
    with pytest.raises(ValueError, match="num_envs must be a multiple of num_actors"):
        make_run(**fields)
    run = make_run(num_envs=6, num_actors=2)
    assert (run.environments_per_actor, run.environments_of(1)) == (3, range(3, 6))


def test_numbers_of_numpy_are_written(tmp_path):
    config = reactor.Config.small(discount=np.float32(0.5), sequence_length=np.int64(8))
    run = make_run(seed=np.int64(3), agent_config=config)
    run = run.resolve(EnvironmentSpec(SMALL, DISCRETE))
    configs.write_config(tmp_path, run)
    assert configs.read_config(tmp_path) == run
    assert run.seed == 3


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"agent_config": {"discount": 0.5}},
            "RunConfig.agent_config must be a retrax.agents.reactor.config.Config or None for "
            "reactor, got {'discount': 0.5}.",
        ),
        ({"agent_config": d4pg.Config.small()}, "config.Config or None for reactor, got Config("),
    ],
)
def test_a_config_of_another_class_is_refused(fields, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        make_run(**fields).resolve(EnvironmentSpec(SMALL, DISCRETE))
    with pytest.raises(ValueError, match=r"RunConfig.environment must be text, got <function"):
        make_run(environment=make_run)


def test_an_agents_config_that_json_cannot_hold_is_refused_early():
    @dataclasses.dataclass(frozen=True)
    class Config:
        rate: float = 0.5

    presets = {"a": lambda: Config(rate=np.float32(0.5))}
    entry = AgentEntry(
        name="mine", make_agent=lambda spec, config: None, Config=Config, presets=presets
    )
    with pytest.raises(
        ValueError, match=r"agent_config of mine must have values of JSON .*float32"
    ):
        entry.checked(presets["a"]())
    assert entry.checked(Config()) == Config()


def test_names_of_new_directories(monkeypatch):
    directory = configs.new_directory(make_run(agent="my_agents:MINE", environment="ALE/Pong-v5"))
    assert directory.parts[0] == "runs"
    assert directory.name.startswith("my_agents-MINE-ALE-Pong-v5-0-")
    monkeypatch.setattr(configs.time, "strftime", lambda form: "20260101-000000")  # one second
    names = {configs.new_directory(make_run()).name for _ in range(100)}
    assert len(names) == 100
    assert all("-20260101-000000-" in name for name in names)


def test_differences_name_nested_fields():
    old = make_run()
    replay = dataclasses.replace(old.agent_config.replay, batch_size=7)
    new = make_run(seed=3, agent_config=reactor.Config.small(discount=0.5, replay=replay))
    assert configs.differences(old, new) == [
        "seed: 0 -> 3",
        "agent_config.discount: 0.99 -> 0.5",
        "agent_config.replay.batch_size: 16 -> 7",
    ]
    assert configs.differences(old, make_run()) == []
