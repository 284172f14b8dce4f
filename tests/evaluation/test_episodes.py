"""Episodes of a scripted agent in environments whose episodes have scripted lengths."""

import chex
import dm_env
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs

from retrax.agents.base import Agent, Decision
from retrax.datatypes import EnvironmentSpec, SequenceSpec
from retrax.evaluation.episodes import run_episodes
from retrax.evaluation.evaluations import Scores


class ScriptedEnvironment:
    """Episode k of environment e takes `lengths[e][k % len]` steps, each worth `100 e + k + 1`.

    With `rewards_actions` a step is worth the action instead. The observation is (e, k, t).
    """

    def __init__(self, lengths, *, rewards_actions=False, first_reward=0.0):
        self._lengths = lengths
        self._rewards_actions = rewards_actions
        self._first_reward = first_reward
        self._resets = 0
        self.pictures = 0
        self.actions = []

    @property
    def num_envs(self):
        return len(self._lengths)

    @property
    def spec(self):
        return EnvironmentSpec(specs.Array((3,), np.float32), specs.DiscreteArray(1000))

    def reset(self):
        self.actions = []
        self._episode = np.zeros(self.num_envs, np.int32)
        self._time = np.zeros(self.num_envs, np.int32)
        return self._timestep(np.full(self.num_envs, self._first_reward))

    def step(self, actions):
        assert actions.shape == (self.num_envs,)
        assert isinstance(actions, np.ndarray)
        self.actions.append(actions)
        ended = self._time == self._length()
        self._episode += ended
        self._time = np.where(ended, 0, self._time + 1)
        worth = 100 * np.arange(self.num_envs) + self._episode + 1
        worth = actions if self._rewards_actions else worth
        return self._timestep(np.where(ended, self._first_reward, worth))

    def render(self):
        self.pictures += 1
        return np.full((2, 2, 3), 10 * self._episode[0] + self._time[0], np.uint8)

    def close(self):
        pass

    def _length(self):
        rows = zip(self._lengths, self._episode, strict=True)
        return np.array([row[k % len(row)] for row, k in rows])

    def _timestep(self, rewards):
        step_type = np.ones(self.num_envs, np.int32)
        step_type[self._time == 0] = dm_env.StepType.FIRST
        step_type[self._time == self._length()] = dm_env.StepType.LAST
        last = step_type == dm_env.StepType.LAST
        observation = np.stack([np.arange(self.num_envs), self._episode, self._time], axis=1)
        return dm_env.TimeStep(
            step_type=step_type,
            reward=rewards.astype(np.float32),
            discount=np.where(last, 0.0, 1.0).astype(np.float32),
            observation=observation.astype(np.float32),
        )


def make_agent(exploit, begin=None):
    def fail(*_):
        raise AssertionError("evaluation has no business here")

    return Agent(
        init=fail,
        acting_params=fail,
        begin=begin or (lambda key, actor_id, num_actors: {"key": key, "count": jnp.int32(0)}),
        explore=fail,
        exploit=exploit,
        gradients=fail,
        apply=fail,
        sequence=SequenceSpec(length=2),
    )


def count_steps(params, state, timestep):
    """The action is the number of calls so far, plus the parameter."""
    chex.assert_rank([timestep.step_type, timestep.reward, timestep.discount], 0)
    chex.assert_shape(timestep.observation, (3,))
    action = state["count"] + params
    return Decision(action, {}, {**state, "count": state["count"] + 1})


def draw(params, state, timestep):
    key, subkey = jax.random.split(state["key"])
    return Decision(jax.random.randint(subkey, (), 0, 1000), {}, {**state, "key": key})


def run(environment, num_episodes, *, exploit=count_steps, seed=0, **kwargs):
    key = jax.random.PRNGKey(seed)
    agent = make_agent(exploit)
    return run_episodes(
        agent, jnp.int32(0), environment, key=key, num_episodes=num_episodes, **kwargs
    )


def test_returns_and_lengths_by_hand():
    results = run(ScriptedEnvironment([[2, 3], [4]]), 4)
    # Environment 0: 2 steps worth 1, then 3 worth 2. Environment 1: 4 worth 101, then 4 worth 102.
    np.testing.assert_array_equal(results.returns, [2.0, 6.0, 404.0, 408.0])
    np.testing.assert_array_equal(results.lengths, [2, 3, 4, 4])
    assert results.returns.dtype == np.float64
    assert results.lengths.dtype == np.int64


def test_a_second_call_goes_on_from_the_states_of_the_first():
    """Three calls for an episode of two transitions; the second evaluation counts on."""
    first = run(ScriptedEnvironment([[2]]), 1)
    np.testing.assert_array_equal(first.states["count"], [3])
    second = run(ScriptedEnvironment([[2]]), 1, states=first.states)
    np.testing.assert_array_equal(second.states["count"], [6])


@pytest.mark.parametrize(
    ("lengths", "even", "counts"),
    [([2, 1, 3], [True, True, True], [2, 4, 8]), ([2, 2, 1], [True, False, False], [2, 5, 7])],
)
def test_modes_and_metrics_are_those_of_the_last_rows(lengths, even, counts):
    """Calls 0, 1, 2 are the first episode, of two transitions; then come 3 and 4, or 3 to 5.

    Metrics that the agent does not have are left out.
    """

    def exploit(params, state, timestep):
        decision = count_steps(params, state, timestep)
        return decision._replace(extras={"count": state["count"], "even": state["count"] % 2 == 0})

    options = {"modes": ("even",), "metrics": ("absent", "count")}
    results = run(ScriptedEnvironment([lengths]), 3, exploit=exploit, **options)
    assert {name: x.tolist() for name, x in results.modes.items()} == {"even": even}
    assert {name: x.tolist() for name, x in results.metrics.items()} == {"count": counts}
    assert run(ScriptedEnvironment([[2]]), 1).modes == {}


