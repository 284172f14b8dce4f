"""Environments of Gymnasium and dm_env as vectors: time steps, rewards, ends, seeds, limits."""

from unittest.mock import Mock

import gymnasium
import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Scripted, ScriptedToo, played
from stepping import FIRST, LAST, MID

from retrax.datatypes import DEFAULT_LIMIT
from retrax.environments import gymnasium_adapter, make
from retrax.environments.dm_env_adapter import DmEnvVector
from retrax.environments.failures import RefusedError
from retrax.environments.gymnasium_adapter import GymnasiumVector


def scripted(*script, num_envs=1, **kwargs):
    return GymnasiumVector([Scripted(script, **kwargs) for _ in range(num_envs)])


def test_an_episode_without_an_end_is_cut_off(monkeypatch):
    for kind in (Scripted, ScriptedToo):
        limited = make(kind, num_envs=2, max_episode_steps=3)
        assert limited.spec.max_episode_steps == 3
        steps = played(limited, 8)
        assert [int(s.step_type[1]) for s in steps] == [FIRST, MID, MID, LAST] * 2 + [FIRST]
        assert all(s.discount.min() == 1 for s in steps)
    assert make("CliffWalking-v1").spec.max_episode_steps == DEFAULT_LIMIT
    monkeypatch.setattr(gymnasium_adapter, "DEFAULT_LIMIT", 2)
    assert [int(s.step_type[0]) for s in played(scripted(), 5)] == [FIRST, MID, LAST] * 2


@settings(max_examples=30, deadline=None)
@given(
    ends=st.lists(
        st.tuples(st.integers(1, 6), st.booleans(), st.booleans()), min_size=1, max_size=4
    )
)
@pytest.mark.parametrize("library", ["gymnasium", "dm_env"])
def test_the_arrival_form_holds_for_any_lengths(library, ends):
    """E environments with episodes of their own lengths, each against a loop over one episode.

    The last observation is the last one of the episode, not the first of the next. A termination
    that is also a truncation has discount 0.
    """
    wanted, made = [], []
    for length, terminated, truncated in ends:
        terminated |= not truncated
        middle, discount = range(1, length), 1.0 - terminated
        if library == "gymnasium":
            script = [(float(t), False, False) for t in middle]
            made.append(Scripted([*script, (float(length), terminated, truncated)]))
        else:
            script = [(float(t), 1.0, False) for t in middle]
            made.append(ScriptedToo([*script, (float(length), discount, True)]))
        episode = [(FIRST, 0.0, 1.0, 0.0), *((MID, float(t), 1.0, float(t)) for t in middle)]
        wanted.append([*episode, (LAST, float(length), discount, float(length))])
    queue = iter(made)
    steps = played(make(lambda: next(queue), num_envs=len(ends)), 14)
    for e, episode in enumerate(wanted):
        fields = ((s.step_type[e], s.reward[e], s.discount[e], s.observation[e, 0]) for s in steps)
        assert [tuple(map(float, each)) for each in fields] == (episode * 15)[:15]


@pytest.mark.parametrize("place", ["reset", "step"])
def test_what_is_no_time_step_of_dm_env_is_named(place):
    environment = ScriptedToo([(0.0, 1.0, False)])
    setattr(environment, place, lambda *_: (0.0, False))
    with pytest.raises(RefusedError, match=rf"^{place}\(\) must return a dm_env.TimeStep, got a "):
        played(make(lambda: environment), 1)


@pytest.mark.parametrize(("script", "step"), [((0.0, 0.9, False), 1), ((0.0, 0.5, True), 1)])
def test_other_discounts_are_refused(script, step):
    environment = DmEnvVector([ScriptedToo(), ScriptedToo([script])])
    with pytest.raises(ValueError, match=rf"discount of environment 1 at step {step} is 0\.\d; it"):
        played(environment, 3)


# Rewards, ends and observations


def step_of(*returned):
    each = iter([(0.0, False, False), returned])
    environment = make(lambda: Scripted([next(each)]), num_envs=2)
    return tuple(float(x[1]) for x in played(environment, 1)[1][:3])


NUMBERS = [np.array([1.5]), np.array([[2]], np.int8), np.float16(0.5), np.array(3.0, np.float32)]


@pytest.mark.parametrize("reward", [*NUMBERS, [4], 7, True, np.True_])
def test_a_reward_is_one_number_in_whatever_form(reward):
    assert step_of(reward, False, False) == (MID, float(np.ravel(reward)[0]), 1)


