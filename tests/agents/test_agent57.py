"""Agent57: one update against NumPy, a scripted episode, the traps of public ones, rejections."""

import dataclasses
import functools
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import oracles
import pytest
from dm_env import StepType, specs
from linear_agents import SPECS, TINY, A, D, agent57_networks, avals, jitted

from retrax.agents import agent57, base
from retrax.agents.agent57 import Config, acting, bandit, loss, make_agent, novelty, policies
from retrax.agents.optimization import gradient_metrics
from retrax.datatypes import DEFAULT_LIMIT, ReplayConfig, Row, Sample, TimeStep
from retrax.networks import R2D2Inputs
from retrax.run_directory.config_file import differences

N, T = TINY["agent57"]["num_arms"], TINY["agent57"]["trace_length"]
SPEC = SPECS["discrete"]


def tiny(**changes):
    return Config.small(**(TINY["agent57"] | changes))


def initial(agent, seed):
    return agent.init(jax.random.key(seed))


def linear_agent(reads_everything=True, **changes):
    """An agent on linear networks, with plain gradient steps of 0.1, and its networks."""
    networks, optimizer = agent57_networks(reads_everything), optax.sgd(0.1)
    agent = make_agent(SPEC, tiny(**changes), networks=networks, optimizer=optimizer)
    return jitted(agent), networks


def random_rows(seed, batch, ends=(), starts=()):
    """Sequences of T + 1 rows; `ends[b]` is the last row of sequence b, padding is behind it."""
    rng = np.random.default_rng(seed)
    shape = (batch, T + 1)
    is_last, is_first = np.zeros(shape, bool), np.zeros(shape, bool)
    mask = np.ones(shape, bool)
    discount = np.ones(shape, np.float32)
    for b, end in enumerate(ends):
        if end is not None:
            is_last[b, end] = True
            mask[b, end + 1 :] = False
            discount[b, end] = b % 2  # some are truncations
    for b in starts:
        is_first[b, 0] = True
    rows = {
        "observation": rng.normal(size=(*shape, D)).astype(np.float32),
        "reward": 2 * rng.normal(size=shape).astype(np.float32),
        "discount": discount,
        "is_first": is_first,
        "is_last": is_last,
        "action": rng.integers(A, size=shape).astype(np.int32),
        "arm": np.repeat(rng.integers(N, size=(batch, 1)), T + 1, axis=1).astype(np.int32),
        "previous_action": rng.integers(A, size=shape).astype(np.int32),
        "intrinsic_reward": rng.random(shape).astype(np.float32),
        "episodic_reward": rng.random(shape).astype(np.float32),
        "mu": rng.uniform(0.2, 1.0, shape).astype(np.float32),
        "intrinsic_return": rng.random(shape).astype(np.float32),
    }
    padding = {
        k: np.where(mask.reshape(*shape, *[1] * (v.ndim - 2)), v, 0) for k, v in rows.items()
    }
    return {k: v.astype(rows[k].dtype) for k, v in padding.items()}, mask


FIELDS = ("observation", "reward", "discount", "is_first", "is_last", "action")


def as_sample(agent, rows, mask, weights=None):
    batch = len(mask)
    extras = {k: v for k, v in rows.items() if k in agent.sequence.extras}
    zeros = functools.partial(jax.tree.map, lambda x: np.zeros((batch, *x.shape), x.dtype))
    extras["memory"] = zeros(agent.sequence.extras["memory"])
    weights = np.ones(batch, np.float32) if weights is None else weights
    return Sample(Row(extras=extras, **{k: rows[k] for k in FIELDS}), weights, mask)


def double(tree):
    return jax.tree.map(lambda x: np.asarray(x, np.float64), tree)


@pytest.mark.parametrize(
    ("values", "target", "burn_in", "intrinsic_rewards"),
    [
        ("split", "retrace", 2, "stored"),
        ("split", "double_q", 0, "recomputed"),
        ("mixed", "retrace", 0, "recomputed"),
    ],
)
def test_one_update_is_the_numpy_loop(values, target, burn_in, intrinsic_rewards):
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
    (agent, networks), config = linear_agent(**changes), tiny(**changes)
    learner = initial(agent, 0)._replace(target_params=initial(agent, 1).params)
    rows, mask = random_rows(2, 4, ends=(None, 3, 4, 1), starts=(1, 3))
    weights = np.array([0.5, 2.0, 1.3, 1.0], np.float32)
    new, update = base.update(agent)(learner, as_sample(agent, rows, mask, weights))

    features = [
        rows["observation"],
        np.eye(A)[rows["previous_action"]],
        rows["reward"][..., None],
        rows["intrinsic_reward"][..., None],
        np.eye(N)[rows["arm"]],
    ]
    arms = policies.make_arms(config)
    settings = dataclasses.asdict(config) | {"betas": arms.weights, "gammas": arms.discounts}
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
        weights,
        settings,
        0.1,
    )
    chex.assert_trees_all_close(new.params, params, atol=1e-4, rtol=1e-4)
    np.testing.assert_allclose(update.priorities, priorities, atol=1e-4)
    chex.assert_trees_all_equal(new.target_params, learner.target_params)
    assert new.num_updates == 1


