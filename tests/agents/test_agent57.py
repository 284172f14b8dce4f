"""Agent57's learner: one update against NumPy, losses, optimisers, presets."""

import dataclasses
import functools

import chex
import jax
import linear_agents
import numpy as np
import optax
import oracles
import pytest
from linear_agents import (
    MASKED,
    SPECS,
    TINY,
    A,
    D,
    agent57_networks,
    double,
    first_state,
    jitted,
    random_masks,
    random_sample,
    timestep,
)
from linear_agents import agent57_config as tiny

from retrax.agents import agent57, base
from retrax.agents.agent57 import families, make_agent
from retrax.datatypes import DEFAULT_LIMIT

N, T = TINY["agent57"]["num_arms"], TINY["agent57"]["trace_length"]
SPEC = SPECS["discrete"]


def linear_agent(reads_everything=True, spec=SPEC, **changes):
    """An agent on linear networks, with plain gradient steps of 0.1, and its networks."""
    networks, optimizer = agent57_networks(reads_everything), optax.sgd(0.1)
    agent = make_agent(spec, tiny(**changes), networks=networks, optimizer=optimizer)
    return jitted(agent), networks


def sample_of(agent, seed=2, ends=(9, 3, 4, 1), weights=(1, 1, 1, 1)):
    """One episode each, terminated or truncated; every second one begins at row 0. Its arrays."""
    rng, sample = np.random.default_rng(seed), random_sample(agent, SPEC, seed, 4, [*ends])
    sample.rows.observation[:] = rng.normal(size=sample.rows.observation.shape)
    sample.rows.action[:] = rng.integers(A, size=sample.mask.shape)
    sample.rows.extras["arm"][:] = rng.integers(N, size=(4, 1))
    sample.rows.discount[::2] *= ~sample.rows.is_last[::2]
    sample.rows.is_first[1::2, 0] = True
    arrays = (sample.rows._asdict() | sample.rows.extras).items()
    rows = {name: x for name, x in arrays if isinstance(x, np.ndarray)}
    return sample._replace(weights=np.float32(weights)), rows


def flat(tree):
    leaves = [np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(tree)]
    return np.concatenate(leaves)


@pytest.mark.parametrize(
    ("values", "target", "burn_in", "intrinsic_rewards", "spec"),
    [
        ("split", "retrace", 2, "stored", SPEC),
        ("split", "double_q", 0, "recomputed", SPEC),
        ("mixed", "retrace", 0, "recomputed", SPEC),
        ("split", "retrace", 0, "stored", MASKED),
        ("mixed", "double_q", 0, "stored", MASKED),
    ],
)
def test_one_update_is_the_numpy_loop(values, target, burn_in, intrinsic_rewards, spec):
    changes = {
        "values": values,
        "intrinsic_rewards": intrinsic_rewards,
        "target": target,
        "burn_in": burn_in,
        "trace_length": T - burn_in,
        "retrace_lambda": 0.9,
        "n_step": 2,
        "target_epsilon": 0.1,
        "intrinsic_weight": 0.7,
        "discount_high": 0.95,
        "discount_middle": 0.8,
        "discount_low": 0.6,
    }
    (agent, networks), config = linear_agent(spec=spec, **changes), tiny(**changes)
    learner = first_state(agent)
    sample, rows = sample_of(agent, weights=(0.5, 2.0, 1.3, 1.0))
    if spec.masks_actions:
        rng = np.random.default_rng(0)
        legal = random_masks(rng, rows["observation"])
        rows["action"][:] = (legal * rng.uniform(1, 2, legal.shape)).argmax(-1)
    mask = sample.mask
    new, update = base.update(agent)(learner, sample)

    features = [
        rows["observation"],
        np.eye(A)[rows["previous_action"]],
        rows["reward"][..., None],
        rows["intrinsic_reward"][..., None],
        np.eye(N)[rows["arm"]],
    ]
    settings = dataclasses.asdict(config) | {
        "betas": families.intrinsic_weights(N, 0.7),
        "gammas": families.agent57_discounts(N, 0.95, 0.8, 0.6),
        "masked": spec.masks_actions,
    }
    learned = rows["intrinsic_reward"]
    if intrinsic_rewards == "recomputed":
        outputs = [
            double(networks.novelty.apply(params, rows["observation"].reshape(-1, D)))
            for params in (learner.auxiliary_params["predictor"], learner.random_params)
        ]
        learned = oracles.recomputed_rewards(*outputs, rows["episodic_reward"], mask, 5.0)
    params, priorities = oracles.agent57_linear_update(
        double(learner.params),
        double(learner.target_params),
        rows | {"features": np.concatenate(features, axis=-1), "intrinsic_reward": learned},
        mask,
        sample.weights,
        settings,
        0.1,
    )
    chex.assert_trees_all_close(new.params, params, atol=1e-4, rtol=1e-4)
    np.testing.assert_allclose(update.priorities, priorities, atol=1e-4)
    chex.assert_trees_all_equal(new.target_params, learner.target_params)
    assert new.num_updates == 1


