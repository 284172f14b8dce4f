import sys
from collections import OrderedDict

import dm_env
import gymnasium
import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from retrax.datatypes import DEFAULT_LIMIT
from retrax.environments import check_environment, gymnasium_adapter, make
from retrax.environments.arrival import integer_seeds
from retrax.environments.failures import RefusedError
from retrax.environments.gymnasium_adapter import GymnasiumVector

FIRST, MID, LAST = (int(kind) for kind in dm_env.StepType)
TWO = spaces.Discrete(2)


class Scripted(gymnasium.Env):
    """Plays a script: at step t of an episode (reward, terminated, truncated), whatever is done.

    Observations are given by `see(t)`; what it was asked to do is kept in `asked`.
    """

    def __init__(self, script, space=None, see=None, actions=TWO):
        self.observation_space = space or spaces.Box(-np.inf, np.inf, (1,), np.float64)
        self.action_space = actions
        self._script, self._see = script, see or (lambda t: np.array([float(t)]))
        self.asked, self.seeds, self.closed = [], [], 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.t = 0
        return self._see(0), {}

    def step(self, action):
        self.asked.append(action)
        reward, terminated, truncated = self._script[self.t]
        self.t += 1
        return self._see(self.t), reward, terminated, truncated, {"some": "info"}

    def close(self):
        self.closed += 1


def scripted(*script, num_envs=1, seed=0, **kwargs):
    return GymnasiumVector(lambda: Scripted(script, **kwargs), num_envs=num_envs, seed=seed)


def play(environment, steps):
    """The time steps that follow a reset, the first one included."""
    actions = np.zeros((environment.num_envs, *environment.spec.actions.shape), np.int32)
    return [environment.reset()] + [environment.step(actions) for _ in range(steps)]


@pytest.mark.parametrize(
    ("terminated", "truncated", "discount"), [(True, False, 0), (False, True, 1), (True, True, 0)]
)
def test_only_a_termination_has_discount_zero(terminated, truncated, discount):
    environment = scripted((1.0, False, False), (2.0, terminated, truncated))
    steps = play(environment, 4)
    assert [int(s.step_type[0]) for s in steps] == [FIRST, MID, LAST, FIRST, MID]
    assert [float(s.reward[0]) for s in steps] == [0, 1, 2, 0, 1]
    assert [float(s.discount[0]) for s in steps] == [1, 1, discount, 1, 1]
    # The last observation is the last one of the episode, not the first of the next.
    assert [float(s.observation[0, 0]) for s in steps] == [0, 1, 2, 0, 1]


def test_cartpole_is_truncated_after_500_steps():
    def balanced(observation):
        # A linear policy that never drops the pole: it leans against position, speed and angle.
        return (observation @ np.array([0.1, 0.5, 3.0, 1.0]) > 0).astype(np.int32)

    environment = GymnasiumVector(lambda: gymnasium.make("CartPole-v1"), num_envs=2, seed=0)
    timestep = environment.reset()
    for _ in range(499):
        timestep = environment.step(balanced(timestep.observation))
        assert (timestep.step_type == MID).all()
    timestep = environment.step(balanced(timestep.observation))
    assert (timestep.step_type == LAST).all()
    assert (timestep.discount == 1).all()
    assert (timestep.reward == 1).all()
    assert (environment.step(np.zeros(2, int)).step_type == FIRST).all()


def test_an_episode_without_an_end_is_cut_off(monkeypatch):
    endless = [(1.0, False, False)] * 9
    limited = GymnasiumVector(lambda: Scripted(endless), num_envs=2, max_episode_steps=3)
    assert limited.spec.max_episode_steps == 3
    steps = play(limited, 8)
    assert [int(s.step_type[1]) for s in steps] == [FIRST, MID, MID, LAST] * 2 + [FIRST]
    assert all(s.discount.min() == 1 for s in steps)
    monkeypatch.setattr(gymnasium_adapter, "DEFAULT_LIMIT", 2)
    assert [int(s.step_type[0]) for s in play(scripted(*endless), 5)] == [FIRST, MID, LAST] * 2
    with pytest.raises(
        ValueError, match="max_episode_steps must be an integer of at least 1, got 0"
    ):
        GymnasiumVector(lambda: Scripted(endless), max_episode_steps=0)