@functools.cache
def simple_agent():
    """Values of the observation alone; its update, compiled; two different learner states."""
    agent, _ = linear_agent(
        False,
        intrinsic_weight=0.5,
        intrinsic_rewards="stored",
        target_update_period=3,
        auxiliary_frames=5,
        auxiliary_learning_rate=1e-3,
    )
    learner = initial(agent, 0)._replace(target_params=initial(agent, 1).params)
    return agent, base.update(agent), learner


def updated(rows, mask, learner=None):
    agent, update, first = simple_agent()
    return update(learner or first, as_sample(agent, rows, mask))[0]


def differ(x, y):
    return max(jax.tree.leaves(jax.tree.map(lambda a, b: float(np.abs(a - b).max()), x, y))) > 1e-6


def test_metrics_tell_how_far_actions_are_from_the_target_policy():
    changes = {"intrinsic_weight": 0.5, "burn_in": 2, "trace_length": T - 2}
    (agent, _), config = linear_agent(False, **changes), tiny(**changes)
    learner = initial(agent, 0)
    rows, mask = random_rows(2, 4, ends=(None, 3, 4, 1), starts=(1, 3))
    _, update = agent.gradients(learner, as_sample(agent, rows, mask))
    weights = policies.make_arms(config).weights[rows["arm"][:, 0]]
    q = {name: rows["observation"] @ np.asarray(x) for name, x in learner.params.items()}
    mixed = q["extrinsic"] + weights[:, None, None] * q["intrinsic"]
    greedy = rows["action"] == mixed.argmax(-1)
    pi_a = config.target_epsilon / A + (1 - config.target_epsilon) * greedy
    acted = (mask & ~rows["is_last"])[:, 1:] & ~rows["is_last"][:, :-1]
    learned = (np.arange(T) >= config.burn_in) | rows["is_first"][:, :1]
    wanted = oracles.off_policyness(pi_a[:, 1:], rows["mu"][:, 1:], acted & learned)
    names = ("mean_ratio", "cut_traces", "effective_sample_share")
    np.testing.assert_allclose([update.metrics[name] for name in names], wanted, rtol=1e-4)


def test_what_uses_no_ratios_has_no_metrics_of_them():
    agent, _ = linear_agent(False, target="double_q")
    learner = jax.eval_shape(agent.init, jax.random.key(0))
    _, update = jax.eval_shape(agent.gradients, learner, as_sample(agent, *random_rows(0, 2)))
    assert "trace_coefficient" in update.metrics
    assert not {"mean_ratio", "cut_traces", "effective_sample_share"} & set(update.metrics)


def test_each_value_learns_its_own_reward_and_no_mix():
    """A public agent trains both networks on r^e + beta r^i."""
    rows, mask = random_rows(0, 2)
    before = updated(rows, mask)
    for field, learns, keeps in [
        ("reward", "extrinsic", "intrinsic"),
        ("intrinsic_reward", "intrinsic", "extrinsic"),
    ]:
        after = updated(rows | {field: rows[field] + 1.0}, mask)
        assert differ(before.params[learns], after.params[learns])
        chex.assert_trees_all_equal(before.params[keeps], after.params[keeps])


def test_target_policy_is_greedy_in_the_mix_of_the_online_networks():
    """The other network's online values change a network's target; its target values do not.

    Public agents take each head's own policy, or a softmax of the target network's values.
    """
    rows, mask = random_rows(1, 3)
    rows["arm"][:] = N - 1
    _, _, learner = simple_agent()
    before = updated(rows, mask)
    online = learner.params | {"intrinsic": -10 * learner.params["intrinsic"]}
    assert differ(
        before.params["extrinsic"],
        updated(rows, mask, learner._replace(params=online)).params["extrinsic"],
    )
    behind = learner.target_params | {"intrinsic": -10 * learner.target_params["intrinsic"]}
    after = updated(rows, mask, learner._replace(target_params=behind))
    chex.assert_trees_all_equal(before.params["extrinsic"], after.params["extrinsic"])
    rows["arm"][:] = 0  # beta is 0: the policy is the extrinsic value's
    before = updated(rows, mask)
    after = updated(rows, mask, learner._replace(params=online))
    chex.assert_trees_all_equal(before.params["extrinsic"], after.params["extrinsic"])


def test_reward_of_the_last_transition_is_learned_from():
    """Public agents pair rewards[:-1] with discounts[:-1] and never see a terminal reward."""
    rows, mask = random_rows(0, 1, ends=(3,))
    before = updated(rows, mask)
    rows["reward"] = rows["reward"].copy()  # JAX may still read the array
    rows["reward"][0, 3] += 1.0
    assert differ(before.params["extrinsic"], updated(rows, mask).params["extrinsic"])