@pytest.mark.parametrize(
    ("environments", "num_episodes", "lengths"),
    [
        ([[1], [50]], 4, [1, 1, 50, 50]),  # the first four to end would all be environment 0's
        ([[3], [7], [2]], 1, [3]),
        ([[3], [7], [2]], 2, [3, 7]),
        ([[3], [7], [2]], 3, [3, 7, 2]),
        ([[3], [7], [2]], 4, [3, 3, 7, 2]),
        ([[3], [7], [2]], 5, [3, 3, 7, 7, 2]),
        ([[3], [7], [2]], 6, [3, 3, 7, 7, 2, 2]),
        ([[1, 2, 3]], 7, [1, 2, 3, 1, 2, 3, 1]),
    ],
)
def test_each_environment_has_its_share_of_the_episodes(environments, num_episodes, lengths):
    environment = ScriptedEnvironment(environments)
    for _ in range(2):  # it may be evaluated again
        np.testing.assert_array_equal(run(environment, num_episodes).lengths, lengths)


def test_acts_on_every_step_and_carries_the_state():
    """Last steps too, over the ends of episodes; no more steps than needed, and draws nothing."""
    environment = ScriptedEnvironment([[1], [1]])
    key = jax.random.PRNGKey(0)
    run_episodes(make_agent(count_steps), jnp.int32(7), environment, key=key, num_episodes=6)
    np.testing.assert_array_equal(environment.actions, [[7 + i, 7 + i] for i in range(5)])
    assert environment.pictures == 0
    with pytest.raises(ValueError, match="num_episodes must be at least 1, got 0"):
        run(environment, 0)


def test_reward_of_a_first_step_does_not_count():
    results = run(ScriptedEnvironment([[2, 2]], first_reward=1000.0), 2)
    np.testing.assert_array_equal(results.returns, [2.0, 4.0])


def test_returns_are_summed_in_float64():
    environment = ScriptedEnvironment([[101]], rewards_actions=True)

    def exploit(params, state, timestep):  # 2^24, and then 1 at a time: float32 would stay there
        action = jnp.where(state["count"] == 0, 2**24, 1)
        return Decision(action, {}, {**state, "count": state["count"] + 1})

    assert run(environment, 1, exploit=exploit).returns == [2**24 + 100]


def test_each_environment_begins_as_an_actor_of_its_own():
    seen = []

    def begin(key, actor_id, num_actors):
        seen.append(num_actors)
        chex.assert_shape(actor_id, ())
        return {"key": key, "count": actor_id * 100}

    environment = ScriptedEnvironment([[2], [2], [2]])
    agent = make_agent(count_steps, begin)
    run_episodes(agent, jnp.int32(0), environment, key=jax.random.PRNGKey(0), num_episodes=3)
    np.testing.assert_array_equal(environment.actions[0], [0, 100, 200])
    assert seen == [3]
    assert type(seen[0]) is int


def test_the_key_alone_decides():
    def returns(seed):
        environment = ScriptedEnvironment([[5], [5]], rewards_actions=True)
        return run(environment, 4, exploit=draw, seed=seed).returns

    np.testing.assert_array_equal(returns(1), returns(1))
    assert len({*returns(1), *returns(2)}) == 8  # other keys, other environments, other draws


def test_compiles_once_in_two_evaluations():
    traced = chex.assert_max_traces(count_steps, n=1)
    for params in (0, 1):
        environment = ScriptedEnvironment([[2, 5], [3, 1]])
        run_episodes(
            make_agent(traced),
            jnp.int32(params),
            environment,
            key=jax.random.PRNGKey(params),
            num_episodes=5,
        )


@pytest.mark.parametrize(
    ("num_episodes", "pictures"),
    [
        (1, [0, 1, 2]),
        (3, [0, 1, 2, 10, 11]),  # environment 0 has two episodes, of 2 steps and of 1
    ],
)
def test_pictures_of_the_first_environment_while_its_share_lasts(num_episodes, pictures):
    environment = ScriptedEnvironment([[2, 1], [20]])
    seen = []
    run(environment, num_episodes, on_frame=lambda picture: seen.append(picture[0, 0, 0]))
    assert seen == pictures
    assert environment.pictures == len(pictures)


def test_means_of_episodes_and_of_the_modes_that_occurred():
    modes = {"odd": {"mean_return": 3.5, "episodes": 2}, "never": {"mean_return": np.nan}}
    modes["never"]["episodes"] = 0
    scores = Scores(3.0, 1.0, 5.0, 3, steps=7, mean_length=5.0, modes=modes, metrics={})
    assert scores.means() == {"return": 3.0, "length": 5.0, "return_odd": 3.5}


def test_what_is_called_before_each_step_may_end_the_episodes():
    environment = ScriptedEnvironment([[2], [5]])

    seen = []

    def stop_before_the_third(timestep):
        seen.append(timestep.step_type.tolist())
        if len(environment.actions) == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        run(environment, 2, before_step=stop_before_the_third)
    assert len(environment.actions) == 2
    assert seen == [[0, 0], [1, 1], [2, 1]]
