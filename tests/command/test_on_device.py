"""`retrax train --on-device`: run directories, exact resume, evaluation, and what is refused."""

import contextvars
import dataclasses
import sys
import types

import jax
import jax.numpy as jnp
import noisy_agent
import numpy as np
import pytest
from dm_env import specs
from run_files import check_equal, rows, snapshots

from retrax.command import train as command_train
from retrax.command import training
from retrax.command.training import RunFailedError, in_turn, train
from retrax.datatypes import EnvironmentSpec, ReplayConfig
from retrax.device import loop as device_loop
from retrax.environments.pure import Transition
from retrax.environments.pure_tasks import PureMemory
from retrax.training.run_config import RunConfig, read_config, write_config


def config(**changes):
    replay = ReplayConfig(capacity=80, min_rows=20, batch_size=2, acting_steps_per_update=3.0)
    replay = dataclasses.replace(replay, selector="proportional")
    fields = {
        "agent": "noisy_agent:ARMS",
        "environment": "catch",
        "steps": 240,
        "snapshot_every": 80,
        "log_every": 40,
        "num_envs": 4,
        "on_device": True,
        "evaluate_every": 120,
        "evaluation_episodes": 2,
        "keep_snapshots": 9,
        "agent_config": noisy_agent.Config(replay=replay),
    }
    return RunConfig(**{**fields, **changes})


@pytest.fixture(scope="module")
def on_device(tmp_path_factory):
    """A finished run; tests must not change it."""
    directory = tmp_path_factory.mktemp("device") / "run"
    summary = train(config(), directory, plain=True)
    assert (summary.steps, summary.interrupted) == (240, False)
    return directory


def test_a_run_on_a_device_leaves_what_every_run_leaves(on_device, retrax):
    found = rows(on_device)
    assert [row["steps"] for row in found] == ["40", "80", "120", "160", "200", "240"]
    assert snapshots(on_device) == [80, 160, 240]
    assert read_config(on_device).on_device
    last = found[-1]
    assert 70 <= int(last["updates"]) <= 80  # 240 less the first 20 rows, one in 3
    assert float(last["replay_age"]) < 80
    assert -1 <= float(last["episode_return"]) <= 1
    assert float(last["episode_arm"]) == -1.0
    assert float(last["evaluation_length"]) == 9.0
    status, out, _ = retrax("evaluate", on_device, "--episodes", "3")
    assert status == 0
    assert "over 3 episodes of 9 steps, after 240 steps of training" in out


def test_a_resumed_run_is_the_whole_run_whatever_the_calls(on_device, tmp_path, monkeypatch):
    monkeypatch.setattr(device_loop, "_FIRST_ROWS", 3)
    monkeypatch.setattr(device_loop, "_SECONDS", 1e-9)  # calls of ever fewer time steps
    run = tmp_path / "run"
    train(config(steps=100), run, plain=True)
    write_config(run, read_config(on_device))
    train(config(), run, resume=True, plain=True)
    check_equal(run, on_device)


def test_a_resumed_run_of_rounds_is_the_whole_run(tmp_path):
    replay = ReplayConfig(
        capacity=80, min_rows=20, batch_size=2, pace="rounds", replay_ratio=1.5, on_policy=True
    )
    run = {"agent_config": noisy_agent.Config(replay=replay), "evaluate_every": 0}
    train(config(**run), tmp_path / "whole", plain=True)
    train(config(**run, steps=100), tmp_path / "parts", plain=True)
    write_config(tmp_path / "parts", read_config(tmp_path / "whole"))
    train(config(**run), tmp_path / "parts", resume=True, plain=True)
    check_equal(tmp_path / "parts", tmp_path / "whole")


@dataclasses.dataclass(frozen=True)
class Walk:
    """Until it is two places away: episodes of all lengths, so that seeds are not in step."""

    spec = EnvironmentSpec(specs.Array((1,), np.float32), specs.DiscreteArray(3))

    def reset(self, key):
        place = jax.random.randint(key, (), -1, 2)
        return place, place[None].astype(jnp.float32)

    def step(self, key, place, action):
        place = place + action - 1 + jax.random.randint(key, (), -1, 2)
        seen, away = place[None].astype(jnp.float32), jnp.abs(place) > 1
        return place, Transition(seen, jnp.sign(place) * 1.0, away, jnp.bool_(False))