@functools.cache
def recomputing():
    """The update of an agent that computes intrinsic rewards again, from a learner state."""
    agent, _ = linear_agent()
    learner = initial(agent, 0)._replace(target_params=initial(agent, 1).params)
    update = base.update(agent)
    return lambda rows, mask: update(learner, as_sample(agent, rows, mask))[0]


@pytest.mark.parametrize("intrinsic_rewards", ["stored", "recomputed"])
def test_padding_and_a_last_rows_action_do_not_matter(intrinsic_rewards):
    update = {"stored": updated, "recomputed": recomputing()}[intrinsic_rewards]
    rows, mask = random_rows(0, 2, ends=(3, 3))
    before = update(rows, mask)
    changed = {name: value.copy() for name, value in rows.items()}
    for name in ("observation", "reward", "intrinsic_reward", "episodic_reward"):
        changed[name][:, 4:] = 7.0
    changed["action"][:, 3:] = (changed["action"][:, 3:] + 1) % A
    changed["mu"][:, 3:] = 0.01
    after = update(changed, mask)
    chex.assert_trees_all_close(before, after, rtol=1e-5, atol=1e-6)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after))


def test_recomputed_rewards_are_learned_and_stored_ones_are_read():
    """Values learn from the newest predictor; the network reads the reward of the actor."""
    rows, mask = random_rows(0, 3)
    _, _, learner = simple_agent()
    agent, _ = linear_agent(False)
    update = base.update(agent)

    def learned(rows, learner=learner):
        """New values, of networks that read the observation alone."""
        return update(learner, as_sample(agent, rows, mask))[0].params

    before = learned(rows)
    raised = rows | {"intrinsic_reward": rows["intrinsic_reward"] + 1.0}
    chex.assert_trees_all_equal(before, learned(raised))
    assert differ(recomputing()(rows, mask).params, recomputing()(raised, mask).params)
    known = learner.auxiliary_params | {"predictor": learner.random_params}
    for after in (
        learned(rows | {"episodic_reward": rows["episodic_reward"] + 1.0}),
        learned(rows, learner._replace(auxiliary_params=known)),  # no state is novel
    ):
        assert differ(before["intrinsic"], after["intrinsic"])
        chex.assert_trees_all_equal(before["extrinsic"], after["extrinsic"])


@pytest.mark.parametrize(
    "changes", [{"intrinsic_rewards": "stored"}, {"values": "extrinsic"}], ids=["stored", "r2d2"]
)
def test_episodic_rewards_are_stored_only_where_they_are_learned_from(changes):
    agent = make_agent(SPEC, tiny(**changes))
    learner = jax.eval_shape(agent.init, jax.random.key(0))
    state = agent.begin(jax.random.key(0), 0, 1)
    params = jax.eval_shape(agent.acting_params, learner)
    decision = jax.eval_shape(agent.explore, params, state, script((2,))[0])
    assert "episodic_reward" not in agent.sequence.extras
    assert "episodic_reward" not in decision.extras


def test_embedding_and_predictor_see_the_last_five_frames_alone():
    rows, mask = random_rows(3, 2)  # T + 1 = 7 rows: row 0 is no part of the last 5 transitions
    before = updated(rows, mask)
    early = {**rows, "observation": rows["observation"].copy()}
    early["observation"][:, 0] += 1.0
    after = updated(early, mask)
    chex.assert_trees_all_equal(before.auxiliary_params, after.auxiliary_params)
    late = {**rows, "observation": rows["observation"].copy()}
    late["observation"][:, 2] += 1.0
    after = updated(late, mask)
    for name in ("embedding", "classifier", "predictor"):
        assert differ(before.auxiliary_params[name], after.auxiliary_params[name]), name


def test_random_network_is_never_trained():
    rows, mask = random_rows(3, 2)
    _, _, learner = simple_agent()
    after = updated(rows, mask)
    chex.assert_trees_all_equal(after.random_params, learner.random_params)
    assert differ(after.auxiliary_params["predictor"], learner.auxiliary_params["predictor"])


def test_gradients_of_two_halves_average_to_those_of_the_batch():
    """What a parameter server and several devices rely on; and computing them changes nothing."""
    agent, _, learner = simple_agent()
    gradients = agent.gradients
    rows, mask = random_rows(0, 4, ends=(None, 3, 4, 1))
    whole, update = gradients(learner, as_sample(agent, rows, mask))
    for name, part in whole.values.items():
        for metric, value in gradient_metrics(part, f"{name}_").items():
            np.testing.assert_allclose(update.metrics[metric], value, rtol=1e-5)
    halves = [
        gradients(learner, as_sample(agent, {k: x[part] for k, x in rows.items()}, mask[part]))
        for part in (slice(0, 2), slice(2, 4))
    ]
    mean = jax.tree.map(lambda x, y: (x + y) / 2, halves[0][0], halves[1][0])
    chex.assert_trees_all_close(mean, whole, rtol=1e-4, atol=1e-5)
    priorities = np.concatenate([half.priorities for _, half in halves])
    np.testing.assert_allclose(priorities, update.priorities, rtol=1e-5)
    chex.assert_trees_all_equal_shapes_and_dtypes(whole.values, learner.params)
    chex.assert_trees_all_equal_shapes_and_dtypes(whole.auxiliary, learner.auxiliary_params)


