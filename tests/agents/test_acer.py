"""ACER: updates against NumPy, errata, ablations and the baseline by hand, optimiser, acting.

test_actor_critics.py has what Reactor's are, too.
"""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from dm_env import specs
from jax.flatten_util import ravel_pytree
from linear_agents import (
    ADVANTAGE,
    BOUNDS,
    KEEP,
    SIZE,
    SPECS,
    D,
    acer_network,
    as_sample,
    decisions,
    double,
    first_state,
    jitted,
    linear_agent,
    random_rows,
    timestep,
    tiny_agent,
)

from retrax import agents
from retrax.agents import acer
from retrax.agents.acer import make_agent
from retrax.agents.acer.policies import gaussian
from retrax.datatypes import SequenceSpec

DISCRETE, CONTINUOUS = SPECS["discrete"], SPECS["continuous"]
WEIGHTS = np.array([0.5, 2.0, 1.3], np.float32)
STD = 0.4
linear = functools.partial(linear_agent, "acer")


def noise_of(key, batch, length, samples):
    """The normal numbers that an update draws from the learner's key."""
    keys = jax.random.split(jax.random.split(key)[1], batch)
    rows = jax.vmap(lambda key: jax.random.split(key, length))(keys)
    draw = jax.vmap(jax.vmap(lambda key: jax.random.normal(key, (1 + samples, SIZE))))
    return np.asarray(draw(rows), np.float64)


def numpy_update(kind, learner, rows, weights, config):
    """New parameters, in the agent's own tree, and priorities."""
    fields = dataclasses.asdict(config) | {"masked": kind == "masked"}
    average = double(learner.average_params)
    if kind != "continuous":
        params = double(learner.params["network"])
        new, priorities = oracles.acer_linear_update(params, average, rows, weights, fields, 0.5)
        return {"network": new}, priorities
    params = double(learner.params["network"])
    params["advantage"] = double(learner.params["advantage"])
    noise = noise_of(learner.key, *rows["reward"].shape, config.num_dueling_samples)
    new, priorities = oracles.acer_linear_gaussian_update(
        params, average, rows, noise, weights, fields, 0.5
    )
    advantage = new.pop("advantage")
    return {"network": new, "advantage": advantage}, priorities


@pytest.mark.parametrize("trust_region", [True, False])
@pytest.mark.parametrize("kind", [*sorted(SPECS), "masked"])
def test_one_update_is_the_pseudo_code(kind, trust_region):
    agent, config = linear(kind, **({} if trust_region else {"trust_region": False}))
    learner, rows = first_state(agent, 0, 10), random_rows(kind, 0, 3, 6)
    assert rows["is_last"].any()
    gradients, update = agent.gradients(learner, as_sample(rows, WEIGHTS))
    new = agent.apply(learner, gradients)
    expected, priorities = numpy_update(kind, learner, rows, WEIGHTS, config)
    chex.assert_trees_all_close(new.params, expected, rtol=1e-4, atol=2e-5)
    loops = jax.tree.map(lambda x, y: (x - y) / 0.5, double(learner.params), expected)
    chex.assert_trees_all_close(gradients, loops, rtol=1e-4, atol=4e-5)
    norm = np.sqrt(sum(np.square(leaf).sum() for leaf in jax.tree.leaves(loops)))
    np.testing.assert_allclose(update.metrics["gradient_norm"], norm, rtol=1e-4)
    np.testing.assert_allclose(update.priorities, priorities, rtol=1e-4, atol=1e-5)
    if trust_region:
        assert 0.05 < float(update.metrics["constrained"]) < 1
    assert (learner.num_updates, new.num_updates) == (0, 1)
    # `gradients` draws from one half of the key, `apply` keeps the other.
    keys = jax.random.key_data(jax.random.split(learner.key))
    np.testing.assert_array_equal(jax.random.key_data(new.key), keys[0])