def test_metrics_tell_how_far_actions_are_from_the_target_policy():
    changes = {"intrinsic_weight": 0.5, "burn_in": 2, "trace_length": T - 2}
    (agent, _), config = linear_agent(False, **changes), tiny(**changes)
    learner, (sample, rows) = agent.init(jax.random.key(0)), sample_of(agent)
    _, update = agent.gradients(learner, sample)
    weights = families.intrinsic_weights(N, 0.5)[rows["arm"][:, 0]]
    q = {name: rows["observation"] @ np.asarray(x) for name, x in learner.params.items()}
    mixed = q["extrinsic"] + weights[:, None, None] * q["intrinsic"]
    greedy = rows["action"] == mixed.argmax(-1)
    pi_a = config.target_epsilon / A + (1 - config.target_epsilon) * greedy
    acted = (sample.mask & ~rows["is_last"])[:, 1:] & ~rows["is_last"][:, :-1]
    learned = (np.arange(T) >= config.burn_in) | rows["is_first"][:, :1]
    wanted = oracles.off_policyness(pi_a[:, 1:], rows["mu"][:, 1:], acted & learned)
    names = ("mean_ratio", "cut_traces", "effective_sample_share")
    np.testing.assert_allclose([update.metrics[name] for name in names], wanted, rtol=1e-4)


@pytest.mark.parametrize("burn_in", [0, 2])
def test_burn_in_warms_the_memory_up_and_takes_no_gradient(burn_in):
    agent = make_agent(SPEC, tiny(values="extrinsic", burn_in=burn_in, trace_length=T - burn_in))
    learner = jax.jit(agent.init)(jax.random.key(0))
    sample, _ = sample_of(agent)

    def loss(memory):
        extras = {**sample.rows.extras, "memory": memory}
        changed = sample._replace(rows=sample.rows._replace(extras=extras))
        return agent.gradients(learner, changed)[1].metrics["extrinsic_loss"]

    zeros, loss_and_gradients = sample.rows.extras["memory"], jax.jit(jax.value_and_grad(loss))
    value, grads = loss_and_gradients(zeros)
    other, _ = loss_and_gradients(jax.tree.map(lambda x: x + 1.0, zeros))
    assert (np.abs(flat(grads)).max() > 1e-6) == (burn_in == 0)
    assert abs(other - value) > 1e-6


@pytest.mark.parametrize(
    ("changes", "arm", "extrinsic", "intrinsic", "mixed"),
    [
        ({}, 0, 1.0, 4.0, 1.0),
        ({}, N - 1, 1.0, 4.0, 2.2),
        ({"transformed_mix": True}, N - 1, 3.0, 1.0, 3.3),
        ({"transformed_mix": True}, N - 1, -2.0, 4.0, -0.8),
        ({"transformed_mix": True}, N - 1, 50.0, -7.0, 47.9),
        ({"transformed_mix": True, "rescale": False}, N - 1, 7.0, 10.0, 10.0),
    ],
)
def test_values_are_mixed_by_arm(changes, arm, extrinsic, intrinsic, mixed):
    """An evaluator takes another action where its value is larger by a thousandth, and only there.

    With `transformed_mix` values are h of the ones that are mixed.
    """

    def h(x):
        is_transformed = changes == {"transformed_mix": True}
        return oracles.signed_hyperbolic(x, 1e-3) if is_transformed else x

    agent = arm_agent(arm, **changes)
    params = agent.acting_params(agent.init(jax.random.key(0)))
    for difference, action in ((-1e-3, 0), (1e-3, 1)):
        rows = ([h(extrinsic), h(mixed) + difference, -99], [h(intrinsic), 0, 0])
        weights = (np.tile(np.float32(row), (D, 1)) / D for row in rows)
        values = dict(zip(("extrinsic", "intrinsic"), weights, strict=True))
        state = agent.begin(jax.random.key(0), 0, 1)
        assert agent.exploit(params._replace(values=values), state, timestep(0)).action == action