def test_a_registered_limit_stays():
    assert make("CartPole-v1").spec.max_episode_steps == 500
    assert make("CartPole-v1,max_episode_steps=20").spec.max_episode_steps == 20
    assert make("CliffWalking-v1").spec.max_episode_steps == DEFAULT_LIMIT


def test_it_equals_gymnasium_stepped_by_hand():
    environment = GymnasiumVector(lambda: gymnasium.make("Acrobot-v1"), num_envs=2, seed=3)
    first = environment.reset().observation
    by_hand = gymnasium.make("Acrobot-v1")
    by_hand.reset(seed=0)
    for e in range(2):
        inner = environment._environments[e].unwrapped
        by_hand.unwrapped.state = inner.state.copy()
        np.testing.assert_allclose(first[e], by_hand.unwrapped._get_ob(), atol=1e-6)
    for action in (0, 2, 1, 2):
        timestep = environment.step(np.array([0, action]))
        observation, reward, *_ = by_hand.step(action)
        np.testing.assert_allclose(timestep.observation[1], observation, atol=1e-6)
        assert timestep.reward[1] == reward


@settings(max_examples=30, deadline=None)
@given(
    ends=st.lists(
        st.tuples(st.integers(1, 6), st.booleans(), st.booleans()), min_size=1, max_size=4
    )
)
def test_the_arrival_form_holds_for_any_lengths(ends):
    """E environments with episodes of their own lengths, each against a loop over one episode."""
    scripts = []
    for length, terminated, truncated in ends:
        end = (float(length), terminated or not truncated, truncated)
        scripts.append([(float(t), False, False) for t in range(1, length)] + [end])
    queue = iter(scripts)
    environment = GymnasiumVector(lambda: Scripted(next(queue)), num_envs=len(ends), seed=0)
    steps = play(environment, 14)
    for e, script in enumerate(scripts):
        episode = [(FIRST, 0.0, 1.0, 0.0)]
        for t, (reward, terminated, truncated) in enumerate(script, start=1):
            kind = LAST if terminated or truncated else MID
            episode.append((kind, reward, 0.0 if terminated else 1.0, float(t)))
        expected = (episode * 15)[:15]
        found = [
            tuple(
                float(x) for x in (s.step_type[e], s.reward[e], s.discount[e], s.observation[e, 0])
            )
            for s in steps
        ]
        assert found == expected


BOX = spaces.Box(0, 255, (4, 5, 3), np.uint8)
GRAY = spaces.Box(0, 255, (4, 5), np.uint8)
# An OrderedDict keeps its own order in Gymnasium; a plain dict would be sorted there already.
NINE = np.float32(9) / np.float32(255)
BITS = spaces.Box(0, 1, (4, 4), bool)
DICT = spaces.Dict(
    OrderedDict(
        {
            "goal": spaces.Box(-1, 1, (2,), np.float64),
            "arm": spaces.Box(-1, 1, (2, 2), np.float32),
            "time": spaces.Box(0, 9, (), np.float32),
        }
    )
)