def test_target_networks_are_copied_every_period():
    _, _, learner = simple_agent()
    start, (rows, mask) = learner.target_params, random_rows(0, 2)
    for number in range(1, 5):
        learner = updated(rows, mask, learner)
        if number < 3:
            chex.assert_trees_all_equal(learner.target_params, start)
        if number == 3:
            chex.assert_trees_all_equal(learner.target_params, learner.params)
    assert differ(learner.target_params, learner.params)


def script(lengths, seed=0):
    """Time steps of episodes one after another; rewards 1, 2, 3 ... arrive."""
    rng = np.random.default_rng(seed)
    steps, reward = [], 0.0
    for length in lengths:
        for t in range(length):
            kind = StepType.FIRST if t == 0 else StepType.LAST if t == length - 1 else StepType.MID
            reward += 1.0
            steps.append(
                TimeStep(
                    np.int32(kind),
                    np.float32(0.0 if t == 0 else reward),
                    np.float32(0.0 if kind == StepType.LAST else 1.0),
                    rng.normal(size=D).astype(np.float32),
                )
            )
    return steps


def play(act, params, state, steps):
    """Rows as a loop stores them, and the actor's states behind each step."""
    rows, states = [], []
    for step in steps:
        decision = act(params, state, step)
        state = decision.state
        rows.append((step, decision.action, decision.extras))
        states.append(state)
    return rows, states


@functools.cache
def actor(**changes):
    config = tiny(num_neighbours=1, **changes)
    agent = jitted(make_agent(SPEC, config))
    return config, agent, initial(agent, 0)


def test_scripted_episodes_reach_the_rows_without_an_offset():
    """Row t has what arrived with x_t: r^i(x_t), a_{t-1}; and r^i is 0 on a first row."""
    config, agent, learner = actor(novelty_window=2)
    learner = learner._replace(num_updates=jnp.int32(1))
    params, steps = agent.acting_params(learner), script((5, 4))
    state = agent.begin(jax.random.key(1), 0, 2)
    rows, states = play(agent.explore, params, state, steps)
    networks = agent57.agent._make_networks(SPEC, config, A)
    embed = jax.jit(networks.embedding.apply)
    novel = jax.jit(networks.novelty.apply)
    memory = oracles.EpisodicMemory(
        config.episodic_capacity, 1, config.cluster_distance, config.kernel_epsilon, 1e-3, 8.0
    )
    episodic, errors = [], []
    for step in steps:
        if step.step_type == StepType.FIRST:
            memory.begin()
        x = step.observation[None]
        episodic.append(memory.reward(embed(params.intrinsic.embedding, x)[0]))
        outputs = (novel(p, x) for p in (params.intrinsic.predictor, params.intrinsic.random))
        errors.append(float(np.square(np.subtract(*outputs)).sum()))
    alphas = oracles.lifelong_modulators(errors, config.novelty_window)
    expected = np.array(episodic) * np.clip(alphas, 1, 5)
    actual = [extras["intrinsic_reward"] for _, _, extras in rows]
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-6)
    assert actual[0] == actual[5] == 0
    assert min(actual[1:5]) > 0
    stored = [extras["episodic_reward"] for _, _, extras in rows]
    np.testing.assert_allclose(stored, episodic, rtol=1e-3, atol=1e-6)

    actions = [int(action) for _, action, _ in rows]
    previous = [int(extras["previous_action"]) for _, _, extras in rows]
    assert previous[1:5] == actions[:4]
    assert previous[6:] == actions[5:8]
    intrinsic_returns = [extras["intrinsic_return"] for _, _, extras in rows]
    np.testing.assert_allclose(intrinsic_returns[4], sum(actual[:5]), rtol=1e-5)
    np.testing.assert_allclose(intrinsic_returns[8], sum(actual[5:]), rtol=1e-5)

    # The bandit: arm 0, then arm 1; paid the undiscounted extrinsic return, terminal reward too.
    assert [int(extras["arm"]) for _, _, extras in rows] == [0] * 5 + [1] * 4
    assert [int(s.bandit.num_pulls) for s in states] == [0] * 4 + [1] * 4 + [2]
    np.testing.assert_allclose(states[-1].bandit.returns[:2], [2 + 3 + 4 + 5, 7 + 8 + 9])
    assert not states[-1].evaluator.sampled.num_pulls
    assert not states[-1].evaluator.episodes

    # Before its first update the predictor's errors do not count.
    untrained = params._replace(intrinsic=params.intrinsic._replace(num_updates=jnp.int32(0)))
    rows, _ = play(agent.explore, untrained, state, steps[:5])
    actual = [extras["intrinsic_reward"] for _, _, extras in rows]
    np.testing.assert_allclose(actual, episodic[:5], rtol=1e-3, atol=1e-6)


