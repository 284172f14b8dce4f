"""ACER: updates against NumPy, errata, acting, presets, torsos, compilation, rejections."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import oracles
import pytest
from dm_env import specs
from linear_agents import (
    ADVANTAGE,
    BOUNDS,
    SIZE,
    SPECS,
    TINY,
    A,
    D,
    acer_network,
    acted,
    as_sample,
    avals,
    decisions,
    ended_samples,
    jitted,
    network,
    random_rows,
    timestep,
)

from retrax import agents
from retrax.agents import acer
from retrax.agents.acer import AGENT, Config, make_agent
from retrax.datatypes import ReplayConfig
from retrax.networks import VectorTorso

DISCRETE, CONTINUOUS = SPECS["discrete"], SPECS["continuous"]
LINEAR = {
    "truncation": 2.0,
    "delta": 0.4,
    "average_decay": 0.9,
    "discount": 0.8,
    "entropy_cost": 0.2,
    "critic_cost": 0.7,
    "max_abs_reward": 1.5,
    "reward_scale": 2.0,
    "num_dueling_samples": 3,
    "sequence_length": 6,
    "frame_stack": 1,
    "replay": ReplayConfig(pace="rounds"),
}
WEIGHTS = np.array([0.5, 2.0, 1.3], np.float32)


def small(kind, **changes):
    make = Config.small if kind == "discrete" else Config.small_continuous
    return make(**{**TINY["acer"], "scale_rewards": False, **changes})


@functools.cache
def linear(kind, **changes):
    """An agent on linear networks, with plain gradient steps of 0.5, and its config."""
    config = Config(**{**LINEAR, **changes})
    agent = make_agent(
        SPECS[kind],
        config,
        network=acer_network(kind),
        advantage=ADVANTAGE,
        optimizer=optax.sgd(0.5),
    )
    return jitted(agent), config


# What the other presets have is in one of these.
VARIANTS = [
    ("continuous", "no_retrace", 0),
    ("continuous", "no_stochastic_dueling", 0),
    ("continuous", "no_stochastic_dueling", 4),
    ("continuous", "trust_a3c", 0),
    ("continuous", "small_continuous", 4),
    ("discrete", "no_retrace", 0),
    ("discrete", "tis", 0),
    ("discrete", "small", 4),
]
DEFAULT = VARIANTS[-1]
DEFAULTS = [VARIANTS[-1], VARIANTS[4]]


@functools.cache
def variant(kind, preset, memory_size):
    """An agent of a preset with small networks; test_reward_scale.py has those that scale."""
    changes = {**TINY["acer"], "scale_rewards": False, "memory_size": memory_size}
    config = dataclasses.replace(acer.PRESETS[preset](), **changes)
    return jitted(make_agent(SPECS[kind], config))


def with_average(agent, seed=0, other=1):
    """A first state whose average policy is another one."""
    average = agent.init(jax.random.key(other)).average_params
    return agent.init(jax.random.key(seed))._replace(average_params=average)


def memories(agent, batch=2):
    """The extra of rows in which a network begins without a memory."""
    extras = {name: agent.sequence.extras[name] for name in agent.sequence.first_row_extras}
    return jax.tree.map(lambda x: np.zeros((batch, *x.shape), x.dtype), extras)


def double(tree):
    return jax.tree.map(lambda x: np.asarray(x, np.float64), tree)


def noise_of(key, batch, length, samples):
    """The normal numbers that an update draws from the learner's key."""
    keys = jax.random.split(jax.random.split(key)[1], batch)
    rows = jax.vmap(lambda key: jax.random.split(key, length))(keys)
    draw = jax.vmap(jax.vmap(lambda key: jax.random.normal(key, (1 + samples, SIZE))))
    return np.asarray(draw(rows), np.float64)