@pytest.mark.parametrize(
    ("space", "raw", "seen"),
    [
        (BOX, np.arange(60, dtype=np.uint8).reshape(4, 5, 3), np.arange(60).reshape(4, 5, 3)),
        (GRAY, np.arange(20, dtype=np.uint8).reshape(4, 5), np.arange(20).reshape(4, 5, 1)),
        (spaces.Discrete(4), 2, [0, 0, 1, 0]),
        (spaces.Discrete(3, start=-1), -1, [1, 0, 0]),
        (spaces.Box(-1, 1, (2, 2), np.float64), np.eye(2), np.eye(2)),
        (spaces.Box(-1, 1, (), np.float32), 0.5, [0.5]),
        (BITS, np.eye(4, dtype=bool), np.eye(4)[..., None] * 255),
        (spaces.Box(0, 1, (2, 2, 3), bool), np.ones((2, 2, 3), bool), np.full((2, 2, 3), 255)),
        (spaces.Box(0, 255, (3,), np.uint8), np.array([0, 255, 9], np.uint8), [0, 1, NINE]),
        (spaces.Box(-2, 6, (2,), np.int64), np.array([-2, 4]), [0, 0.75]),
        (spaces.MultiBinary(3), np.array([1, 0, 1], np.int8), [1, 0, 1]),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 2]), [0, 1, 0, 0, 1]),
        (spaces.Tuple((TWO, spaces.Box(-9, 9, (1,)))), (1, [7.0]), [0, 1, 7]),
        (
            spaces.Dict({"camera": BITS, "speed": spaces.Box(-9, 9, (2,), np.float64)}),
            {"camera": np.eye(4, dtype=bool), "speed": [3.0, 4.0]},
            [*np.eye(4).ravel(), 3, 4],
        ),
        # In the order of the space: goal, arm, time.
        (DICT, {"goal": [5, 6], "time": 7, "arm": [[1, 2], [3, 4]]}, [5, 6, 1, 2, 3, 4, 7]),
    ],
)
def test_observations_take_the_promised_form(space, raw, seen):
    environment = scripted((0.0, False, False), num_envs=2, space=space, see=lambda t: raw)
    spec, observation = environment.spec.observations, environment.reset().observation
    np.testing.assert_array_equal(observation, [seen, seen])
    assert spec.shape == np.shape(seen)
    image = isinstance(space, spaces.Box) and np.ndim(seen) == 3
    assert observation.dtype == spec.dtype == (np.uint8 if image else np.float32)


SEEN = r"observation space .* is not supported: it must be a B"
TAKEN = r"action space .* is not supported: it must be Discrete"


@pytest.mark.parametrize(
    ("kind", "space", "message"),
    [
        ("space", spaces.Box(0, np.iinfo(np.int64).max, (3,), np.int64), SEEN),
        ("space", spaces.Box(np.iinfo(np.int32).min, 0, (3,), np.int32), SEEN),
        ("space", spaces.Text(3), SEEN),
        ("space", spaces.Tuple((TWO, spaces.Sequence(TWO))), SEEN),
        (
            "space",
            spaces.Dict({"camera": spaces.Box(0, 255, (84, 84, 3), np.uint8), "n": TWO}),
            "has 21170 numbers, at most 4096 can be flattened",
        ),
        ("actions", spaces.Box(-np.inf, np.inf, (2,), np.float32), TAKEN),
        ("actions", spaces.Box(0, np.inf, (2,), np.float32), TAKEN),
        ("actions", spaces.Box(-1e300, 1e300, (2,), np.float64), TAKEN),  # infinite as float32
        ("actions", spaces.Box(0, 3, (2,), np.int32), TAKEN),
        ("actions", spaces.Tuple((TWO, TWO)), TAKEN),
        ("actions", spaces.MultiBinary(13), "has 8192 combinations; at most 4096"),
        ("actions", spaces.MultiDiscrete([99, 99]), "has 9801 combinations; at most 4096"),
    ],
)
def test_other_spaces_are_refused(kind, space, message):
    with pytest.raises(ValueError, match=message):
        scripted(**{kind: space})


def test_discrete_actions_start_where_the_space_starts():
    environment = scripted(*[(0.0, False, False)] * 3, actions=spaces.Discrete(3, start=5))
    environment.reset()
    for action in range(3):
        environment.step(np.array([action]))
    assert environment._environments[0].asked == [5, 6, 7]
    assert environment.spec.actions.num_values == 3
    assert environment.spec.actions.dtype == np.int32


