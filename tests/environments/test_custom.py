"""Environments of other packages: by module, by entry point, and as a function."""

import sys

import gymnasium
import numpy as np
import pytest
from benchmark_modules import install
from scripted import played

from retrax.datatypes import EnvironmentSpec
from retrax.environments import check_environment, known_environments, make
from retrax.environments.dm_env_adapter import DmEnvVector
from retrax.environments.gymnasium_adapter import GymnasiumVector
from retrax.environments.pure import PureVector
from retrax.environments.pure_tasks import PureMemory

MODULE = """
import dm_env
import gymnasium
import numpy as np
from dm_env import specs
from retrax.environments import make as _make
from stepping import Counting

class Walk(Counting):
    def __init__(self, size=5, seed=None, render_mode=None):
        self.size = self.length = size
        self.seed, self.render_mode = seed, render_mode

    def render(self):
        return np.zeros((2, 2, 3), np.uint8)

class Noise(dm_env.Environment):
    def __init__(self, seed):
        self.seed, self.generator = seed, np.random.default_rng(seed)
    def observation_spec(self):
        return specs.Array((2,), np.float64)
    def action_spec(self):
        return specs.DiscreteArray(3)
    def reset(self):
        return dm_env.restart(self.generator.random(2))
    def step(self, action):
        return dm_env.transition(1.0, self.generator.random(2))

def vector(*, num_envs, seed, length=3):
    return _make("memory", num_envs=num_envs, seed=seed, length=length)

def unseeded():
    return gymnasium.make("CartPole-v1")

def anything(**switches):
    return Walk(**switches)

def pair(first, second=2):
    return Walk()

def number():
    return 3

def bad_vector(num_envs, seed):
    return Walk()

def one_vector(num_envs, seed):
    return _make("memory", seed=seed)

_hidden = unseeded
NUMBER = 3
"""


@pytest.fixture
def here(own_modules):
    """The current directory, with a module of a user's environments."""
    (own_modules / "custom_envs.py").write_text(MODULE)
    return own_modules


@pytest.fixture
def installed(here, monkeypatch):
    """The same, registered by a distribution."""
    points = {"walk": "custom_envs:Walk", "broken": "custom_envs_absent:Walk"}
    install(here, "somebody", "retrax.environments", **points)
    monkeypatch.syspath_prepend(here)


@pytest.mark.parametrize(
    ("name", "kind"), [("Walk", GymnasiumVector), ("Noise", DmEnvVector), ("vector", PureVector)]
)
def test_an_attribute_of_a_module_in_the_current_directory(here, name, kind):
    environment = make(f"custom_envs:{name}", num_envs=3, seed=1)
    assert isinstance(environment, kind)
    check_environment(environment, steps=20)
    environment.close()


