"""Switches after an id: text becomes values by the parameter that takes it."""

import math
from typing import Annotated, Optional

import gymnasium
import numpy as np
import pytest
from stepping import Counting

from retrax.environments import make
from retrax.environments.switches import split, values

SUITE = "dm_control:cartpole/balance"


def takes(
    flag: bool = True,
    default=False,  # a type by its default alone
    maybe: bool | None = None,
    count: int = 3,
    either: Optional[int] = None,  # noqa: UP045 - what users may write
    share: Annotated[float, "of something"] = 0.5,
    name: str = "4x4",
    label: str | None = None,
    free=None,
):
    """Parameters of all kinds."""


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("flag=0", False),
        ("default=no", False),
        *[(f"{name}={word}", True) for name in ("flag", "maybe") for word in ("TRUE", "Yes", "1")],
        ("default=off", False),
        ("flag=on", True),
        ("maybe=null", None),
        ("maybe=False", False),
        ("count=7", 7),
        ("count=1e6", 1_000_000),
        ("either=None", None),
        ("share=1", 1),
        ("share=inf", math.inf),
        ("share=-inf", -math.inf),
        ("share=nan", math.nan),
        ("name=8x8", "8x8"),
        ("name=4", "4"),
        ("name=no", "no"),
        ("name=null", "null"),
        ("name='4'", "4"),
        ("label=none", None),
        ("free=no", "no"),
        ("free=true", True),
        ("free=null", None),
        ("free=0.5", 0.5),
        ("free=(1)", 1),
        ("free='true'", "true"),
    ],
)
def test_text_is_read_by_the_type_of_its_parameter(text, value):
    _, switches = split(f"x,{text}")
    (found,) = values(switches, takes, "x").values()
    assert repr(found) == repr(value)


@pytest.mark.parametrize("text", ["flag=maybe", "flag=2", "flag=none", "default=nope", "maybe=x"])
def test_a_bool_is_no_other_word(text):
    name, _, word = text.partition("=")
    with pytest.raises(ValueError, match=f"^x: {name} must be True or False, got '{word}'.$"):
        values(split(f"x,{text}")[1], takes, "x")


def test_values_given_in_python_stay_as_they_are():
    given = {"flag": "no", "count": 1.5, "free": "true"}
    assert values(given, takes, "x") == given


@pytest.mark.parametrize(
    ("id", "switches", "sentence"),
    [
        ("ALE/Pong-v5", {"clip_rewards": 2}, "clip_rewards must be True or False, got 2"),
        ("ALE/Pong-v5", {"max_frames": 1e5}, "max_frames must be an integer, got 100000.0"),
        ("ALE/Pong-v5,max_noops=0.5", {}, "max_noops must be an integer, got 0.5"),
        ("ALE/Pong-v5,max_noops=True", {}, "max_noops must be an integer, got True"),
        ("ALE/Pong-v5,num_threads=x", {}, "num_threads must be an integer or None, got 'x'"),
        (
            "ALE/Pong-v5,repeat_action_probability=nan",
            {},
            "repeat_action_probability must be a finite number, got nan",
        ),
        ("memory,length=2.5", {}, "length must be an integer, got 2.5"),
        ("noisy_deep_sea,mapping_seed=x", {}, "mapping_seed must be an integer or None, got 'x'"),
        ("deep_sea,remote=3", {}, "remote must be True or False, got '3'"),
        (SUITE, {"time_limit": math.nan}, "time_limit must be a finite number or None, got nan"),
    ],
)
def test_our_own_switches_are_checked(id, switches, sentence):
    if id.startswith(SUITE):
        pytest.importorskip("dm_control", reason="no mujoco extra")
    with pytest.raises(ValueError, match=f"^{id.partition(',')[0]}: {sentence}.$"):
        make(id, **switches)


