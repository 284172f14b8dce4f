"""What a run is: defaults, config.json, differences."""

import dataclasses
import functools
import json
import re
from pathlib import Path

import numpy as np
import program_configs
import pytest
from dm_env import specs

import retrax
from retrax.agents import acer, d4pg, reactor
from retrax.agents.entry import AgentEntry
from retrax.datatypes import EnvironmentSpec
from retrax.replay.local import check_capacity
from retrax.training import run_config as configs
from retrax.training.run_config import Purpose, RunConfig, WorkerOptions, derive_seed

DOCS = Path(retrax.__file__).parent / "docs"
SMALL = specs.Array((5,), np.float32)
IMAGE = specs.Array((84, 84, 1), np.uint8)
CHOICE = EnvironmentSpec(SMALL, specs.DiscreteArray(2))
LONG = EnvironmentSpec(SMALL, specs.DiscreteArray(2), max_episode_steps=200)
GAME = EnvironmentSpec(IMAGE, specs.DiscreteArray(2))
CONTROL = EnvironmentSpec(SMALL, specs.BoundedArray((1,), np.float32, -1, 1))
TWO = WorkerOptions(num_workers=2)
KINDS = (
    (CHOICE, "arrays of shape (5,), with 2 discrete actions"),
    (LONG, "arrays of shape (5,), with 2 discrete actions and episodes of at most 200 steps"),
    (GAME, "images of shape (84, 84, 1), with 2 discrete actions"),
    (CONTROL, "arrays of shape (5,), with continuous actions of shape (1,)"),
)
ONE_PROCESS = {"agent": "reactor", "num_actors": 0, "actor_update_period": None}
make_run = functools.partial(program_configs.make_run, **ONE_PROCESS)


@pytest.mark.parametrize(
    "agent_config",
    [
        reactor.Config(),
        reactor.Config.small(learning_rate=1 / 3, vector_sizes=(), distributional=False),
        reactor.Config(policy_gradient="tislr"),
        reactor.Config.small(discount=np.float32(0.5), sequence_length=np.int64(8)),
    ],
)
def test_config_round_trip(tmp_path, agent_config):
    """Numbers of NumPy included."""
    given = make_run(agent_config=agent_config, seed=np.int64(2**32 - 1))
    run = given.resolve(CHOICE)
    assert dataclasses.replace(run, search_path="") == given
    configs.write_config(tmp_path, run)
    assert configs.read_config(tmp_path) == run.anchored()
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    (within := tmp_path / "runs" / "a").mkdir(parents=True)  # of a project with such a file
    configs.write_config(within, run)
    assert configs.run_id(within) != configs.run_id(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    assert (values["agent"], values["seed"]) == ("reactor", 2**32 - 1)
    assert values["agent_config"]["replay"]["selector"] == "contextual"


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"steps": 0}, r"steps must be an integer >= 1 and .* or None, got 0\."),
        ({"steps": 10**12 + 1}, "steps must be an integer >= 1 and <= 1000000000000 or None"),
        ({"keep_snapshots": 0}, r"keep_snapshots must be an integer >= 1, got 0\."),
        ({"seed": -1}, r"seed must be .*, got -1\."),
        ({"seed": 2**32}, r"seed must be .*, got 4294967296\."),
        ({"num_envs": 3, "num_actors": 2}, "num_envs must be a multiple of num_actors 2"),
        ({"environment": program_configs}, "environment must be text, got <module"),
        ({"workers": TWO, "num_actors": 1}, "num_actors must be num_workers 2"),
        ({"workers": TWO, "actor_update_period": 5}, "actor_update_period must be None with worke"),
        ({"workers": TWO, "learner_devices": 2}, "learner_devices must be 1 with workers"),
        ({"workers": TWO, "num_envs": 3}, "num_envs must be a multiple of num_actors 2"),
        (
            {"agent_config": {"discount": 0.5}},
            "agent_config must be a retrax.agents.reactor.config.Config or None for reactor, got "
            "{'discount': 0.5}.",
        ),
        ({"agent_config": d4pg.Config.small()}, "agent_config must be .* for reactor, got Config"),
    ],
)
def test_values_that_are_not_possible_are_refused(fields, sentence):
    with pytest.raises(ValueError, match=rf"RunConfig\.{sentence}"):
        make_run(**fields).resolve(CHOICE)