def test_learner_reads_what_the_actor_read():
    """From the memory stored at row 2, the learner's values make the actor's mu, row by row.

    On the last arm: a public agent has one family of beta and gamma in actors, another in learners.
    """
    config, agent, learner = actor(arm_choice="actor", intrinsic_weight=3.0)
    params = agent.acting_params(learner)
    state = agent.begin(jax.random.key(2), N - 1, N)._replace(epsilon=jnp.float32(0.6))
    rows, _ = play(agent.explore, params, state, script((9,)))
    steps, actions, extras = (
        jax.tree.map(lambda *x: np.stack(x), *part) for part in zip(*rows[2:], strict=True)
    )
    network = agent57.agent._make_networks(SPEC, config, A).value
    inputs = R2D2Inputs(
        steps.observation,
        extras["previous_action"],
        steps.reward,
        extras["intrinsic_reward"],
        extras["arm"],
    )
    unroll = jax.jit(network.unroll)
    values = {
        name: unroll(
            params.values[name],
            inputs,
            steps.step_type == 0,
            jax.tree.map(lambda x: x[0], extras["memory"][name]),
        )[0]
        for name in ("extrinsic", "intrinsic")
    }
    assert (extras["arm"] == N - 1).all()
    weight = policies.make_arms(config).weights[N - 1]
    greedy = np.argmax(policies.combine(config, values, weight), axis=1) == actions
    np.testing.assert_allclose(extras["mu"], np.where(greedy, 0.6, 0.2), rtol=1e-6)
    assert greedy.any()
    assert not greedy.all()


@pytest.mark.parametrize("burn_in", [0, 2])
def test_burn_in_warms_the_memory_up_and_takes_no_gradient(burn_in):
    config = tiny(burn_in=burn_in, trace_length=T - burn_in)
    agent = jitted(make_agent(SPEC, config))
    learner, (rows, mask) = initial(agent, 0), random_rows(0, 2)
    network = agent57.agent._make_networks(SPEC, config, A).value
    value_loss = functools.partial(loss.value_loss, config=config, network=network)
    sample = as_sample(agent, rows, mask)

    def loss_from(memory):
        extras = {**sample.rows.extras, "memory": memory}
        changed = sample._replace(rows=sample.rows._replace(extras=extras))
        return value_loss(
            learner.params, learner.target_params, changed, extras["intrinsic_reward"]
        )[0]

    zeros, loss_and_gradients = sample.rows.extras["memory"], jax.jit(jax.value_and_grad(loss_from))
    value, grads = loss_and_gradients(zeros)
    other, _ = loss_and_gradients(jax.tree.map(lambda x: x + 1.0, zeros))
    assert differ(grads, zeros) == (burn_in == 0)
    assert abs(other - value) > 1e-6


def test_arms_differ_in_what_they_do():
    """The last arm follows Q^e + beta Q^i, arm 0 follows Q^e."""
    config = tiny(intrinsic_weight=2.0)
    values = {
        "extrinsic": np.array([[1.0, 0.0, 0.5]], np.float32),
        "intrinsic": np.array([[0.0, 4.0, 1.0]], np.float32),
    }
    arms = policies.make_arms(config)
    mixed = [policies.combine(config, values, arms.weights[j]) for j in (0, N - 1)]
    np.testing.assert_allclose(mixed, [[[1.0, 0.0, 0.5]], [[1.0, 8.0, 2.5]]])


def test_transformed_mix_is_h_of_the_mix():
    config = tiny(transformed_mix=True)
    raw = np.array([[3.0, -2.0, 50.0]]), np.array([[1.0, 4.0, -7.0]])
    values = {
        name: oracles.signed_hyperbolic(q, 1e-3).astype(np.float32)
        for name, q in zip(("extrinsic", "intrinsic"), raw, strict=True)
    }
    expected = oracles.signed_hyperbolic(raw[0] + 0.3 * raw[1], 1e-3)
    np.testing.assert_allclose(policies.combine(config, values, 0.3), expected, rtol=1e-5)


@pytest.mark.parametrize("refresh", ["episode", "step"])
def test_embedding_is_refreshed_once_an_episode(refresh):
    _, agent, learner = actor(embedding_refresh=refresh)
    old = agent.acting_params(learner)
    new = old._replace(
        intrinsic=old.intrinsic._replace(
            embedding=jax.tree.map(lambda x: 2 * x, old.intrinsic.embedding)
        )
    )
    steps, state = script((4, 4)), agent.begin(jax.random.key(1), 0, 2)
    _, states = play(agent.explore, old, state, steps[:1])
    rows, _ = play(agent.explore, new, states[-1], steps[1:])
    same, _ = play(agent.explore, old, states[-1], steps[1:])
    rewards, kept = (
        np.array([extras["intrinsic_reward"] for _, _, extras in part]) for part in (rows, same)
    )
    equal = np.isclose(rewards[:3], kept[:3], rtol=1e-6)
    assert equal.all() == (refresh == "episode")


pull = jax.jit(bandit.update)


def with_pulls(state, pulls, window):
    for arm, paid in pulls:
        state = pull(state, np.int32(arm), np.float32(paid))
    assert len(state.arms) == window
    return state