def test_metrics_tell_how_far_actions_are_from_the_policy():
    agent, _ = linear("discrete")
    learner, rows = agent.init(jax.random.key(0)), random_rows("discrete", 0, 3, 6)
    mask = np.arange(6) < np.array([[6], [4], [6]])
    _, outputs = agent.gradients(learner, as_sample(rows, mask=mask))
    policy = jax.nn.softmax(rows["observation"] @ np.asarray(learner.params["network"]["policy"]))
    taken = rows["action"][:, 1:, None]
    pi_a, mu_a = (
        np.take_along_axis(np.asarray(x)[:, 1:], taken, 2)[..., 0] for x in (policy, rows["mu"])
    )
    wanted = oracles.off_policyness(pi_a, mu_a, (mask & ~rows["is_last"])[:, 1:])
    names = ("mean_ratio", "cut_traces", "effective_sample_share")
    np.testing.assert_allclose([outputs.metrics[name] for name in names], wanted, rtol=1e-4)


@pytest.mark.parametrize("log_ratio", [200.0, -200.0])
@pytest.mark.parametrize("changes", [{"returns": "importance"}, {"stochastic_dueling": False}])
def test_ratios_beyond_single_precision_leave_everything_finite(changes, log_ratio):
    agent, _ = tiny_agent("acer", "paper_mujoco", "continuous", **changes)
    learner, rows = agent.init(jax.random.key(0)), random_rows("continuous", 0, 2, 8)
    # The new policy's mean is near 0, so the ratio of x is exp((|x - mu|^2 - |x|^2) / (2 std^2)).
    distance = np.sqrt(2 * 0.3**2 * abs(log_ratio) / SIZE)
    near, far = np.zeros_like(rows["mu"]), np.full_like(rows["mu"], 2 * distance)
    rows["mu"], rows["drawn"] = (far, near) if log_ratio > 0 else (far, far)
    rows["memory"] = agent.sequence.extras["memory"]  # which is empty
    for _ in range(2):
        learner, update = agents.update(agent)(learner, as_sample(rows))
        assert np.isfinite(update.priorities).all()
        assert not any(np.isnan(value).any() for value in update.metrics.values())
        for leaf in jax.tree.leaves(learner._replace(key=())):
            assert np.isfinite(leaf).all()


# Updates by hand: one continuous segment within an episode, off-policy


class Segment:
    """Numbers of a segment of `length` rows, and of the agent's linear networks on it."""

    def __init__(self, agent, state, length):
        rng = np.random.default_rng(26)
        network = jax.tree.map(lambda x: np.asarray(x, np.float64), state.params["network"])
        self.x = rng.normal(size=(length, D)).astype(np.float32)
        self.mean, self.v = self.x @ network["policy"], self.x @ network["value"]
        mu = (self.mean + 0.2 * rng.normal(size=(length, SIZE))).astype(np.float32)
        self.drawn = (mu + STD * rng.normal(size=(length, SIZE))).astype(np.float32)
        self.clipped = np.clip(self.drawn, -1.0, 1.0)
        advantage = np.asarray(state.params["advantage"])
        self.q = np.einsum("td,de,te->t", self.x, advantage, self.clipped)
        squares = np.square(self.drawn - mu) - np.square(self.drawn - self.mean)
        self.rho = np.exp(squares.sum(-1) / (2 * STD**2))
        self.score = (self.drawn - self.mean) / STD**2
        self.r = rng.uniform(-1.0, 1.0, length).astype(np.float32)
        rows = random_rows("continuous", 0, 1, length, ends=0.0)
        drawn = {"observation": self.x, "reward": self.r, "mu": mu, "drawn": self.drawn}
        self.sample = as_sample(rows | {name: value[None] for name, value in drawn.items()})
        assert np.abs(np.log(self.rho)).min() > 0.02