@pytest.mark.parametrize(
    ("space", "asked"),
    [
        (
            spaces.MultiDiscrete([2, 3], start=[1, 0]),
            [[1, 0], [1, 1], [1, 2], [2, 0], [2, 1], [2, 2]],
        ),
        (spaces.MultiBinary(2), [[0, 0], [0, 1], [1, 0], [1, 1]]),
        (spaces.MultiDiscrete([[2], [2]]), [[[0], [0]], [[0], [1]], [[1], [0]], [[1], [1]]]),
    ],
)
def test_each_combination_of_actions_has_a_number(space, asked):
    environment = scripted(*[(0.0, False, False)] * len(asked), actions=space)
    environment.reset()
    assert environment.spec.actions.num_values == len(asked)
    for action in range(len(asked)):
        environment.step(np.array([action]))
    found = environment._environments[0].asked
    np.testing.assert_array_equal(found, asked)
    assert all(space.contains(each) for each in found)


def test_continuous_actions_are_clipped_to_their_bounds():
    low, high = np.array([-1.0, 0.0]), np.array([1.0, 0.1])
    space = spaces.Box(low, high, dtype=np.float64)
    environment = scripted(*[(0.0, False, False)] * 2, actions=space)
    bounds = environment.spec.actions
    assert isinstance(bounds, specs.BoundedArray)
    assert bounds.dtype == np.float32
    np.testing.assert_allclose([bounds.minimum, bounds.maximum], [low, high], rtol=1e-6)
    environment.reset()
    environment.step(np.array([[-3.0, 0.05]]))
    environment.step(bounds.maximum[None])  # 0.1 as a float32 is above 0.1
    first, second = environment._environments[0].asked
    np.testing.assert_allclose(first, [-1.0, 0.05])
    assert space.contains(first)
    assert space.contains(second)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.zeros((2, 3)), r"actions must be \[2, 1\], got \[2, 3\]"),
        (
            np.array([[0.0], [np.nan]]),
            r"action of environment 1 must be a finite number, got \[nan",
        ),
    ],
)
def test_wrong_continuous_actions_are_refused(actions, message):
    environment = scripted(num_envs=2, actions=spaces.Box(-1, 1, (1,), np.float32))
    environment.reset()
    with pytest.raises(ValueError, match=message):
        environment.step(actions)


@pytest.mark.parametrize("reward", [np.nan, np.inf, -np.inf, 1e39])
def test_rewards_that_are_not_finite_name_environment_and_step(reward):
    scripts = iter([[(0.0, False, False)] * 3, [(0.0, False, False), (reward, False, False)]])
    environment = GymnasiumVector(lambda: Scripted(next(scripts)), num_envs=2, seed=0)
    play(environment, 1)
    with pytest.raises(ValueError, match=r"reward of environment 1 at step 2 is .*must be finite"):
        environment.step(np.zeros(2, int))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("step", [0, 2])
def test_observations_that_are_not_finite_name_environment_and_step(value, step):
    def see(t):
        return np.where([[0, 0, 0], [0, 0, t == step]], value, 0.0)

    space = spaces.Box(-np.inf, np.inf, (2, 3), np.float64)
    ways = iter([lambda t: np.zeros((2, 3)), see])

    def make_one():
        return Scripted([(0.0, False, False)] * 3, space=space, see=next(ways))

    environment = GymnasiumVector(make_one, num_envs=2, seed=0)
    sentence = rf"observation\[1, 2\] of environment 1 at step {step} is {value}; it must be finite"
    with pytest.raises(ValueError, match=sentence):
        play(environment, step)


def test_environments_that_differ_or_are_one_are_refused():
    sizes = iter([1, 2])
    with pytest.raises(
        ValueError, match=r"observation_space of environment 1 is Box.*of environme"
    ):
        GymnasiumVector(
            lambda: Scripted([], space=spaces.Box(0, 1, (next(sizes),), np.float32)), num_envs=2
        )
    counts = iter([2, 3])
    with pytest.raises(ValueError, match=r"action_space of environment 1 is Discrete\(3\)"):
        GymnasiumVector(lambda: Scripted([], actions=spaces.Discrete(next(counts))), num_envs=2)
    one = Scripted([])
    with pytest.raises(ValueError, match="each call must make a new environment"):
        GymnasiumVector(lambda: one, num_envs=2)