@functools.cache
def evaluator():
    """Without intrinsic rewards, which no arm's choice depends on: agent, `exploit`, parameters."""
    config = tiny(values="extrinsic", evaluator_window=20, evaluator_epsilon=0.0, bandit_bonus=0.0)
    agent = jitted(make_agent(SPEC, config))
    return agent, agent.exploit, agent.acting_params(initial(agent, 0))


def evaluated(agent, exploit, params, state, episodes, paid):
    """Plays episodes of one transition; `paid` is each arm's return.

    Returns the state after them, and of each episode the arm and whether the mode was greedy.
    """
    arms, modes = [], []
    for _ in range(episodes):
        observation = np.ones(D, np.float32)
        first = TimeStep(np.int32(0), np.float32(0), np.float32(1), observation)
        decision = exploit(params, state, first)
        arm = int(decision.extras["arm"])
        last = TimeStep(np.int32(2), np.float32(paid[arm]), np.float32(0), observation)
        ended = exploit(params, decision.state, last)
        for extras in (decision.extras, ended.extras):
            assert extras["greedy_arm"] != extras["sampled_arm"]
        arms.append(arm)
        modes.append(bool(ended.extras["greedy_arm"]))
        assert modes[-1] == decision.extras["greedy_arm"]
        state = ended.state
    return state, arms, modes


PAID = (1.0, 3.0, 9.0, 2.0, 0.5)


@pytest.mark.parametrize("number", [0, 3])
def test_evaluators_alternate_between_five_greedy_and_five_sampled_episodes(number):
    """The sampled arms are all, from the evaluator's number on; the best one of them is greedy."""
    assert N == 5
    agent, exploit, params = evaluator()
    state = agent.begin(jax.random.key(0), number, 8)
    state, arms, modes = evaluated(agent, exploit, params, state, 20, PAID)
    greedy = [number % 2 == 0] * 5 + [number % 2 == 1] * 5
    assert modes == greedy * 2
    sampled = [arm for arm, mode in zip(arms, modes, strict=True) if not mode]
    assert sampled[:5] == [(number + k) % N for k in range(N)]
    assert sampled[5:] == [2] * 5, "by upper confidence bound"
    known = [arm for arm, mode in zip(arms, modes, strict=True) if mode]
    assert known == [0] * 5 * (number % 2 == 0) + [2] * 5 * (1 + number % 2)
    assert state.evaluator.episodes == 20
    assert not state.bandit.num_pulls


def test_greedy_episodes_are_no_pulls_of_the_sampled_mode():
    agent, exploit, params = evaluator()
    state = agent.begin(jax.random.key(0), 0, 1)
    state, _, _ = evaluated(agent, exploit, params, state, 9, PAID)
    assert state.evaluator.sampled.num_pulls == 4
    np.testing.assert_array_equal(state.evaluator.sampled.arms[:4], [0, 1, 2, 3])
    np.testing.assert_array_equal(state.evaluator.sampled.returns[:4], PAID[:4])


def test_warm_started_evaluators_keep_the_best_arm_of_all_actors():
    """Means 2, 3, 0: neither failures nor better arms of its own episodes change it."""
    agent, exploit, params = evaluator()
    begin = jax.vmap(agent.begin, in_axes=(0, 0, None))
    actors = begin(jax.random.split(jax.random.key(1)), np.arange(2), 2)
    shares = [[(1, 9.0), (0, 2.0)], [(1, 0.0), (1, 0.0), (4, 0.0)]]
    window = len(actors.bandit.arms[0])
    books = [with_pulls(bandit.init(window), share, window) for share in shares]
    actors = actors._replace(bandit=jax.tree.map(lambda *x: jnp.stack(x), *books))
    fresh = agent.begin(jax.random.key(0), 0, 1)
    state = agent57.AGENT.warm_start(fresh, actors)
    chex.assert_trees_all_equal_shapes_and_dtypes(state, fresh)
    assert state.evaluator.sampled.num_pulls == 0, "its bandit has its own pulls only"
    state, arms, modes = evaluated(agent, exploit, params, state, 15, (1, -5, 9, 2, 3))
    assert [arm for arm, mode in zip(arms, modes, strict=True) if mode] == [1] * 10
    assert arms[5:10] == [0, 1, 2, 3, 4]
    assert state.evaluator.sampled.num_pulls == 5


def test_warm_start_from_actors_without_a_pull():
    agent, _, _ = evaluator()
    actors = jax.vmap(agent.begin, in_axes=(0, 0, None))(
        jax.random.split(jax.random.key(1)), np.arange(2), 2
    )
    state = agent57.AGENT.warm_start(agent.begin(jax.random.key(0), 0, 1), actors)
    assert state.evaluator.greedy_arm == 0