@functools.cache
def arm_agent(arm, **changes):
    """An agent whose evaluators follow one arm greedily; the last one's beta is 0.3."""
    changes |= {"evaluation": "arm", "evaluation_arm": arm, "evaluation_epsilon": 0.0}
    return linear_agent(False, **changes)[0]


@pytest.mark.parametrize(
    ("changes", "recomputes"),
    [
        ({"intrinsic_rewards": "stored"}, False),
        ({"intrinsic_rewards": "recomputed"}, True),
        ({"intrinsic_rewards": "recomputed", "values": "extrinsic"}, False),
    ],
)
def test_sequences_never_cross_episodes_and_rows_are_those_of_appendix_e(changes, recomputes):
    sequence = make_agent(SPEC, tiny(**changes)).sequence
    assert not sequence.crosses_episodes
    assert (sequence.length, sequence.period) == (T + 1, 3)
    assert sequence.first_row_extras == ("memory",)
    names = {"arm", "previous_action", "mu", "epsilon", "memory"}
    names |= {"intrinsic_reward", "intrinsic_return", *["episodic_reward"] * recomputes}
    assert sequence.extras.keys() == names
    assert sequence.extras["mu"].shape == ()


@pytest.mark.parametrize(
    ("longest", "preset"),
    [
        (None, "small"),
        (100, "small"),
        (101, "small_long"),
        (DEFAULT_LIMIT - 1, "small_long"),
        (DEFAULT_LIMIT, "small"),  # the environment has no limit of its own
    ],
)
def test_tasks_with_long_episodes_get_a_larger_replay(longest, preset):
    assert agent57.default_preset("", SPEC._replace(max_episode_steps=longest)) == preset


def terminal_sample(reward, discount=0, arm=0):
    """One transition that ends its episode."""
    floats = {
        "reward": [0, reward],
        "discount": [1, discount],
        "intrinsic_reward": [0, 0],
        "mu": [1, 1],
    }
    integers = {"arm": [arm, arm], "previous_action": [0, 0], "action": [1, 0]}
    rows = {
        **{name: np.array([values], np.float32) for name, values in floats.items()},
        **{name: np.array([values], np.int32) for name, values in integers.items()},
        "is_first": np.array([[True, False]]),
        "is_last": np.array([[False, True]]),
        "observation": np.full((1, 2, D), 1 / D, np.float32),
        "memory": {"extrinsic": ()},
    }
    return linear_agents.as_sample(rows)


def extrinsic_learner(q, **changes):
    """`gradients` of an agent of extrinsic values that are `q` for observations that sum to 1."""
    changes |= {"values": "extrinsic", "trace_length": 1, "replay_period": 1}
    agent, _ = linear_agent(False, **changes)
    learner, params = agent.init(jax.random.key(0)), {"extrinsic": np.tile(np.float32(q), (D, 1))}
    learner = learner._replace(params=params, target_params=params)
    return functools.partial(agent.gradients, learner)


@pytest.mark.parametrize(
    ("discounts", "gammas"),
    [("ngu", {0: 0.9, 2: 0.8, 4: 0.6}), ("agent57", {0: 0.99, 1: 0.9, 4: 0.6})],
)
def test_each_arm_learns_with_its_discount(discounts, gammas):
    """NGU's discounts run from the middle one to the low one: 0.2^2 = 0.1 * 0.4.

    The error of a value of 1 whose successor is as valuable is gamma - 1.
    """
    changes = {"discount_high": 0.99, "discount_middle": 0.9, "discount_low": 0.6}
    gradients = extrinsic_learner([1, 1, 1], discounts=discounts, rescale=False, **changes)
    for arm, gamma in gammas.items():
        _, update = gradients(terminal_sample(0.0, discount=1, arm=arm))
        np.testing.assert_allclose(update.priorities, [1 - gamma], rtol=1e-5)