def test_numbers_of_environments_and_actors():
    for (envs, actors, workers), found in (
        ((0, 0, 0), (8, 1)),
        ((0, 2, 0), (8, 2)),
        ((0, 3, 0), (12, 3)),
        ((6, 3, 0), (6, 3)),
        ((0, 0, 3), (3, 3)),
        ((6, 0, 3), (6, 3)),
    ):
        options = WorkerOptions(num_workers=workers)
        run = make_run(num_envs=envs, num_actors=actors, workers=options)
        assert (run.num_envs, run.num_actors) == found
        each = run.environments_per_actor
        assert run.environments_of(1) == range(each, 2 * each)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"3", b"{}", b'{"agent": "reactor"}', b'{"agent_conf', b"\xff\xfe\x00"],
)
def test_damaged_config(tmp_path, data):
    with pytest.raises(ValueError, match=r"is not a run directory: it has no config.json"):
        configs.read_config(tmp_path)
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
        ({"agent_config": {"foo": 1}}, "agent_config.foo is unknown"),
        ({"agent_config.replay": {"foo": 1}}, "agent_config.replay.foo is unknown"),
        ({"agent_config.replay": 2}, "agent_config.replay must be an object with fields"),
        ({"agent_config": 3}, "agent_config must be an object with fields"),
        ({"agent_config.learning_rate": "x"}, "Config.learning_rate must be a number"),
        ({"steps": "many"}, "RunConfig.steps must be an integer"),
        ({"extra": 1}, "extra is unknown"),
        *(({"version": x}, f"its version must be 1, got {x!r}.") for x in (9, "1")),
        ({"version": MISSING}, "retrax: its version must be 1, got None."),
        (
            {
                "seed": MISSING,
                "agent_config.learning_rate": MISSING,
                "agent_config.replay.selector": MISSING,
                "agent_config.replay.size": 3,
            },
            "retrax: seed is missing; agent_config.learning_rate is missing; "
            "agent_config.replay.selector is missing; agent_config.replay.size is unknown.",
        ),
        *(
            ({name: MISSING}, f"retrax: {name} is missing.")
            for name in ["agent", "num_actors", "agent_config", "workers.decoupled"]
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
    with pytest.raises(ValueError, match=re.escape(reason)) as error:
        configs.read_config(tmp_path)
    assert str(path) in str(error.value)


def test_published_runs_can_be_read(tmp_path):
    pages = sorted((DOCS / "results").rglob("configs.json"))
    published = [each["config"] for page in pages for each in json.loads(page.read_text("utf-8"))]
    of_agents = {json.dumps([x["agent"], x["agent_config"]]): x for x in published}
    assert len(of_agents) > 50
    for config in of_agents.values():
        (tmp_path / "config.json").write_text(json.dumps(config | {"seed": 0}), encoding="utf-8")
        assert configs.read_config(tmp_path).steps == config["steps"]


@pytest.mark.parametrize(
    ("agent", "environment", "spec", "preset", "steps"),
    [
        ("reactor", "catch", CHOICE, "small_short", 20_000),
        ("reactor", "CartPole-v1", CHOICE, "small", 60_000),
        ("reactor", "MinAtar/Asterix-v1", CHOICE, "small_minatar", 200_000),
        ("reactor", "ALE/Pong-v5", GAME, "atari_laptop", 2_500_000),
        ("acer", "catch", CHOICE, "small", 40_000),
        ("acer", "CartPole-v1", CHOICE, "small", 60_000),
        ("acer", "pgx:minatar-asterix", CHOICE, "small_minatar", 200_000),
        ("acer", "Pendulum-v1", CONTROL, "small_continuous", 100_000),
        ("acer", "my_minatar:Reach", CONTROL, "small_continuous", 200_000),
        ("acer", "ALE/Pong-v5", GAME, "atari_laptop", 2_500_000),
        ("d4pg", "my_environments:Pixels", GAME, "paper", 50_000_000),
        ("d4pg", "Pendulum-v1", CONTROL, "small", 40_000),
        ("d4pg", "dm_control:cartpole/swingup", CONTROL, "small", 200_000),
        ("agent57", "deep_sea", CHOICE, "small", 60_000),
        ("agent57", "memory", CHOICE, "small", 20_000),
        ("agent57", "Acrobot-v1", LONG, "small_long", 200_000),
        ("agent57", "ALE/Pong-v5", GAME, "atari_laptop", 2_500_000),
    ],
)
def test_defaults_of_an_environment(agent, environment, spec, preset, steps):
    run = RunConfig(agent=agent, environment=environment).resolve(spec)
    assert (run.preset, run.steps) == (preset, steps)
    assert run.agent_config == run.entry.presets[preset]()
    assert run.snapshot_every == steps // 5
    assert run.log_every == min(steps // 100, 10_000)
    on_device = dataclasses.replace(run, on_device=True, log_every=None)
    assert on_device.resolve(spec).log_every == steps // 20
    assert run.replay == run.agent_config.replay
    assert run.resolve(spec) == run
    (kind,) = (words for known, words in KINDS if known is spec)
    described = f"Observations are {kind}: the default preset of {agent} for them is {preset}."
    assert run.entry.describe_preset(environment, spec) == described


def test_more_rows_to_start_with_than_the_environments_keep_are_refused():
    small = acer.Config.small()
    replay = dataclasses.replace(small.replay, capacity=100, min_rows=250)
    config = dataclasses.replace(small, replay=replay)
    run = make_run(agent="acer", agent_config=config, num_envs=3).resolve(CHOICE)
    sequence = run.entry.make_agent(CHOICE, config).sequence
    check_capacity(CHOICE, sequence, run.replay, num_envs=run.environments_per_replay)
    sentence = r"ReplayConfig\.min_rows must be at most the capacity, 200, got 250\."
    with pytest.raises(ValueError, match=sentence):
        check_capacity(CHOICE, sequence, run.replay, num_envs=2)


def test_an_entry_checks_what_comes_from_its_presets():
    """The first is the default; steps must come from somewhere, and JSON holds the config."""

    @dataclasses.dataclass(frozen=True)
    class Config:
        rate: float = 0.5

    presets = {"one": lambda: Config(rate=np.float32(0.5)), "two": Config}
    entry = AgentEntry(
        name="mine", make_agent=lambda spec, config: None, Config=Config, presets=presets
    )
    assert entry.preset_of("catch", CHOICE) == "one"
    with pytest.raises(ValueError, match="mine has no default number of steps: give steps"):
        entry.steps_of("catch", "one")
    with pytest.raises(ValueError, match=r"agent_config of mine must have values of JSON .*float3"):
        entry.checked(presets["one"]())
    assert entry.checked(Config()) == Config()


def test_names_of_new_directories(monkeypatch):
    directory = configs.new_directory(make_run(agent="my_agents:MINE", environment="ALE/Pong-v5"))
    assert directory.parts[0] == "runs"
    assert directory.name.startswith("my_agents-MINE-ALE-Pong-v5-0-")
    monkeypatch.setattr(configs.time, "strftime", lambda form: "20260101-000000")  # one second
    names = {configs.new_directory(make_run()).name for _ in range(100)}
    assert len(names) == 100
    assert all("-20260101-000000-" in name for name in names)


def test_no_two_purposes_share_a_stream_and_seeds_are_repeatable():
    each = [
        (seed, purpose, *more)
        for seed in (0, 1)
        for purpose in Purpose.__members__.values()
        for more in ((), (1,), (8,), (1, 8))
    ]
    seeds = [derive_seed(*arguments) for arguments in each]
    assert len({*seeds, 0, 1}) == 2 + len(each)
    assert seeds == [derive_seed(*arguments) for arguments in each]