def test_warm_start_batches_over_evaluators():
    agent, _, _ = evaluator()
    begin = jax.vmap(agent.begin, in_axes=(0, 0, None))
    actors = begin(jax.random.split(jax.random.key(1), 3), np.arange(3), 3)
    evaluators = begin(jax.random.split(jax.random.key(2)), np.arange(2), 2)
    states = jax.vmap(acting.warm_start, in_axes=(0, None))(evaluators, actors)
    chex.assert_trees_all_equal_shapes_and_dtypes(states, evaluators)


def test_warm_started_evaluators_have_the_novelty_moments_of_an_actor():
    """Evaluator e has those of actor e modulo E, and its own empty memory."""
    agent = jitted(make_agent(SPEC, tiny()))
    begin = jax.vmap(agent.begin, in_axes=(0, 0, None))
    actors, evaluators = (
        begin(jax.random.split(jax.random.key(seed), number), np.arange(number), number)
        for seed, number in ((1, 2), (2, 3))
    )
    numbers = novelty.Moments(jnp.array([7, 8]), jnp.array([0.5, 2.0]), jnp.array([3.0, 4.0]))
    played = jax.tree.map(lambda x: x + 1, actors.intrinsic.memory)
    actors = actors._replace(intrinsic=actors.intrinsic._replace(moments=numbers, memory=played))
    states = jax.vmap(agent57.AGENT.warm_start, in_axes=(0, None))(evaluators, actors)
    chex.assert_trees_all_equal_shapes_and_dtypes(states, evaluators)
    expected = jax.tree.map(lambda x: x[jnp.array([0, 1, 0])], numbers)
    chex.assert_trees_all_equal(states.intrinsic.moments, expected)
    chex.assert_trees_all_equal(states.intrinsic.memory, evaluators.intrinsic.memory)


@pytest.mark.parametrize(
    ("choice", "arms"), [("zero", [0, 0, 0, 0]), ("actor", [0, 1, 2, 3]), ("uniform", None)]
)
def test_other_choices_of_an_arm(choice, arms):
    """Without intrinsic rewards, which no arm's choice depends on."""
    _, agent, learner = actor(values="extrinsic", arm_choice=choice)
    params, [step] = agent.acting_params(learner), script((1,))
    states = [agent.begin(jax.random.key(number), number, 4) for number in range(4)]
    chosen = [int(agent.explore(params, state, step).extras["arm"]) for state in states]
    assert chosen == arms if arms else len(set(chosen)) > 1


def test_epsilon_differs_by_actor_and_is_the_rate_of_exploration():
    changes = {"actor_epsilon": 0.9, "actor_epsilon_exponent": 2.0}
    _, agent, learner = actor(values="extrinsic", arm_choice="zero", **changes)
    params, [step] = agent.acting_params(learner), script((1,))
    keys = jax.random.split(jax.random.key(0), 2000)
    explore = jax.jit(jax.vmap(agent.explore, in_axes=(None, 0, None)))
    rates = []
    for number in (0, 2):
        state = agent.begin(keys[0], number, 3)
        # One previous action for all, else the greedy action would differ.
        same = jax.tree.map(lambda x: np.broadcast_to(x, (2000, *x.shape)), state._replace(key=()))
        decision = explore(params, same._replace(key=keys), step)
        rates.append(np.mean(decision.extras["mu"] < 1 / A))
    np.testing.assert_allclose(rates, [0.9 * 2 / 3, 0.9**3 * 2 / 3], atol=0.04)


# What the others have is in one of these: see the test of the ladder.
@pytest.mark.parametrize("preset", ["paper", "ngu", "r2d2"])
def test_compiles_once_for_every_kind_of_preset(preset):
    """States before and after are alike, and rows are those that the agent declares."""
    config = dataclasses.replace(agent57.PRESETS[preset](), **TINY["agent57"])
    agent = jitted(make_agent(SPEC, config))
    learner, state = initial(agent, 0), agent.begin(jax.random.key(1), 0, 1)
    for seed in range(3):
        params = agent.acting_params(learner)
        rows, states = play(agent.explore, params, state, script((T + 1,), seed))
        assert avals(states[-1]) == avals(state)
        state = states[-1]
        chex.assert_trees_all_equal_shapes_and_dtypes(rows[0][2], agent.sequence.extras)
        steps, action, extras = (
            jax.tree.map(lambda *x: np.stack(x)[None], *part) for part in zip(*rows, strict=True)
        )
        extras["memory"] = jax.tree.map(lambda x: x[:, 0], extras["memory"])
        row = Row(
            steps.observation,
            steps.reward,
            steps.discount,
            steps.step_type == 0,
            steps.step_type == 2,
            action,
            extras,
        )
        sample = Sample(row, np.ones(1, np.float32), np.ones((1, T + 1), bool))
        new, result = base.update(agent)(learner, sample)
        assert avals(new) == avals(learner)
        learner = new
        assert np.isfinite(result.priorities).all()
        assert (result.priorities >= 0).all()
        assert all(np.isfinite(value) for value in result.metrics.values())