def numpy_update(kind, learner, rows, weights, config):
    """New parameters, in the agent's own tree, and priorities."""
    fields = dataclasses.asdict(config)
    average = double(learner.average_params)
    if kind == "discrete":
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
@pytest.mark.parametrize("kind", sorted(SPECS))
def test_one_update_is_the_pseudo_code(kind, trust_region):
    agent, config = linear(kind, **({} if trust_region else {"trust_region": False}))
    learner, rows = with_average(agent, 0, 10), random_rows(kind, 0, 3, 6)
    assert rows["is_last"].any()
    new, update = agents.update(agent)(learner, as_sample(rows, WEIGHTS))
    params, priorities = numpy_update(kind, learner, rows, WEIGHTS, config)
    chex.assert_trees_all_close(new.params, params, rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(update.priorities, priorities, rtol=1e-4, atol=1e-5)
    if trust_region:
        assert 0.05 < float(update.metrics["constrained"]) < 1
    assert new.num_updates == 1


@pytest.mark.parametrize("kind", sorted(SPECS))
def test_gradients_are_the_pseudo_codes_and_apply_takes_no_sample(kind):
    agent, config = linear(kind)
    learner, rows = with_average(agent, 0, 10), random_rows(kind, 0, 3, 6)
    gradients, outputs = agent.gradients(learner, as_sample(rows, WEIGHTS))
    expected, _ = numpy_update(kind, learner, rows, WEIGHTS, config)
    loops = jax.tree.map(lambda x, y: (x - y) / 0.5, double(learner.params), expected)
    chex.assert_trees_all_close(gradients, loops, rtol=1e-4, atol=4e-5)
    norm = np.sqrt(sum(np.square(leaf).sum() for leaf in jax.tree.leaves(loops)))
    np.testing.assert_allclose(outputs.metrics["gradient_norm"], norm, rtol=1e-4)
    new = agent.apply(learner, gradients)
    chex.assert_trees_all_close(new.params, expected, rtol=1e-4, atol=2e-5)
    assert (learner.num_updates, new.num_updates) == (0, 1)
    # `gradients` draws from one half of the key, `apply` keeps the other.
    keys = jax.random.key_data(jax.random.split(learner.key))
    np.testing.assert_array_equal(jax.random.key_data(new.key), keys[0])


def test_gradients_of_a_batch_are_the_mean_of_those_of_its_halves():
    """For discrete actions; with continuous ones each batch draws actions of its own."""
    agent, _ = linear("discrete")
    learner = with_average(agent)
    weights = np.linspace(0.5, 2.0, 6).astype(np.float32)
    sample = as_sample(random_rows("discrete", 0, 6, 6), weights)
    whole, first, second = (
        agent.gradients(learner, jax.tree.map(lambda x: x[part], sample))[0]  # noqa: B023
        for part in (slice(6), slice(3), slice(3, 6))
    )
    mean = jax.tree.map(lambda x, y: (x + y) / 2, first, second)
    chex.assert_trees_all_close(whole, mean, rtol=1e-4, atol=1e-6)


def test_erratum_2_the_critic_descends_on_the_action_taken():
    """Segments of one transition, which is truncated: Retrace's return is that of one step."""
    agent, _ = linear("discrete")
    learner, rows = agent.init(jax.random.key(0)), random_rows("discrete", 3, 3, 6, ends=0.0)
    rows["is_last"][:, 1] = True
    mask = np.broadcast_to(np.arange(6) < 2, (3, 6))
    new, _ = agents.update(agent)(learner, as_sample(rows, mask=mask))
    q = np.asarray(learner.params["network"]["q"])
    expected = q.copy()
    for x, a, r in zip(rows["observation"], rows["action"][:, 0], rows["reward"], strict=True):
        pi = jax.nn.softmax(x[1] @ learner.params["network"]["policy"])
        target = 2.0 * np.clip(r[1], -1.5, 1.5) + 0.8 * pi @ (x[1] @ q)
        expected[:, a] += 0.5 * 0.7 * (target - x[0] @ q[:, a]) * x[0] / (3 * 5)
    np.testing.assert_allclose(new.params["network"]["q"], expected, atol=1e-5)


def test_erratum_3_the_policys_constant_is_not_retraces():
    sample, updated = as_sample(random_rows("discrete", 0, 3, 6)), []
    for changes in ({}, {"truncation": 0.1}):
        agent, _ = linear("discrete", **changes)
        updated.append(agents.update(agent)(agent.init(jax.random.key(0)), sample)[0].params)
    first, second = (params["network"] for params in updated)
    np.testing.assert_array_equal(first["q"], second["q"])
    assert np.abs(first["policy"] - second["policy"]).max() > 1e-3


def test_erratum_12_the_entropy_is_inside_of_the_projection():
    """With no advantage at all, an entropy that is too steep is cut down to the trust region."""
    agent, config = linear("discrete", entropy_cost=50.0, delta=0.01)
    learner, rows = with_average(agent), random_rows("discrete", 0, 3, 6, ends=0.0)
    average = jax.tree.map(lambda x: x + 1.0, learner.average_params)
    learner = learner._replace(average_params=average)
    new, update = agents.update(agent)(learner, as_sample(rows))
    params, _ = numpy_update("discrete", learner, rows, np.ones(3), config)
    chex.assert_trees_all_close(new.params, params, rtol=1e-4, atol=1e-3)
    assert update.metrics["constrained"] > 0.1


@pytest.mark.parametrize("kind", sorted(SPECS))
def test_erratum_12b_a_larger_batch_has_the_same_trust_region(kind):
    """Twice the same segments: the mean, and so the step, is the same.

    With continuous actions each segment draws actions of its own, so all advantages are 0 here.
    """
    agent, _ = linear(kind)
    learner, rows = with_average(agent), random_rows(kind, 0, 3, 6)
    if kind == "continuous":
        advantage = jnp.zeros_like(learner.params["advantage"])
        learner = learner._replace(params=learner.params | {"advantage": advantage})
    twice = {name: np.concatenate([value, value]) for name, value in rows.items()}
    (once, outputs), (both, _) = (
        agents.update(agent)(learner, as_sample(each)) for each in (rows, twice)
    )
    assert outputs.metrics["constrained"] > 0.1
    chex.assert_trees_all_close(
        once.params["network"], both.params["network"], rtol=1e-4, atol=1e-6
    )


def test_erratum_13_alpha_is_how_much_of_the_average_is_kept():
    agent, _ = linear("discrete")
    learner = with_average(agent)
    new, _ = agents.update(agent)(learner, as_sample(random_rows("discrete", 0, 3, 6)))
    expected = jax.tree.map(
        lambda average, params: 0.9 * average + 0.1 * params,
        learner.average_params,
        new.params["network"],
    )
    chex.assert_trees_all_close(new.average_params, expected, rtol=1e-5, atol=1e-6)


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


@pytest.mark.parametrize("each", DEFAULTS, ids=str)
def test_erratum_15_what_was_just_drawn_has_ratio_one(each):
    """explore and update agree on the policy, so on-policy data needs no other update."""
    agent = variant(*each)
    learner = agent.init(jax.random.key(0))
    _, update = agent.gradients(learner, acted(agent, learner, 2, 8))
    assert update.metrics["truncated"] == 0
    for name in ("importance_ratio", "mean_ratio", "effective_sample_share"):
        np.testing.assert_allclose(update.metrics[name], 1.0, rtol=1e-5)


def test_erratum_17_the_root_is_the_dimension_of_the_actions():
    assert acer.gaussian.gaussian(
        BOUNDS, None, truncation=5.0, std=0.3, num_samples=5, dueling=True
    ).root == pytest.approx(1 / SIZE)
    assert acer.categorical.categorical(DISCRETE.actions, truncation=10.0).root == 1.0


@pytest.mark.parametrize("each", VARIANTS, ids=str)
def test_what_is_behind_a_last_row_does_not_matter(each):
    agent = variant(*each)
    learner = with_average(agent)
    samples = ended_samples(each[0], memories(agent))
    results = [agents.update(agent)(learner, sample) for sample in samples]
    first, second = ((learner.params, outputs) for learner, outputs in results)
    chex.assert_trees_all_close(first, second, rtol=1e-5, atol=1e-6)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(first))