def test_e_4_importance_returns_and_separate_networks_by_hand():
    """Returns are importance sampling's, for both; V's loss is weighted by the ratio."""
    agent, _ = linear(
        "continuous",
        policy_std=STD,
        reward_scale=1.0,
        returns="importance",
        stochastic_dueling=False,
        trust_region=False,
        truncation=1e9,  # the sampled action has no part in the gradient
        critic_cost=0.7,
    )
    state = agent.init(jax.random.key(0))
    segment = Segment(agent, state, 3)
    x, v, rho, r = segment.x, segment.v, segment.rho, segment.r
    last = r[2] + 0.8 * v[2]
    returns = np.array([r[1] + 0.8 * rho[1] * last, last])
    policy, value, advantage = 0.0, 0.0, 0.0
    for i in (0, 1):
        policy += rho[i] * (returns[i] - v[i]) * np.outer(x[i], segment.score[i])
        value += 0.7 * rho[i] * (returns[i] - v[i]) * x[i]
        advantage += 0.7 * (returns[i] - segment.q[i]) * np.outer(x[i], segment.clipped[i])
    gradients, update = agent.gradients(state, segment.sample)
    expected = {
        "network": {"policy": -policy / 2, "value": -value / 2},
        "advantage": -advantage / 2,
    }
    chex.assert_trees_all_close(gradients, expected, rtol=1e-3, atol=1e-4)
    error = np.abs(returns - segment.q[:2]).mean()
    np.testing.assert_allclose(update.priorities, [error], rtol=1e-4)