@pytest.fixture(scope="module")
def walks(tmp_path_factory):
    """Finished runs of seeds 3 and 4, each by itself; tests must not change them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "walks", types.SimpleNamespace(Walk=Walk))
        found = [tmp_path_factory.mktemp("walks") / f"seed_{seed}" for seed in (3, 4)]
        for directory, seed in zip(found, (3, 4), strict=True):
            train(config(seed=seed, environment="walks:Walk"), directory, plain=True)
        assert rows(found[0]) != rows(found[1])
        yield found


@pytest.mark.once
@pytest.mark.parametrize("batches", [False, True])
def test_seeds_together_are_the_runs_of_each_seed(batches, walks, retrax, tmp_path, monkeypatch):
    """All in one call of `vmap`, as on accelerators, or in turn; stopped and resumed."""
    monkeypatch.setattr(device_loop, "_batches", lambda: batches)
    run, names = tmp_path / "run", [directory.name for directory in walks]
    fields = {"steps": 100, "num-envs": 4, "snapshot-every": 80, "log-every": 40, "seed": 3}
    fields |= {"evaluate-every": 120, "evaluation-episodes": 2, "keep-snapshots": 9, "seeds": 2}
    options = [word for name, value in fields.items() for word in (f"--{name}", value)]
    new = ("train", "noisy_agent:ARMS", "--environment", "walks:Walk", "--on-device", *options)
    status, out, _ = retrax(*new, "--run-directory", run)
    assert status == 0
    assert out == f"Runs in {run}. Next: retrax plot {run}\n"
    logs = [(run / name / "log.txt").read_text() for name in names]
    assert ["seed 3" in log for log in logs] == ["seed 4" not in log for log in logs] == [True, 0]
    assert f"{run} holds runs already" in retrax(*new, "--run-directory", run)[2]
    newest = snapshots(run / names[1])[-1]
    (run / names[1] / "snapshots" / f"{newest}.npz").unlink()
    assert retrax("train", "--resume", run, "--steps", 240)[0] == 0
    for name, directory in zip(names, walks, strict=True):
        check_equal(run / name, directory)
    status, _, error = retrax("train", "--resume", run)
    assert status == 2
    assert "is at 24" in error


@pytest.mark.parametrize("steps", [240, 12])  # the newest time step, too
def test_numbers_of_an_environment_that_are_not_finite_are_named(tmp_path, monkeypatch, steps):
    observe = PureMemory._observe

    def wrong(self, time, cue):
        seen = observe(self, time, cue)
        return jnp.where(time == 3, seen.at[1].set(jnp.inf), seen)

    monkeypatch.setattr(PureMemory, "_observe", wrong)
    name = r"observation\[1\]"
    with pytest.raises(RunFailedError, match=f": the {name} of environment 0 at step 3 is i"):
        train(config(environment="memory,length=7", steps=steps), tmp_path / "run", plain=True)


def test_a_run_that_fails_does_not_end_the_others():
    ended = []

    def run(steps):
        for _ in range(steps):
            yield
        ended.append(steps)
        if steps < 3:
            raise RunFailedError(f"failed at {steps}")

    parts = {run(steps): contextvars.copy_context() for steps in (2, 3, 1)}
    with pytest.raises(RunFailedError, match="failed at 1 failed at 2"):
        in_turn(parts)
    assert ended == [1, 2, 3]


def test_replays_are_not_larger_than_the_memory_of_the_devices(tmp_path, monkeypatch):
    monkeypatch.setattr(device_loop, "memory", lambda: 5_000)
    with pytest.raises(ValueError, match="A replay of 80 rows for each of 2 seeds needs"):
        training.train_together({tmp_path / name: config() for name in "ab"})
    monkeypatch.setattr(command_train, "new_seed_runs", None)  # nothing is done for each seed
    run = ["acer", "--environment", "catch", "--run-directory", str(tmp_path / "run")]
    with pytest.raises(ValueError, match="rows for each of 20000 seeds needs"):
        command_train.train_command([*run, "--on-device", "--seeds", "20000"])
    assert list(tmp_path.iterdir()) == []


def test_steps_are_counted_in_32_bits(tmp_path):
    with pytest.raises(ValueError, match="steps must be at most 2147483647 on a device"):
        train(config(steps=2**31), tmp_path / "run")