@pytest.mark.parametrize("each", [DEFAULT, ("discrete", "tis", 0)], ids=str)
def test_erratum_16_truncation_bootstraps_and_termination_does_not(each):
    agent = variant(*each)
    learner, rows = agent.init(jax.random.key(0)), random_rows("discrete", 0, 2, 8, ends=0.0)
    rows["is_last"][:, 7] = True

    def update_with(discount, last_observation):
        changed = {k: v.copy() for k, v in rows.items()} | memories(agent)
        changed["discount"][:, 7] = discount
        changed["observation"][:, 7] = last_observation
        return agents.update(agent)(learner, as_sample(changed))[0].params

    chex.assert_trees_all_close(update_with(0.0, 1.0), update_with(0.0, -2.0), atol=1e-7)
    one, other = update_with(1.0, 1.0), update_with(1.0, -2.0)
    assert max(jax.tree.leaves(jax.tree.map(lambda x, y: np.abs(x - y).max(), one, other))) > 1e-5


def test_tis_on_policy_is_a3c():
    """Eq. 2: the k-step return less V, and no weight."""
    agent, _ = linear("continuous", entropy_cost=0.0, estimator="tis", trust_region=False)
    learner, rows = agent.init(jax.random.key(0)), random_rows("continuous", 0, 1, 3, ends=0.0)
    weights = double(learner.params["network"])
    x = rows["observation"][0].astype(np.float64)
    rows["mu"][0] = x @ weights["policy"]
    new, _ = agents.update(agent)(learner, as_sample(rows))
    v, r = x @ weights["value"], 2.0 * np.clip(rows["reward"][0], -1.5, 1.5)
    advantages = [r[1] + 0.8 * r[2] + 0.64 * v[2] - v[0], r[2] + 0.8 * v[2] - v[1]]
    scores = (rows["drawn"][0] - rows["mu"][0]) / 0.3**2
    policy = sum(0.25 * np.outer(x[i], scores[i] * advantages[i]) for i in range(2))
    value = sum(0.25 * 0.7 * advantages[i] * x[i] for i in range(2))
    actual = new.params["network"]
    np.testing.assert_allclose(actual["policy"], weights["policy"] + policy, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(actual["value"], weights["value"] + value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shared", [True, False])
def test_e_4_q_has_a_network_of_its_own(shared):
    """No parameter of Q moves the policy or V, and none of theirs moves Q."""
    sizes = {"vector_sizes": (32,), "hidden_size": 32, "advantage_size": 32}
    config = small("continuous", stochastic_dueling=False, shared_network=shared, **sizes)
    network = acer.agent._make_network(CONTINUOUS, config)
    advantage = acer.agent._choose_advantage(CONTINUOUS, config, network, None)
    policy = acer.agent._make_policy(BOUNDS, advantage, config)
    params = jax.jit(make_agent(CONTINUOUS, config).init)(jax.random.key(0)).params
    rows = as_sample(random_rows("continuous", 0, 1, 1, ends=0.0)).rows
    row, true = jax.tree.map(lambda x: x[0, 0], rows), jnp.array(True)

    def outputs(params):
        output, _ = network.step(params["network"], row.observation, true, network.initial_state())
        found = policy.estimates(params["advantage"], jax.random.key(0), output, row, true)
        return {"policy": output.policy, "v": found.v, "q": found.q, "sampled q": found.others[2]}

    leaves = {}
    for name, jacobians in jax.jit(jax.jacrev(outputs))(params).items():
        flat = jax.tree_util.tree_leaves_with_path(jacobians)
        leaves[name] = {jax.tree_util.keystr(path) for path, x in flat if np.abs(x).max() > 0}
    every = {jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(params)}
    assert leaves["q"] == leaves["sampled q"]
    assert leaves["q"] == {name for name in every if "q_stream" in name or "advantage" in name}
    assert leaves["policy"] | leaves["v"] == every - leaves["q"]
    assert leaves["policy"] != leaves["v"]


@pytest.mark.parametrize("log_ratio", [200.0, -200.0])
@pytest.mark.parametrize("preset", ["no_retrace", "no_stochastic_dueling"])
def test_ratios_beyond_single_precision_leave_everything_finite(preset, log_ratio):
    agent = variant("continuous", preset, 0)
    learner, rows = agent.init(jax.random.key(0)), random_rows("continuous", 0, 2, 8)
    # The new policy's mean is near 0, so the ratio of x is exp((|x - mu|^2 - |x|^2) / (2 std^2)).
    distance = np.sqrt(2 * 0.3**2 * abs(log_ratio) / SIZE)
    near, far = np.zeros_like(rows["mu"]), np.full_like(rows["mu"], 2 * distance)
    rows["mu"], rows["drawn"] = (far, near) if log_ratio > 0 else (far, far)
    for _ in range(2):
        learner, update = agents.update(agent)(learner, as_sample(rows))
        assert np.isfinite(update.priorities).all()
        assert not any(np.isnan(value).any() for value in update.metrics.values())
        for leaf in jax.tree.leaves(learner._replace(key=())):
            assert np.isfinite(leaf).all()


@pytest.mark.parametrize("each", VARIANTS, ids=str)
def test_compiles_once_for_every_kind_of_preset(each):
    """States before and after an update are alike, and rows are those that the agent declares."""
    agent = variant(*each)
    learner = agent.init(jax.random.key(0))
    for number in range(3):
        sample = acted(agent, learner, 2, 8)
        new, result = agents.update(agent)(learner, sample)
        assert avals(new) == avals(learner)
        assert np.isfinite(result.priorities).all()
        assert (result.priorities >= 0).all()
        assert new.num_updates == number + 1
        learner = new


@pytest.mark.parametrize("kind", sorted(SPECS))
@pytest.mark.parametrize("preset", sorted(acer.PRESETS))
def test_every_preset_has_an_agent_of_either_kind(kind, preset):
    agent = make_agent(
        SPECS[kind], dataclasses.replace(acer.PRESETS[preset](), scale_rewards=False)
    )
    learner = jax.eval_shape(agent.init, jax.random.key(0))
    assert ("advantage" in learner.params) == (kind == "continuous")


def test_exploration_follows_the_policy_and_records_it():
    agent, _ = linear("discrete")
    params = agent.acting_params(agent.init(jax.random.key(4)))
    actors, decision = decisions(agent, params)
    mu = np.asarray(decision.extras["mu"][0], np.float64)
    counts = np.bincount(decision.action, minlength=A)
    deviation = (counts - 4000 * mu) / np.sqrt(4000 * mu * (1 - mu))
    assert np.abs(deviation).max() < 4
    keys = jax.random.key_data(decision.state.key)
    assert (keys != jax.random.key_data(actors.key)).any(), "keys are never used twice"
    greedy = agent.exploit(params, agent.begin(jax.random.key(0), 0, 1), timestep())
    assert greedy.action == mu.argmax()


@pytest.mark.parametrize("kind", sorted(SPECS))
def test_only_evaluation_acts_with_the_average_policy_if_asked(kind):
    plain, _ = linear(kind)
    averaged, _ = linear(kind, exploit_average=True)
    state = averaged.init(jax.random.key(4))
    state = state._replace(evaluation_params=averaged.init(jax.random.key(5)).evaluation_params)
    ours, actor = averaged.acting_params(state), averaged.begin(jax.random.key(0), 0, 1)
    newest, average = plain.acting_params(state), state.evaluation_params
    for act, params, function in (
        (averaged.explore, newest, plain.explore),
        (averaged.exploit, average, plain.exploit),
    ):
        chex.assert_trees_all_equal(
            act(ours, actor, timestep()), function(params, actor, timestep())
        )
    one, other = (plain.exploit(params, actor, timestep()) for params in (newest, average))
    assert np.any(one.extras["mu"] != other.extras["mu"])


def test_the_average_for_evaluation_is_of_the_updates_alone():
    """The trust region's keeps a share of the first parameters."""
    keep = 0.75
    agent, _ = linear("discrete", exploit_average=True, average_decay=keep)
    state, after = agent.init(jax.random.key(0)), []
    first = double(state.params["network"])
    for scale in (1.0, -2.0, 0.5):
        grads = jax.tree.map(lambda x, scale=scale: scale * jnp.ones_like(x), state.params)
        state = agent.apply(state, grads)
        after.append(double(state.params["network"]))
    weights = keep ** np.arange(len(after))[::-1]
    average = jax.tree.map(lambda *x: np.average(x, axis=0, weights=weights), *after)
    chex.assert_trees_all_close(agent.acting_params(state).average, average, atol=1e-5)
    kept = keep ** len(after)
    trusted = jax.tree.map(lambda x, y: kept * x + (1 - kept) * y, first, average)
    chex.assert_trees_all_close(state.average_params, trusted, atol=1e-5)


def test_gaussian_exploration_has_its_deviation_and_stays_in_bounds():
    agent, _ = linear("continuous", policy_std=0.5)
    params = agent.acting_params(agent.init(jax.random.key(4)))
    _, decision = decisions(agent, params)
    mean = np.asarray(decision.extras["mu"][0])
    drawn = np.asarray(decision.extras["drawn"])
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
    policy = acer.gaussian.gaussian(
        actions, None, truncation=5.0, std=0.3, num_samples=5, dueling=True
    )
    low, high = (np.broadcast_to(x, 2).astype(np.float64) for x in (low, high))
    for x in (-1.5, -1.0, -0.75, 0.0, 0.125, 1.0, 1.5):
        inside = min(max(x, -1.0), 1.0)
        expected = low + (inside + 1) / 2 * (high - low)
        found = policy.greedy(np.full(2, x, np.float32))
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_torso_of_ones_own_takes_the_place_of_the_default_one():
    """One that equals the default torso gives the same update; separate streams have one each."""
    config = small("discrete", memory_size=4)
    torso = lambda: VectorTorso((4,), jax.nn.relu, name="torso")  # noqa: E731
    results = []
    for agent in (variant(*DEFAULT), jitted(make_agent(DISCRETE, config, torso=torso))):
        sample = as_sample(random_rows("discrete", 0, 2, 8) | memories(agent))
        new, outputs = agents.update(agent)(agent.init(jax.random.key(0)), sample)
        results.append((new._replace(key=jax.random.key_data(new.key)), outputs))
    chex.assert_trees_all_equal(*results)
    agent = make_agent(
        CONTINUOUS, small("continuous"), torso=lambda: VectorTorso((7,), name="mine")
    )
    params = jax.eval_shape(agent.init, jax.random.key(0)).params["network"]
    for stream in ("policy", "value"):
        torso = params[f"acer_module/~/{stream}_stream/~/mine/~/linear"]
        assert torso["w"].shape == (D, 7)


def test_a_torso_of_another_shape_is_refused_before_training():
    with pytest.raises(ValueError, match=r"features \[T, D\], got .*shape=\(2, 2, 2\)"):
        make_agent(DISCRETE, small("discrete"), torso=lambda: lambda x: x.reshape(-1, 2, 2))
    mine = network(None, None)
    with pytest.raises(ValueError, match="give one of the two"):
        make_agent(DISCRETE, small("discrete"), network=mine, torso=lambda: VectorTorso((8,)))


def test_the_entry_has_the_agent_and_its_steps():
    assert AGENT.name == "acer"
    assert AGENT.presets is acer.PRESETS
    assert AGENT.default_preset("Pendulum-v1", CONTINUOUS) == "small_continuous"
    assert AGENT.default_steps("Pendulum-v1", "small_continuous") == 100_000
    assert AGENT.default_steps("Acrobot-v1", "small") == 200_000
    assert AGENT.default_steps("ALE/Pong-v5", "paper_atari") == 50_000_000
    mine = AGENT.override("mine", optimizer=optax.sgd(1.0))
    learner = jax.eval_shape(mine.make_agent(DISCRETE, small("discrete")).init, jax.random.key(0))
    assert not jax.tree.leaves(learner.optimizer_state)  # RMSProp would keep mean squares


@pytest.mark.parametrize(
    "actions",
    [
        specs.BoundedArray((2,), np.float32, [-1.0, -np.inf], [1.0, 1.0]),
        specs.BoundedArray((), np.float32, -1.0, 1.0),
        specs.Array((2,), np.float32),
    ],
    ids=["infinite", "scalar", "unbounded"],
)
def test_actions_without_bounds_are_refused(actions):
    with pytest.raises(ValueError, match="with a finite minimum and maximum, to which its Gauss"):
        make_agent(CONTINUOUS._replace(actions=actions), Config())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"delta": 0.0}, "Config.delta must be a number > 0.0, got 0.0"),
        ({"delta": -1.0}, "Config.delta must be a number > 0.0, got -1.0"),
        ({"truncation": 0.0}, "Config.truncation must be a number > 0.0, got 0.0"),
        ({"average_decay": 1.1}, "average_decay must be a number >= 0.0 and <= 1.0, got 1.1"),
        ({"sequence_length": 1}, "sequence_length must be an integer >= 2, got 1"),
        ({"policy_std": 0.0}, "policy_std must be a number > 0.0, got 0.0"),
        ({"estimator": "a2c"}, "estimator must be one of acer, tis, got 'a2c'"),
        ({"returns": "n_step"}, "returns must be one of retrace, importance, got 'n_step'"),
        ({"max_abs_reward": 0.0}, "max_abs_reward must be a number > 0.0, got 0.0"),
        ({"memory_size": -1}, "memory_size must be an integer >= 0, got -1"),
        ({"trust_region": "no"}, "trust_region must be one of True, False, got 'no'"),
        ({"replay": ReplayConfig()}, "ReplayConfig.pace must be rounds for ACER, got 'steady'"),
    ],
)
def test_wrong_configs_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Config(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"replay_ratio": -1.0}, "replay_ratio must be a number >= 0.0, got -1.0"),
        (
            {"replay_ratio": 0.0, "pace": "rounds"},
            "replay_ratio must be > 0 if on_policy is False, got 0.0: nothing",
        ),
        ({"on_policy": True}, "pace must be rounds if on_policy is True, got 'steady'"),
        ({"on_policy": 1.5}, "on_policy must be one of True, False, got 1.5"),
        ({"updates_per_call": 0}, "updates_per_call must be an integer >= 1, got 0"),
        ({"pace": "slow"}, "pace must be one of steady, rounds, got 'slow'"),
    ],
)
def test_wrong_paces_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        ReplayConfig(**changes)


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