@pytest.mark.parametrize(
    ("id", "sentence"),
    [
        ("deep_sea,size", "must be NAME=VALUE, as in deep_sea,size=20, got 'size' after deep_sea"),
        ("deep_sea,", "must be NAME=VALUE, .* got '' after deep_sea"),
        ("deep_sea,size=1", "PureDeepSea.size must be an integer >= 2, got 1"),
        ("deep_sea,mapping_seed=-1", "mapping_seed must be an integer >= 0 or None, got -1"),
        ("deep_sea,screen=-1", "screen must be an integer >= 0, got -1"),
        ("memory,length=0", "length must be an integer >= 1, got 0"),
        ("deepsea,size=3", r"unknown environment 'deepsea' \(did you mean deep_sea"),
        ("deep_sea,depth=3", "no switch depth; .* are: mapping_seed, remote, screen, size"),
        ("catch,seed=3", r"catch has no switch seed; its switches are: none\.$"),
        ("ALE/Pong-v5,num_envs=2", "ALE/Pong-v5 has no switch num_envs; .*: clip_rewards, epis"),
        ("CartPole-v1,render_mode=human", "no switch render_mode; .* are: max_episode_steps, sut"),
        ("CartPole-v1,lenght=2", "no switch lenght; .* are: max_episode_steps, sutton_barto_rew"),
        (f"{SUITE},domain=2", r"has no switch domain; its switches are: repeat, time_limit\.$"),
        (f"{SUITE},time_limit=0.0", "time_limit must be positive, got 0.0"),
        (f"{SUITE},repeat=0", "repeat must be positive, got 0"),
    ],
)
def test_wrong_switches_after_an_id_are_named(id, sentence):
    if id.startswith(SUITE):
        pytest.importorskip("dm_control", reason="no mujoco extra")
    with pytest.raises(ValueError, match=sentence):
        make(id)


class Given(Counting):
    """Keeps what it is given."""

    def __init__(self, **given):
        self.given = given


@pytest.fixture
def register():
    """Registers an id with Gymnasium for a test."""
    yield gymnasium.register
    gymnasium.registry.pop("Given-v0")


def test_a_registered_default_has_a_type_too(register):
    register("Given-v0", entry_point=Given, kwargs={"slow": True, "name": "a"})
    (made,) = make("Given-v0,slow=no,name=no,other=false")._environments
    assert made.unwrapped.given == {"slow": False, "name": "no", "other": False}


@pytest.mark.parametrize("limit", ["inf", "0", "2.5", "no"])
def test_a_limit_is_an_integer(limit):
    with pytest.raises(ValueError, match="max_episode_steps must be an integer of at least 1, got"):
        make(Given, **split(f"x,max_episode_steps={limit}")[1])
    with pytest.raises(ValueError, match="max_episode_steps"):
        make(f"CartPole-v1,max_episode_steps={limit}")


# Switches for training only


def best_reward(environment, steps=250):
    environment.reset()
    fire = np.ones(1, np.int32)
    return max(float(environment.step(fire).reward[0]) for _ in range(steps))


def test_evaluations_of_atari_have_the_games_own_rewards_and_episodes():
    id = "ALE/SpaceInvaders-v5,clip_rewards=True,episodic_life=True,frame_stack=2"
    training, evaluation = make(id), make(id, evaluation=True)
    assert best_reward(training) == 1
    assert best_reward(evaluation) > 1
    assert not evaluation._episodic_life
    assert evaluation.spec == training.spec
    assert make("ALE/Pong-v5", evaluation=True, episodic_life=True)._episodic_life is False


def test_an_environment_says_which_of_its_switches_are_for_training_only(register):
    class Shaped(Given):
        """Pays for progress while it is trained."""

        training_only = ("bonus",)

    for evaluation, given in ((False, {"size": 3, "bonus": 0.5}), (True, {"size": 3})):
        environment = make(Shaped, size=3, bonus=0.5, evaluation=evaluation)
        assert environment._environments[0].given == given
    register("Given-v0", entry_point=Shaped, kwargs={"bonus": 0.5, "size": 3})
    (inner,) = make("Given-v0,size=4,bonus=2", evaluation=True)._environments
    assert inner.unwrapped.given == {"size": 4, "bonus": 0.5}
    Shaped.training_only = "bonus"  # not a tuple of one
    with pytest.raises(ValueError, match="training_only must be a tuple of switches, got 'bonus'"):
        make(Shaped, evaluation=True)