def cartpole(num_envs, seed):
    return GymnasiumVector(lambda: gymnasium.make("CartPole-v1"), num_envs=num_envs, seed=seed)


def history(environment, actions):
    return np.stack([environment.reset().observation] + [environment.step(a)[3] for a in actions])


def test_seeds_are_reproducible_and_do_not_depend_on_the_number():
    actions = np.random.default_rng(0).integers(2, size=(100, 3))
    one, two = history(cartpole(3, 1), actions), history(cartpole(3, 1), actions)
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(history(cartpole(2, 1), actions[:, :2]), one[:, :2])
    assert (history(cartpole(3, 2), actions)[0] != one[0]).all()
    assert (one[0, 0] != one[0, 1]).all()


def test_each_environment_is_seeded_once_so_that_episodes_differ():
    environment = scripted((0.0, True, False), num_envs=2)
    play(environment, 2)
    environment.reset()
    seeds = [inner.seeds for inner in environment._environments]
    assert [s[1:] for s in seeds] == [[None, None]] * 2
    assert len({s[0] for s in seeds}) == 2
    assert all(isinstance(s[0], int) and s[0] >= 0 for s in seeds)


def test_reset_in_the_middle_starts_a_new_episode():
    environment = scripted(*[(1.0, False, False)] * 3)
    play(environment, 2)
    timestep = environment.reset()
    assert timestep.step_type[0] == FIRST
    assert timestep.reward[0] == 0
    assert timestep.observation[0, 0] == 0


@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1"])
def test_it_keeps_the_promises_of_the_interface(id):
    environment = GymnasiumVector(lambda: gymnasium.make(id), num_envs=2, seed=0)
    check_environment(environment, steps=250)


def test_rendering():
    environment = GymnasiumVector(
        lambda: gymnasium.make("CartPole-v1", render_mode="rgb_array"), num_envs=2, seed=0
    )
    environment.reset()
    picture = environment.render()
    environment.close()
    assert picture.shape == (400, 600, 3)
    assert picture.dtype == np.uint8
    assert len(np.unique(picture)) > 1


@pytest.mark.parametrize("id", ["HalfCheetah-v5", "Hopper-v5", "InvertedPendulum-v5"])
def test_mujoco_tasks_keep_the_promises_of_the_interface(id):
    pytest.importorskip("mujoco", reason="the mujoco extra is not installed")
    environment = make(id, num_envs=2, seed=0)
    first = environment.reset().observation
    seen, _ = gymnasium.make(id).reset(seed=int(integer_seeds(0, 2)[1]))
    assert seen.dtype == np.float64
    np.testing.assert_array_equal(first[1], seen.astype(np.float32))
    check_environment(environment, steps=60)


def test_mujoco_tasks_draw(opengl_works):
    environment = make("HalfCheetah-v5", render=True)
    environment.reset()
    picture = environment.render()
    assert picture.shape == (480, 480, 3)
    assert len(np.unique(picture)) > 10
    environment.close()


def test_rendering_without_its_render_mode_says_what_to_do():
    with pytest.raises(ValueError, match=r"use make\(..., render=True\).*\(it is None\)"):
        cartpole(1, 0).render()


def test_rendering_without_pygame_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", None)  # makes `import pygame` fail
    environment = GymnasiumVector(
        lambda: gymnasium.make("CartPole-v1", render_mode="rgb_array"), num_envs=1, seed=0
    )
    environment.reset()
    with pytest.raises(ImportError, match=r'pip install "retrax\[video\]"'):
        environment.render()


def test_other_missing_libraries_keep_their_own_message(monkeypatch):
    def render(self):
        raise gymnasium.error.DependencyNotInstalled("install moviepy")

    monkeypatch.setattr(Scripted, "render", render)
    monkeypatch.setattr(Scripted, "render_mode", "rgb_array")
    with pytest.raises(RefusedError, match="install moviepy"):
        scripted().render()


def test_closing_twice_closes_once():
    environment = scripted(num_envs=2)
    inner = environment._environments
    environment.close()
    environment.close()
    assert [e.closed for e in inner] == [1, 1]