def test_ablations_differ_from_the_paper_in_one_field():
    from retrax.run_directory.config_file import differences

    names = ("no_trust_region", "no_retrace", "no_stochastic_dueling", "no_truncation")
    for name in names:
        assert len(differences(Config.paper_mujoco(), acer.PRESETS[name]())) == 1, name
    for name in ("a3c", "tis"):
        trusting = acer.PRESETS[f"trust_{name}"]()
        assert differences(acer.PRESETS[name](), trusting) == ["trust_region: False -> True"]


def test_default_presets():
    image = DISCRETE._replace(observations=specs.Array((84, 84, 1), np.uint8))
    assert acer.default_preset("", image) == "atari"
    assert acer.default_preset("", DISCRETE) == "small"
    assert acer.default_preset("", CONTINUOUS) == "small_continuous"


def test_acting_step_by_step_is_the_learners_unroll_with_memory():
    agent = variant(*DEFAULT)
    whole_network = acer.agent._make_network(DISCRETE, small("discrete", memory_size=4))
    learner = agent.init(jax.random.key(0))
    observations = np.random.default_rng(0).normal(size=(6, D)).astype(np.float32)
    step_types = np.array([0, 1, 2, 0, 1, 1], np.int32)
    actor = agent.begin(jax.random.key(0), 0, 1)
    policies, seen = [], []
    for observation, step_type in zip(observations, step_types, strict=True):
        decision = agent.explore(
            agent.acting_params(learner), actor, timestep(step_type, observation)
        )
        policies.append(decision.extras["mu"])
        seen.append(decision.extras["memory"])
        actor = decision.state
    params, unroll = learner.params["network"], jax.jit(whole_network.unroll)
    is_first = step_types == 0
    whole, _ = unroll(params, observations, is_first, whole_network.initial_state())
    np.testing.assert_allclose(np.stack(policies), whole.policy, atol=1e-6)
    rest, _ = unroll(params, observations[2:], is_first[2:], seen[2])
    np.testing.assert_allclose(rest.policy, whole.policy[2:], atol=1e-6)
    assert jnp.abs(jax.tree.leaves(seen[2])[0]).max() > 0