@pytest.mark.parametrize(
    ("reward", "allowed"),
    [
        *[(x, "one number") for x in (None, "1", np.zeros(2), np.zeros(0), 1j, 10**400, object())],
        ([[1.0], [1.0, 2.0]], "one number"),
        *[(x, "finite as a float32") for x in (np.nan, np.inf, -np.inf, 1e39, -1e40)],
    ],
)
def test_a_reward_that_is_not_one_number_is_named(reward, allowed):
    sentence = rf"^the reward of environment 1 at step 1 is .*; it must be {allowed}\.$"
    with pytest.raises(RefusedError, match=sentence):
        step_of(reward, False, False)


@pytest.mark.parametrize("true", [True, np.True_, 1, np.array(1), np.array([True])])
def test_ends_are_true_or_false_in_whatever_form(true):
    false = type(true)(0) if not isinstance(true, np.ndarray) else true * False
    assert step_of(0.0, true, false) == (LAST, 0, 0)
    assert step_of(0.0, false, true) == (LAST, 0, 1)
    assert step_of(0.0, false, false) == (MID, 0, 1)


@pytest.mark.parametrize("end", ["False", np.nan, None, 0.0, 2, np.array([True, True]), [], "x"])
@pytest.mark.parametrize("name", ["terminated", "truncated"])
def test_ends_that_are_neither_true_nor_false_are_named(name, end):
    ends = {"terminated": False, "truncated": False} | {name: end}
    sentence = rf"^the {name} of environment 1 at step 1 is .*; it must be True or False\.$"
    with pytest.raises(RefusedError, match=sentence):
        step_of(0.0, *ends.values())


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("step", [0, 2])
def test_observations_that_are_not_finite_name_environment_and_step(value, step):
    def see(t):
        return np.where([[0, 0, 0], [0, 0, t == step]], value, 0.0)

    space = spaces.Box(-np.inf, np.inf, (2, 3), np.float64)
    ways = iter([lambda t: np.zeros((2, 3)), see])
    environment = make(lambda: Scripted(space=space, see=next(ways)), num_envs=2)
    sentence = rf"observation\[1, 2\] of environment 1 at step {step} is {value}; it must be finite"
    with pytest.raises(ValueError, match=sentence):
        played(environment, step)


# Making, seeds, drawing and closing


@pytest.mark.parametrize(
    ("kind", "name", "space_of"),
    [
        (Scripted, "space", lambda size: spaces.Box(0, 1, (size,))),
        (ScriptedToo, "spec", lambda size: specs.BoundedArray((size,), np.float32, 0, 1)),
    ],
)
@pytest.mark.parametrize(("argument", "what"), [("space", "observation"), ("actions", "action")])
def test_environments_that_differ_or_are_one_are_refused(kind, name, space_of, argument, what):
    made = iter([kind(**{argument: space_of(size)}) for size in (1, 2)])
    with pytest.raises(ValueError, match=rf"{what}_{name} of environment 1 is .*but of environm"):
        make(lambda: next(made), num_envs=2)
    same = kind()
    with pytest.raises(ValueError, match="two calls returned the same one"):
        make(lambda: same, num_envs=2)


def test_each_environment_is_seeded_once_so_that_episodes_differ():
    environment = scripted((0.0, True, False), num_envs=2)
    played(environment, 2)
    environment.reset()
    (one, *later), (two, *others) = (inner.seeds for inner in environment._environments)
    assert later == others == [None, None]
    assert 0 <= one != two >= 0


def test_rendering_without_its_render_mode_says_what_to_do():
    with pytest.raises(ValueError, match=r"use make\(..., render=True\).*\(it is None\)"):
        make("CartPole-v1").render()
    with pytest.raises(ValueError, match=r"drawn: .*ScriptedToo.* has no attribute 'render'"):
        make(ScriptedToo).render()


def test_rendering_without_a_library_says_what_to_install(monkeypatch):
    environment = make("CartPole-v1", render=True)
    for name, error, sentence in (
        ("pygame", ImportError, r'pip install "retrax\[video\]"'),
        ("moviepy", RefusedError, "install moviepy"),
    ):
        missing = gymnasium.error.DependencyNotInstalled(f"{name}: install {name}")
        monkeypatch.setattr(gymnasium.Wrapper, "render", Mock(side_effect=missing))
        with pytest.raises(error, match=sentence):
            environment.render()