def test_e_2_tis_off_policy_by_hand():
    """A step's weight is the truncated product of its ratio and of all later ones."""
    agent, _ = linear(
        "continuous",
        policy_std=STD,
        estimator="tis",
        trust_region=False,
        truncation=1.5,
        critic_cost=0.7,
        reward_scale=0.5,
    )
    state = agent.init(jax.random.key(0))
    segment = Segment(agent, state, 4)
    x, v, rho, r = segment.x, segment.v, segment.rho, 0.5 * segment.r
    policy, value, weights = 0.0, 0.0, []
    return_ = v[3]
    for i in (2, 1, 0):
        return_ = r[i + 1] + 0.8 * return_
        weights.append(min(1.5, np.prod(rho[i:3])))
        policy += weights[-1] * (return_ - v[i]) * np.outer(x[i], segment.score[i])
        value += 0.7 * weights[-1] * (return_ - v[i]) * x[i]
    gradients, _ = agent.gradients(state, segment.sample)
    assert min(weights) < 1.4 < 1.5 == max(weights)
    expected = {"policy": -policy / 3, "value": -value / 3}
    chex.assert_trees_all_close(gradients["network"], expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(gradients["advantage"], 0.0)


# The other parts


@pytest.mark.parametrize(
    ("kind", "preset", "half_life"),
    [("discrete", "paper_atari", None), ("continuous", "paper_mujoco", 4.0)],
)
def test_means_over_a_segment_step_as_a3cs_sums_do(kind, preset, half_life):
    """A3C: gradients summed over k steps, norms up to 40, and 0.1 inside RMSProp's square root.

    A batch replaces 16 updates, in which RMSProp's mean square keeps 0.99^16, rounded, of itself.
    """
    config = dataclasses.replace(acer.PRESETS[preset](), learning_rate_half_life=half_life)
    k = config.sequence_length - 1
    agent = jitted(make_agent(SPECS[kind], config, network=acer_network(kind), advantage=ADVANTAGE))
    state = agent.init(jax.random.key(0))
    flat, unravel = ravel_pytree(state.params)
    expected, nu, norms = np.array(flat, np.float64), 0.0, []
    for number, scale in enumerate((0.01, 3.0, 0.1)):
        mean = scale * np.random.default_rng(0).normal(size=flat.shape)
        total = k * mean
        norms.append(np.linalg.norm(total))
        total *= min(1.0, 40.0 / norms[-1])
        nu = 0.851 * nu + 0.149 * total**2
        rate = config.learning_rate / (1 + number / (half_life or np.inf))
        expected -= rate * total / np.sqrt(nu + 0.1)
        state = agent.apply(state, unravel(jnp.asarray(mean, jnp.float32)))
    assert norms[0] < 20 < 80 < norms[1]
    np.testing.assert_allclose(ravel_pytree(state.params)[0], expected, atol=1e-6)


def test_the_average_policy_follows_by_the_configs_decay():
    agent, _ = linear("continuous", average_decay=0.75, rate=1.0)
    state = agent.init(jax.random.key(0))
    new = agent.apply(state, jax.tree.map(jnp.ones_like, state.params))
    moved = jax.tree.map(lambda x: x - 0.25, state.average_params)
    chex.assert_trees_all_close(new.average_params, moved, atol=1e-6)
    chex.assert_trees_all_equal(agent.acting_params(new), new.params["network"])


def test_each_transition_is_in_one_segment():
    agent, _ = linear("continuous", sequence_length=7, keep=KEEP)
    vector, memory = (jax.ShapeDtypeStruct((size,), jnp.float32) for size in (SIZE, D))
    assert agent.sequence == SequenceSpec(
        length=7,
        period=6,
        crosses_episodes=True,
        extras={"mu": vector, "drawn": vector, "memory": memory},
        first_row_extras=("memory",),
    )


def test_gaussian_exploration_has_its_deviation_and_stays_in_bounds():
    agent, _ = linear("continuous", policy_std=0.5)
    params = agent.acting_params(agent.init(jax.random.key(4)))
    _, decision = decisions(agent, params)
    mean = np.asarray(decision.extras["mu"][0])
    drawn = np.asarray(decision.extras["drawn"])
    np.testing.assert_allclose(mean, np.sum(params["policy"], axis=0), rtol=1e-5)
    np.testing.assert_allclose(drawn.mean(0), mean, atol=4 * 0.5 / np.sqrt(4000))
    np.testing.assert_allclose(drawn.std(0), 0.5, rtol=0.05)
    action = np.asarray(decision.action)
    assert action.dtype == np.float32
    assert (action >= BOUNDS.minimum).all() and (action <= BOUNDS.maximum).all()  # noqa: PT018
    middle, half = np.array([0.0, 2.0]), np.array([1.0, 2.0])
    np.testing.assert_allclose(action, middle + half * np.clip(drawn, -1, 1), atol=1e-5)
    greedy = agent.exploit(params, agent.begin(jax.random.key(0), 0, 1), timestep())
    np.testing.assert_allclose(greedy.action, middle + half * np.clip(mean, -1, 1), atol=1e-5)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ([-2.0, 0.0], [2.0, 0.5]),
        (np.finfo(np.float32).min, np.finfo(np.float32).max),
        ([-3e38, -1.0], [2e38, 1.0]),
        (0.0, 3e38),
    ],
)
def test_scaled_actions_have_their_place_between_the_bounds_however_large_these_are(low, high):
    actions = specs.BoundedArray((2,), np.float32, low, high)
    policy = gaussian(actions, None, acer.Config())
    low, high = (np.broadcast_to(x, 2).astype(np.float64) for x in (low, high))
    for x in (-1.5, -1.0, -0.75, 0.0, 0.125, 1.0, 1.5):
        inside = min(max(x, -1.0), 1.0)
        expected = low + (inside + 1) / 2 * (high - low)
        found = policy.greedy(np.full(2, x, np.float32))
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("preset", "decay"), [("paper_atari", 0.99), ("paper_workers", 0.99), ("paper_mujoco", 0.995)]
)
def test_averages_keep_as_much_as_in_the_papers_updates_of_one_segment(preset, decay):
    """What is kept of the first value while 16 segments are learned from, one in each update."""
    config, kept = acer.PRESETS[preset](), {"average": 1.0, "rmsprop": 1.0}
    for _ in range(16 // config.replay.batch_size):
        kept["average"] *= config.average_decay
        kept["rmsprop"] *= config.rmsprop_decay
    papers = {"average": decay, "rmsprop": 0.99}
    for name, value in kept.items():
        np.testing.assert_allclose(value, np.prod(16 * [papers[name]]), atol=5e-4)