def test_a_module_in_another_directory(here, tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    with pytest.raises(ValueError, match=r"'custom_envs' cannot be imported from .*elsewhere"):
        make("custom_envs:vector")
    assert isinstance(make("custom_envs:vector", search_path=here), PureVector)


def test_each_environment_gets_a_seed_of_its_own(here):
    seeds = [one.seed for one in make("custom_envs:Noise", num_envs=3, seed=1)._environments]
    again = [one.seed for one in make("custom_envs:Noise", num_envs=2, seed=1)._environments]
    assert len(set(seeds)) == 3
    assert again == seeds[:2]
    assert all(type(seed) is int for seed in seeds)
    by_vector = make("custom_envs:vector", num_envs=2, seed=4).reset().observation
    alone = make("memory,length=3", num_envs=2, seed=4).reset().observation
    np.testing.assert_array_equal(by_vector, alone)
    assert make("custom_envs:Walk", seed=1)._environments[0].seed == seeds[0]


def test_switches_reach_the_function(here):
    assert make("custom_envs:Walk,size=7")._environments[0].size == 7
    assert make("custom_envs:anything,size=7")._environments[0].size == 7
    assert make("custom_envs:vector", length=5).pure.length == 5
    maker = type(make("custom_envs:Walk")._environments[0])  # a function in place of an id
    assert make(maker, size=7)._environments[0].size == 7
    assert make(sys.modules["custom_envs"].vector, num_envs=2, length=4).pure == PureMemory(4)
    with pytest.raises(ValueError, match="made by a function has no switch length"):
        make(lambda: gymnasium.make("CartPole-v1"), length=3)
    with pytest.raises(ValueError, match="no switch sise; its switches are: length"):
        make("custom_envs:vector,sise=7")
    with pytest.raises(ValueError, match=r"custom_envs:pair cannot be made: TypeError: .*missing "):
        make("custom_envs:pair")
    with pytest.raises(ValueError, match="no switch seed; its switches are: first, max_episode_s"):
        make("custom_envs:pair,seed=3")


def test_rendering(here):
    with pytest.raises(ValueError, match="render=True"):
        make("custom_envs:Walk").render()
    for given in ({"render": True}, {"render_mode": "rgb_array"}):
        assert make("custom_envs:Walk", **given).render().shape == (2, 2, 3)
    assert make("custom_envs:vector", render=True).num_envs == 1


def test_a_gymnasium_id_comes_before_an_attribute(here):
    (here / "custom_envs_twice.py").write_text(
        "from custom_envs import Walk\n"
        "import gymnasium\n"
        "gymnasium.register('Walk', entry_point=Walk, max_episode_steps=2)\n"
    )
    try:
        environment = make("custom_envs_twice:Walk")
    finally:
        gymnasium.registry.pop("Walk")
    assert [int(step.step_type[0]) for step in played(environment, 2)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("walk", r"no attribute 'walk' and registers no Gymnasium id 'walk' \(did you mean .*Walk"),
        ("CartPole-v2", r"no Gymnasium id 'CartPole-v2' \(did you mean CartPole-v1"),
        ("zzzzzz", r"registers no Gymnasium id 'zzzzzz'\.$"),
        ("NUMBER", "NUMBER must be a function or a class .*; its type is int"),
        ("number", "a gymnasium.Env or a dm_env.Environment; the type of its result is int"),
        ("bad_vector", "result of .*:bad_vector must have 2 environments .*, but it is a single"),
        ("one_vector", "the result of custom_envs:one_vector has 1 environments instead of 2"),
    ],
)
def test_what_is_no_environment_is_refused(here, name, message):
    with pytest.raises(ValueError, match=message) as caught:
        make(f"custom_envs:{name}", num_envs=2)
    assert "\n" not in str(caught.value)


def test_registered_environments_are_made_by_name(installed):
    assert {"walk", "broken"} <= set(known_environments())
    assert make("walk,size=2", num_envs=2).num_envs == 2
    with pytest.raises(ValueError, match=r"'broken', registered by somebody as .*cannot be import"):
        make("broken")
    with pytest.raises(ValueError, match=r"unknown environment 'walc' \(did you mean .*walk"):
        make("walc")


@pytest.mark.parametrize(
    ("attribute", "get", "sentence"),
    [
        ("spec", lambda: None, "it is a Pretends whose spec is None, not an EnvironmentSpec"),
        ("spec", lambda: EnvironmentSpec(None, None), r"whose spec is EnvironmentSpec\(observat"),
        ("num_envs", lambda: "2", "has '2' environments instead of 2"),
        ("num_envs", lambda: 2.5, r"has 2\.5 environments instead of 2"),
        ("step", lambda: None, "must be a VectorEnvironment, but .* Pretends, which has no step"),
        ("spec", lambda: 1 / 0, "cannot be read: ZeroDivisionError: division by"),
    ],
)
def test_vectors_are_checked_by_the_types_of_their_attributes(attribute, get, sentence):
    class Pretends(PureVector):
        def __init__(self, *, num_envs, seed):
            super().__init__(PureMemory(), num_envs=num_envs, seed=seed)

    setattr(Pretends, attribute, property(lambda self: get(), lambda self, value: None))
    with pytest.raises(ValueError, match=sentence) as caught:
        make(Pretends, num_envs=2)
    assert str(caught.value).startswith("the result of an environment made by a function ")
