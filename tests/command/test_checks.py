"""What does not fit into the memory, or into JAX's numbers, is refused before it is taken."""

import dataclasses
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from retrax.agents import Agent, reactor
from retrax.environments import make
from retrax.training import assembly
from retrax.training.run_config import RunConfig

CATCH = "train reactor --environment catch"


@pytest.fixture(autouse=True)
def memory(monkeypatch):
    """A machine with 4 GB."""
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=4e9))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (f"{CATCH} --agent.memory-size 10000000", "GB for the learner's state, needs 128000"),
        (
            f"{CATCH} --agent.replay.updates-per-call 1000000",
            "GB for 16000000 sequences in one call of updates, needs",
        ),
        (f"{CATCH} --num-envs 10000", "over 10000 environments keeps 10 rows each, but a sequence"),
        (f"{CATCH} --num-envs 10000000", "GB for 10000000 actor states, needs"),
        (
            "train reactor --environment deep_sea,size=10000000",
            "DeepSea of size 10000000 with a screen of 0 needs 1600000.",
        ),
        (
            "train reactor --environment deep_sea,screen=10000000000",
            "DeepSea of size 10 with a screen of 10000000000 needs 80.0 GB, but only 4.0 GB of",
        ),
        (
            f"{CATCH} --agent.target-update-period 3000000000",
            "agent_config.target_update_period must be at most 2147483647, got 3000000000.",
        ),
        (
            f"{CATCH} --agent.vector-sizes 3 99999999999999999999999",
            "agent_config.vector_sizes must be at most 2147483647, got 99999999999999999999999.",
        ),
    ],
)
def test_too_much_is_refused_with_its_numbers(refused, arguments, sentence):
    assert sentence in refused(*arguments.split())


@pytest.mark.parametrize(
    ("count", "sentence"),
    [
        (3, "learner_devices must divide the 16 sequences of an update, got 3."),
        (16, "learner_devices is 16, but JAX has 4 here: cpu:0 name, cpu:1 name, cpu:2 name, cpu:"),
    ],
)
def test_devices_that_cannot_share_a_batch(refused, monkeypatch, count, sentence):
    monkeypatch.setattr(assembly, "devices", lambda: [f"cpu:{number} name" for number in range(4)])
    assert sentence in refused(*CATCH.split(), "--learner-devices", count)


def test_a_resumed_run_may_have_another_number_of_devices(refused, run, monkeypatch):
    monkeypatch.setattr(assembly, "devices", lambda: ["cpu:0 name"])
    err = refused("train", "--resume", run, "--steps", 300, "--learner-devices", 2)
    assert "learner_devices is 2, but JAX has 1 here: cpu:0 name." in err


def test_an_agent_that_cannot_be_made_while_it_is_traced_is_made_as_it_is():
    def make_agent(spec, config):
        made.append(np.asarray(jnp.linspace(0.0, 1.0, 3)))
        return reactor.AGENT.make_agent(spec, config)

    made, entry = [], dataclasses.replace(reactor.AGENT, make_agent=make_agent)
    config = RunConfig(
        agent="reactor",
        environment="catch",
        agent_config=reactor.Config.small(target_update_period=2_000_000),
    )
    spec = make("catch").spec
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunConfig, "entry", property(lambda self: entry))
        assert isinstance(assembly.checked_agent(config.resolve(spec), spec), Agent)
    assert len(made) == 1


def test_many_environments_are_made_after_one_was_checked(monkeypatch):
    asked, make_environment = [], RunConfig.make_environment

    def watched(self, *, seed, num_envs, render=False):
        asked.append(num_envs)
        return make_environment(self, seed=seed, num_envs=num_envs)

    monkeypatch.setattr(RunConfig, "make_environment", watched)
    for num_envs in (assembly.MANY, assembly.MANY + 1):
        config = RunConfig(agent="reactor", environment="catch", num_envs=num_envs)
        (environment,) = assembly.make_environments(config, None)
        assert environment.num_envs == num_envs
    assert asked == [assembly.MANY, 1, assembly.MANY + 1]