def test_sequences_never_cross_episodes_and_rows_are_those_of_appendix_e():
    agent = make_agent(SPEC, tiny(intrinsic_rewards="stored"))
    assert not agent.sequence.crosses_episodes
    assert (agent.sequence.length, agent.sequence.period) == (T + 1, 3)
    assert agent.sequence.first_row_extras == ("memory",)
    assert set(agent.sequence.extras) == {
        "arm",
        "previous_action",
        "intrinsic_reward",
        "mu",
        "epsilon",
        "memory",
        "intrinsic_return",
    }
    assert agent.sequence.extras["mu"].shape == ()


def test_continuous_actions_are_refused():
    spec = SPEC._replace(actions=specs.BoundedArray((2,), np.float32, -1, 1))
    with pytest.raises(ValueError, match=r"Agent57 needs discrete actions .* got BoundedArray"):
        make_agent(spec, tiny())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_arms": 1}, "num_arms must be an integer >= 2, got 1"),
        ({"replay_period": 161}, "replay_period must be an integer >= 1 and <= 160, got 161"),
        ({"num_neighbours": 30_001}, "num_neighbours must be an integer >= 1 and <= 30000"),
        ({"bandit_window": 31}, "bandit_window must be an integer >= 32, got 31"),
        ({"values": "both"}, "values must be one of split, mixed, extrinsic, got 'both'"),
        ({"target": "q"}, "target must be one of retrace, double_q, got 'q'"),
        ({"arm_choice": "best"}, "arm_choice must be one of bandit, uniform, actor, zero"),
        ({"evaluation": "best"}, "evaluation must be one of alternate, greedy, arm, got"),
        ({"evaluation_arm": 32}, "evaluation_arm must be an integer >= 0 and <= 31, got 32"),
        ({"novelty_window": 0}, "novelty_window must be an integer >= 1, got 0"),
        ({"embedding_refresh": 400}, "embedding_refresh must be one of episode, step, got 400"),
        ({"discount_high": 1.0}, "discount_high must be a number >= 0.0 and < 1.0, got 1.0"),
        ({"discount_low": 0.998}, "discount_low must not increase, got 0.9999, 0.997, 0.998"),
        ({"priority_eta": 1.5}, "priority_eta must be a number >= 0.0 and <= 1.0, got 1.5"),
        ({"rescaling_epsilon": 0.0}, "rescaling_epsilon must be a number > 0.0, got 0.0"),
        ({"max_modulator": 0.5}, "max_modulator must be a number >= 1.0, got 0.5"),
        ({"actor_epsilon": 0.0}, "actor_epsilon must be a number > 0.0 and <= 1.0, got 0.0"),
        ({"burn_in": -1}, "burn_in must be an integer >= 0, got -1"),
        ({"network_scale": 0.0}, "network_scale must be a number > 0.0, got 0.0"),
        ({"vector_sizes": (0,)}, r"vector_sizes must be a tuple of integers >= 1, got \(0,\)"),
        ({"replay": ReplayConfig(capacity=99, min_rows=5)}, "one sequence of 161 rows, got 99"),
    ],
)
def test_wrong_configs_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Config(**changes)


@pytest.mark.parametrize("prefix", ["", "small_"])
def test_each_rung_of_the_ladder_lacks_one_part_more(prefix):
    names = ["paper" if not prefix else "small"]
    names += [prefix + rung for rung in ("meta_controller", "split", "ngu", "r2d2_retrace", "r2d2")]
    configs = [agent57.PRESETS[name]() for name in names]
    fields = [
        {line.split(":")[0] for line in differences(*pair)} for pair in itertools.pairwise(configs)
    ]
    assert fields[0] == {"trace_length", "replay_period"}
    assert fields[1] <= {"arm_choice", "evaluation", "discounts"}
    assert fields[2:] == [{"values"}, {"values", "arm_choice"}, {"target"}]


@pytest.mark.parametrize("prefix", ["", "small_"])
def test_r2d2_with_a_bandit_chooses_among_discounts_only(prefix):
    with_bandit, without = (
        agent57.PRESETS[prefix + name]() for name in ("r2d2_bandit", "r2d2_retrace")
    )
    fields = {line.split(":")[0] for line in differences(without, with_bandit)}
    assert fields == {"arm_choice", "evaluation", "discounts"}
    agent57_values = ("bandit", "alternate", "agent57")
    assert (with_bandit.arm_choice, with_bandit.evaluation, with_bandit.discounts) == agent57_values


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
    spec = SPEC._replace(max_episode_steps=longest)
    assert agent57.default_preset("", spec) == preset
    image = spec._replace(observations=specs.Array((84, 84, 1), np.uint8))
    assert agent57.default_preset("", image) == "paper"


def test_small_long_differs_in_its_capacity_alone():
    small, long = (agent57.PRESETS[name]() for name in ("small", "small_long"))
    assert differences(small, long) == ["replay.capacity: 5000 -> 50000"]


def test_entry_offers_what_the_harness_needs():
    entry = agent57.AGENT
    assert entry.name == "agent57"
    assert entry.presets is agent57.PRESETS
    assert entry.default_preset is agent57.default_preset
    assert entry.default_steps("deep_sea", "small") == 60_000