@pytest.mark.parametrize(
    ("rescale", "target"), [(False, 99.0), (True, np.sqrt(100.0) - 1.0 + 1e-3 * 99.0)]
)
@pytest.mark.parametrize("kind", ["retrace", "double_q"])
def test_target_of_a_terminal_reward_is_rescaled_only_if_asked(rescale, target, kind):
    gradients = extrinsic_learner([5, 2, 3], rescale=rescale, target=kind)
    _, update = gradients(terminal_sample(99.0))
    np.testing.assert_allclose(update.metrics["extrinsic_loss"], (target - 2.0) ** 2, rtol=1e-5)
    np.testing.assert_allclose(update.priorities, [target - 2.0], rtol=1e-5)


def test_auxiliary_losses_are_those_of_the_last_transitions():
    """-log p of the action, and the error on the frame that it leads to; padding does not count.

    Embedding, classifier and predictor take gradients.
    """
    agent, networks = linear_agent(False, auxiliary_frames=2)
    learner, (sample, rows) = agent.init(jax.random.key(0)), sample_of(agent, 3, (9, 3, 1, 0))
    gradients, update = agent.gradients(learner, sample)
    params = learner.auxiliary_params
    assert all(np.abs(flat(gradients[name])).max() > 1e-4 for name in params)
    embed, classify, novel = (
        jax.jit(each.apply) for each in (networks.embedding, networks.classifier, networks.novelty)
    )
    seen, size = rows["observation"].reshape(-1, D), TINY["agent57"]["embedding_size"]
    f = np.asarray(embed(params["embedding"], seen)).reshape(4, T + 1, size)
    pairs = f[:, :-1].reshape(-1, size), f[:, 1:].reshape(-1, size)
    p = np.exp(double(classify(params["classifier"], *pairs))).reshape(4, T, A)
    p = np.take_along_axis(p / p.sum(-1, keepdims=True), rows["action"][:, :-1, None], 2)[..., 0]
    outputs = (double(novel(x, seen)) for x in (params["predictor"], learner.random_params))
    errors = np.square(np.subtract(*outputs)).sum(1).reshape(4, T + 1)[:, 1:]
    ends, after = sample.mask.sum(1)[:, None], np.arange(1, T + 1)
    chosen = (after < ends) & (after >= ends - 2)
    for name, x in (("embedding_loss", -np.log(p)), ("novelty_loss", errors)):
        means = np.where(chosen, x, 0).sum(1) / np.maximum(chosen.sum(1), 1)  # 0 of no transition
        np.testing.assert_allclose(update.metrics[name], means.mean(), rtol=1e-4)


OPTIMIZER = {
    "learning_rate": 0.03,
    "auxiliary_learning_rate": 0.007,
    "embedding_weight_decay": 0.2,
    "adam_b1": 0.6,
    "adam_b2": 0.8,
    "adam_epsilon": 0.05,
    "gradient_clip": 2.0,
}


def parts(networks):
    """What each optimiser trains, as vectors."""
    networks = dict(networks)
    both = networks.pop("embedding"), networks.pop("classifier")
    return {name: flat(part) for name, part in {**networks, "embedding": both}.items()}


def test_optimisers_are_adam_with_the_configs_numbers():
    """Two steps: the first gradients are longer than the clip, the second ones are not."""
    config = tiny(**OPTIMIZER)
    agent = jitted(make_agent(SPEC, config, networks=agent57_networks(False)))
    learner = start = agent.init(jax.random.key(0))
    rng = np.random.default_rng(0)
    gradients = [
        jax.tree.map(
            lambda x: scale * rng.normal(size=x.shape).astype(np.float32),  # noqa: B023
            start.params | start.auxiliary_params,
        )
        for scale in (3.0, 0.02)
    ]
    for step in gradients:
        learner = agent.apply(learner, step)
    chex.assert_trees_all_equal(learner.random_params, start.random_params)
    found = parts(learner.params | learner.auxiliary_params)
    decays = config.adam_b1, config.adam_b2, config.adam_epsilon
    for name, before in parts(start.params | start.auxiliary_params).items():
        steps = [parts(step)[name] for step in gradients]
        assert np.linalg.norm(steps[0]) > 2.0 > np.linalg.norm(steps[1])
        rate, decay = 0.03 if "trinsic" in name else 0.007, 0.2 * (name == "embedding")
        expected = oracles.adam(before, steps, rate, *decays, clip=2.0, decay=decay)
        np.testing.assert_allclose(found[name], expected, atol=1e-6, err_msg=name)
