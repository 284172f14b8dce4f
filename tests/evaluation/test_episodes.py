"""Episodes of a scripted agent in environments whose episodes have scripted lengths."""

import chex
import dm_env
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs
from node_fakes import acting_agent

from retrax.agents.base import Decision
from retrax.datatypes import EnvironmentSpec
from retrax.evaluation.evaluations import Scores, run_episodes


class ScriptedEnvironment:
    """Episode k of environment e takes `lengths[e][k % len]` steps, each worth `100 e + k + 1`.

    Or as much as `worth` says. The 1000 of a first time step must not count. The observation is
    (e, k, t).
    """

    spec = EnvironmentSpec(specs.Array((3,), np.float32), specs.DiscreteArray(1000))

    def __init__(self, lengths, worth=lambda e, k, t: 100 * e + k + 1):
        self._lengths, self._worth = lengths, worth
        self.num_envs, self.pictures = len(lengths), 0

    def reset(self):
        self.actions = []
        self._episode, self._time = np.zeros((2, self.num_envs), np.int32)
        return self._timestep(self._time == -1)

    def step(self, actions):
        assert (type(actions), actions.shape) == (np.ndarray, (self.num_envs,))
        self.actions.append(actions)
        self._episode += self._ended
        self._time = np.where(self._ended, 0, self._time + 1)
        rows = zip(self._lengths, self._episode, self._time, strict=True)
        return self._timestep(np.array([row[k % len(row)] == t for row, k, t in rows]))

    def render(self):
        self.pictures += 1
        return np.full((2, 2, 3), 10 * self._episode[0] + self._time[0], np.uint8)

    def _timestep(self, ended):
        self._ended, first = ended, self._time == 0
        seen = np.arange(self.num_envs), self._episode, self._time
        reward = np.where(first, 1000.0, self._worth(*seen)).astype(np.float32)
        step_type = np.select([first, ended], [dm_env.StepType.FIRST, dm_env.StepType.LAST], 1)
        discount = np.where(ended, 0.0, 1.0).astype(np.float32)
        return dm_env.TimeStep(step_type, reward, discount, np.stack(seen, 1).astype(np.float32))


def begin(key, actor_id, num_actors):
    chex.assert_shape(actor_id, ())
    assert type(num_actors) is int
    return {"key": key, "count": 100 * actor_id, "num_actors": jnp.int32(num_actors)}


def count_steps(params, state, timestep):
    """The action is the number of calls so far, plus the parameter."""
    chex.assert_rank([timestep.step_type, timestep.reward, timestep.discount], 0)
    chex.assert_shape(timestep.observation, (3,))
    return Decision(state["count"] + params, {}, {**state, "count": state["count"] + 1})


def draw(params, state, timestep):
    key, subkey = jax.random.split(state["key"])
    return Decision(jax.random.randint(subkey, (), 0, 1000), {}, {**state, "key": key})


def run(environment, num_episodes, *, exploit=count_steps, params=0, seed=0, **options):
    agent = acting_agent(exploit)._replace(begin=begin, explore=None)
    options |= {"key": jax.random.key(seed), "num_episodes": num_episodes}
    return run_episodes(agent, jnp.int32(params), environment, **options)


def test_returns_and_lengths_by_hand():
    results = run(ScriptedEnvironment([[2, 3], [4]]), 4)
    # Environment 0: 2 steps worth 1, then 3 worth 2. Environment 1: 4 worth 101, then 4 worth 102.
    np.testing.assert_array_equal(results.returns, [2.0, 6.0, 404.0, 408.0])
    np.testing.assert_array_equal(results.lengths, [2, 3, 4, 4])
    assert (results.returns.dtype, results.lengths.dtype) == (np.float64, np.int64)
    # 2^24, and then 1 at a time: float32 would stay there.
    large = ScriptedEnvironment([[101]], lambda e, k, t: np.where(t == 1, 2**24, 1))
    assert run(large, 1).returns == [2**24 + 100]


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


def test_each_environment_has_an_actor_that_acts_on_every_step():
    """Last steps too, over the ends of episodes; no more steps than needed, and draws nothing."""
    environment = ScriptedEnvironment([[1], [1]])
    results = run(environment, 6, params=7)
    np.testing.assert_array_equal(environment.actions, [[7 + i, 107 + i] for i in range(5)])
    np.testing.assert_array_equal(results.states["num_actors"], [2, 2])
    assert environment.pictures == 0
    with pytest.raises(ValueError, match="num_episodes must be at least 1, got 0"):
        run(environment, 0)


def test_the_key_alone_decides():
    def actions(seed):
        environment = ScriptedEnvironment([[5], [5]])
        run(environment, 2, exploit=draw, seed=seed)
        return np.array(environment.actions).T

    np.testing.assert_array_equal(actions(1), actions(1))
    each = [*actions(1), *actions(2)]  # other keys, other environments: other draws
    assert len(np.unique(each, axis=0)) == 4


def test_compiles_once_in_two_evaluations():
    traced = chex.assert_max_traces(count_steps, n=1)
    for params in (0, 1):
        environment = ScriptedEnvironment([[2, 5], [3, 1]])
        run(environment, 5, exploit=traced, params=params, seed=params)


@pytest.mark.parametrize(
    ("num_episodes", "pictures"),
    [
        (1, [0, 1, 2]),
        (3, [0, 1, 2, 10, 11]),  # environment 0 has two episodes, of 2 steps and of 1
    ],
)
def test_pictures_of_the_first_environment_while_its_share_lasts(num_episodes, pictures):
    environment, seen = ScriptedEnvironment([[2, 1], [20]]), []
    run(environment, num_episodes, on_frame=lambda picture: seen.append(picture[0, 0, 0]))
    assert seen == pictures
    assert environment.pictures == len(pictures)


def test_means_of_episodes_and_of_the_modes_that_occurred():
    modes = {"odd": {"mean_return": 3.5, "episodes": 2}}
    modes["never"] = {"mean_return": np.nan, "episodes": 0}
    scores = Scores(3.0, 1.0, 5.0, 3, steps=7, mean_length=5.0, modes=modes, metrics={})
    assert scores.means() == {"return": 3.0, "length": 5.0, "return_odd": 3.5}
