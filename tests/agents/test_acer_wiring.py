"""ACER: memory, ablations and the baseline by hand, optimiser, sequences, preset values."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from dm_env import StepType
from jax.flatten_util import ravel_pytree
from linear_agents import (
    ADVANTAGE,
    KEEP,
    SIZE,
    SPECS,
    A,
    D,
    acer_network,
    as_sample,
    jitted,
    memories_by_hand,
    random_rows,
    timestep,
)

from retrax.agents import acer
from retrax.agents.acer import Config, make_agent
from retrax.datatypes import ReplayConfig, SequenceSpec

LENGTH, STD = 6, 0.4

PAPER_ATARI = {
    "estimator": "acer",
    "returns": "retrace",
    "trust_region": True,
    "delta": 1.0,
    "average_decay": 0.851,  # 0.99^16
    "exploit_average": False,
    "truncation": 10.0,
    "stochastic_dueling": True,
    "num_dueling_samples": 5,
    "policy_std": 0.3,
    "discount": 0.99,
    "entropy_cost": 0.001,
    "critic_cost": 1.0,
    "scale_rewards": False,
    "max_abs_reward": 1.0,
    "reward_scale": 1.0,
    "learning_rate": 7e-4,
    "rmsprop_decay": 0.851,
    "rmsprop_epsilon": 2.5e-4,
    "max_gradient_norm": 2.0,
    "sequence_length": 21,
    "frame_stack": 4,
    "convolutions": ((32, 8, 4), (64, 4, 2), (64, 3, 1)),
    "vector_sizes": (64,),
    "hidden_size": 512,
    "memory_size": 0,
    "shared_network": True,
    "advantage_size": 64,
}
PAPER_MUJOCO = PAPER_ATARI | {
    "average_decay": 0.923,  # 0.995^16
    "truncation": 5.0,
    "entropy_cost": 0.0,
    "max_abs_reward": 1e9,
    "learning_rate": 2.2e-4,
    "rmsprop_epsilon": 4e-5,
    "max_gradient_norm": 0.8,
    "sequence_length": 51,
    "hidden_size": 64,
    "frame_stack": 1,
}


def make(kind, *, keep=0.0, **changes):
    values = {"sequence_length": LENGTH, "policy_std": STD, "discount": 0.8, "frame_stack": 1}
    optimizer = changes.pop("optimizer", None)
    parts = {"network": acer_network(kind, keep), "advantage": ADVANTAGE, "optimizer": optimizer}
    return jitted(make_agent(SPECS[kind], Config(**{**values, **changes}), **parts))


# Memory


def test_both_policies_remember_from_the_stored_state_and_within_an_episode():
    """The update is that of a network without memory that observes what this one remembers."""
    rows = random_rows("discrete", 0, 2, LENGTH)
    assert rows["is_first"].any()
    starts = np.random.default_rng(1).normal(size=(2, D)).astype(np.float32)
    inputs = zip(rows["observation"], rows["is_first"], starts, strict=True)
    read = np.stack([memories_by_hand(*each) for each in inputs])

    agent, forgetful = make("discrete", delta=0.01, keep=KEEP), make("discrete", delta=0.01)
    state = agent.init(jax.random.key(0))
    state = state._replace(average_params=agent.init(jax.random.key(1)).average_params)
    gradients, update = agent.gradients(state, as_sample(rows | {"memory": starts}))
    expected = forgetful.gradients(state, as_sample(rows | {"observation": read}))
    chex.assert_trees_all_close((gradients, update), expected, atol=1e-5)
    assert update.metrics["constrained"] > 0.2


@pytest.mark.parametrize("function", ["explore", "exploit"])
def test_acting_remembers_within_an_episode(function):
    agent = make("discrete", keep=KEEP)
    params = agent.acting_params(agent.init(jax.random.key(0)))
    observations = np.random.default_rng(0).normal(size=(5, D)).astype(np.float32)
    step_types = [StepType.FIRST, StepType.MID, StepType.LAST, StepType.FIRST, StepType.MID]
    is_first = [step_type == StepType.FIRST for step_type in step_types]
    read = memories_by_hand(observations, is_first, np.zeros(D))
    act = getattr(agent, function)
    actor, before = agent.begin(jax.random.key(1), 0, 1), np.zeros(D)
    for t, step_type in enumerate(step_types):
        decision = act(params, actor, timestep(step_type, observations[t]))
        mu = np.asarray(jax.nn.softmax(read[t] @ params["policy"]))
        np.testing.assert_allclose(decision.extras["mu"], mu, rtol=1e-5)
        np.testing.assert_allclose(decision.extras["memory"], before, rtol=1e-5)
        np.testing.assert_allclose(decision.state.memory, read[t], rtol=1e-5)
        if function == "exploit":
            assert decision.action == mu.argmax()
        actor, before = decision.state, read[t]


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
    agent = make(
        "continuous",
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
    agent = make(
        "continuous",
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


def test_the_default_optimizer_is_rmsprop_of_clipped_gradients():
    rate, decay, epsilon, norm = 0.1, 0.8, 0.5, 2.0
    agent = make(
        "discrete",
        learning_rate=rate,
        rmsprop_decay=decay,
        rmsprop_epsilon=epsilon,
        max_gradient_norm=norm,
    )
    state = agent.init(jax.random.key(0))
    expected = np.asarray(state.params["network"]["policy"], np.float64)
    rng, nu = np.random.default_rng(0), 0.0
    for scale in (0.1, 10.0, 1.0):
        both = {name: scale * rng.normal(size=(D, A)) for name in ("policy", "q")}
        size = np.sqrt(sum(np.square(gradient).sum() for gradient in both.values()))
        clipped = both["policy"] * min(1.0, norm / size)
        nu = decay * nu + (1 - decay) * clipped**2
        expected -= rate * clipped / np.sqrt(nu + epsilon)
        gradients = {"network": jax.tree.map(lambda x: x.astype(np.float32), both)}
        state = agent.apply(state, gradients)
    np.testing.assert_allclose(state.params["network"]["policy"], expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "preset"), [("discrete", "paper_atari"), ("continuous", "paper_mujoco")]
)
def test_means_over_a_segment_step_as_a3cs_sums_do(kind, preset):
    """A3C: gradients summed over k steps, norms up to 40, and 0.1 inside RMSProp's square root.

    A batch replaces 16 updates, in which RMSProp's mean square keeps 0.99^16, rounded, of itself.
    """
    config = acer.PRESETS[preset]()
    k = config.sequence_length - 1
    agent = make_agent(SPECS[kind], config, network=acer_network(kind), advantage=ADVANTAGE)
    agent = jitted(agent)
    state = agent.init(jax.random.key(0))
    flat, unravel = ravel_pytree(state.params)
    expected, nu, norms = np.array(flat, np.float64), 0.0, []
    for scale in (0.01, 3.0, 0.1):
        mean = scale * np.random.default_rng(0).normal(size=flat.shape)
        total = k * mean
        norms.append(np.linalg.norm(total))
        total *= min(1.0, 40.0 / norms[-1])
        nu = 0.851 * nu + 0.149 * total**2
        expected -= config.learning_rate * total / np.sqrt(nu + 0.1)
        state = agent.apply(state, unravel(jnp.asarray(mean, jnp.float32)))
    assert norms[0] < 20
    assert norms[1] > 80
    np.testing.assert_allclose(ravel_pytree(state.params)[0], expected, atol=1e-6)


def test_the_average_policy_follows_by_the_configs_decay():
    agent = make("continuous", average_decay=0.75, optimizer=optax.sgd(1.0))
    state = agent.init(jax.random.key(0))
    new = agent.apply(state, jax.tree.map(jnp.ones_like, state.params))
    moved = jax.tree.map(lambda x: x - 0.25, state.average_params)
    chex.assert_trees_all_close(new.average_params, moved, atol=1e-6)


def test_each_transition_is_in_one_segment():
    agent = make("continuous", sequence_length=7, keep=KEEP)
    vector = jax.ShapeDtypeStruct((SIZE,), jnp.float32)
    memory = jax.ShapeDtypeStruct((D,), jnp.float32)
    assert agent.sequence == SequenceSpec(
        length=7,
        period=6,
        crosses_episodes=True,
        extras={"mu": vector, "drawn": vector, "memory": memory},
        first_row_extras=("memory",),
    )


@pytest.mark.parametrize(
    ("preset", "expected", "replay"),
    [
        (
            Config.paper_atari,
            PAPER_ATARI,
            {"capacity": 50_000, "min_rows": 10_000, "on_policy": True},
        ),
        (
            Config.paper_mujoco,
            PAPER_MUJOCO,
            {"capacity": 5_000, "min_rows": 1_000, "on_policy": False},
        ),
    ],
    ids=["atari", "mujoco"],
)
def test_every_value_of_the_paper_presets(preset, expected, replay):
    values = dataclasses.asdict(preset())
    rounds = {"pace": "rounds", "replay_ratio": 4.0, "batch_size": 16, **replay}
    config = ReplayConfig(**rounds, capacity_per_environment=True)
    assert values.pop("replay") == dataclasses.asdict(config)
    assert values == expected


def test_atari_is_the_papers_preset_with_other_steps():
    values = {name: getattr(Config.atari(), name) for name in PAPER_ATARI}
    assert values == PAPER_ATARI | {
        "average_decay": 0.99,
        "entropy_cost": 0.01,
        "learning_rate": 2.5e-4,
        "rmsprop_decay": 0.99,
        "rmsprop_epsilon": 1e-8,
        "max_gradient_norm": 0.5,
    }
    assert Config.atari().replay == Config.paper_atari().replay


def test_the_baselines_are_those_of_the_paper():
    def fields(preset):
        config = acer.PRESETS[preset]()
        return config.estimator, config.trust_region, config.replay.on_policy

    assert fields("tis") == ("tis", False, False)
    assert fields("trust_tis") == ("tis", True, False)
    assert fields("a3c") == ("tis", False, True)
    assert fields("trust_a3c") == ("tis", True, True)
    assert acer.PRESETS["a3c"]().replay.replay_ratio == 0.0
