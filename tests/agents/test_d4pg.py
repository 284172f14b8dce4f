"""D4PG: one update against NumPy, windows at the end, acting, presets, saving, rejections."""

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
from linear_agents import TINY, avals, jitted

from retrax.agents import base, d4pg
from retrax.agents.d4pg import Config, make_agent
from retrax.agents.d4pg.networks import make_head
from retrax.agents.optimization import gradient_metrics
from retrax.basics.libraries import distrax
from retrax.datatypes import EnvironmentSpec, ReplayConfig, Row, Sample, TimeStep
from retrax.networks import D4PGNetworks, FeedForwardNetwork
from retrax.networks.d4pg import middle_and_half
from retrax.run_directory.config_file import differences
from retrax.run_directory.snapshots import Snapshots
from retrax.runtime.learner import Snapshot

D, A = 4, 2
LOW, HIGH = np.array([-1.0, 0.0], np.float32), np.array([1.0, 10.0], np.float32)
SPEC = EnvironmentSpec(
    specs.Array((D,), np.float32), specs.BoundedArray((A,), np.float32, LOW, HIGH)
)
CRITICS = ["categorical", "scalar", "mixture_of_gaussians"]


def small(**changes):
    return Config.small(**{"scale_rewards": False, **TINY["d4pg"], **changes})


@functools.cache
def agent_of(critic="categorical", bounds=None, **changes):
    """An agent whose policy makes plain gradient steps of 1, its functions compiled."""
    spec = SPEC if bounds is None else SPEC._replace(actions=actions_within(*bounds))
    config = small(critic=critic, target_update_period=3, **changes)
    sgd = optax.sgd(1.0)
    return jitted(make_agent(spec, config, policy_optimizer=sgd, critic_optimizer=sgd))


def actions_within(low, high):
    return specs.BoundedArray((A,), np.float32, low, high)


def initial(agent, seed):
    return agent.init(jax.random.key(seed))


def linear_networks(num_outputs, slope=1.0):
    """Policy and outputs linear in the observation and the action; no torso, no bounds."""

    def weights(key, *shape):
        return jax.random.normal(key, shape)

    def critic_init(key):
        keys = jax.random.split(key)
        return {"x": weights(keys[0], D, num_outputs), "a": weights(keys[1], A, num_outputs)}

    return D4PGNetworks(
        torso=FeedForwardNetwork(lambda key: (), lambda params, x: x),
        policy=FeedForwardNetwork(lambda key: weights(key, D, A), lambda w, x: x @ w),
        critic=FeedForwardNetwork(critic_init, lambda w, x, a: x @ w["x"] + a @ w["a"]),
        squash=lambda outputs: slope * outputs,
    )


def random_rows(seed, batch, length, ends=None, terminated=None):
    """Windows of one episode each; `ends[b]` is the last row of the episode, padding follows."""
    rng = np.random.default_rng(seed)
    shape = (batch, length)
    ends = np.full(batch, length) if ends is None else np.asarray(ends)
    steps = np.arange(length)
    is_last = steps == ends[:, None]
    mask = steps <= ends[:, None]
    over = is_last & (True if terminated is None else np.asarray(terminated)[:, None])
    rows = {
        "observation": rng.normal(size=(*shape, D)),
        "reward": rng.normal(size=shape),
        "discount": np.where(over, 0.0, 1.0),
        "is_first": np.zeros(shape, bool),
        "is_last": is_last,
        "action": rng.uniform(LOW, HIGH, size=(*shape, A)),
    }
    for name, values in rows.items():
        values[~mask] = 0  # as the store pads
        rows[name] = values if values.dtype == bool else values.astype(np.float32)
    return rows, mask


def as_sample(rows, mask=None, weights=None):
    batch, length = rows["reward"].shape
    weights = np.ones(batch, np.float32) if weights is None else weights
    mask = np.ones((batch, length), bool) if mask is None else mask
    return Sample(Row(extras={}, **rows), weights, mask)


def plain(state):
    """A learner's state whose key is numbers, which can be compared."""
    return state._replace(key=jax.random.key_data(state.key))


def double(params):
    policy, critic = np.asarray(params.policy, np.float64), params.critic
    return {
        "policy": policy,
        "critic_x": np.asarray(critic["x"], np.float64),
        "critic_a": np.asarray(critic["a"], np.float64),
    }


def mixture_samples(learner, target, rows, mask, config):
    """What the update draws from the target's mixture, by its documented keys."""
    batch = len(mask)
    keys = jax.random.split(jax.random.fold_in(learner.key, learner.num_updates), batch)
    samples = []
    for b, key in enumerate(keys):
        x = rows["observation"][b, mask[b].sum() - 1]
        outputs = x @ target["critic_x"] + (x @ target["policy"]) @ target["critic_a"]
        probs, means, scales, _ = oracles.mixture_parts(
            outputs, config.mixture_min_scale, config.return_unit
        )
        mixture = distrax.MixtureSameFamily(
            distrax.Categorical(probs=jnp.asarray(probs, jnp.float32)),
            distrax.Normal(*(jnp.asarray(x, jnp.float32) for x in (means, scales))),
        )
        samples.append(mixture.sample(seed=key, sample_shape=(config.mixture_samples,)))
    return np.asarray(samples)


@pytest.mark.parametrize(
    ("critic", "max_norm", "cost", "slope"),
    [
        *((critic, None, 0.0, 1.0) for critic in CRITICS),
        ("categorical", 0.5, 0.0, 1.0),
        ("categorical", None, 0.7, 0.5),
    ],
)
def test_one_update_is_the_numpy_loop(critic, max_norm, cost, slope):
    config = small(
        critic=critic,
        vmin=-3.0,
        vmax=3.0,
        discount=0.8,
        max_action_gradient_norm=max_norm,
        preactivation_cost=cost,
        mixture_components=2,
        mixture_samples=3,
        mixture_min_scale=0.5,
        return_unit=2.0,
        target_update_period=1000,
    )
    outputs = {"categorical": 5, "scalar": 1, "mixture_of_gaussians": 6}[critic]
    agent = make_agent(
        SPEC,
        config,
        networks=linear_networks(outputs, slope),
        policy_optimizer=optax.sgd(0.3),
        critic_optimizer=optax.sgd(0.1),
    )
    agent = jitted(agent)
    learner = initial(agent, 0)
    other = initial(agent, 10).params
    learner = learner._replace(target_params=other)
    rows, mask = random_rows(1, 5, 4, ends=[3, 1, 2, 2, 9], terminated=[0, 1, 0, 1, 0])
    weights = np.array([0.5, 2.0, 1.3, 0.2, 1.0], np.float32)
    new, update = base.update(agent)(learner, as_sample(rows, mask, weights))
    samples = np.zeros((5, 1))
    if critic == "mixture_of_gaussians":
        samples = mixture_samples(learner, double(other), rows, mask, config)
    params, losses, priorities, values = oracles.d4pg_linear_update(
        double(learner.params),
        double(other),
        rows,
        mask,
        weights,
        (HIGH - LOW) / 2,
        dataclasses.asdict(config),
        samples,
        (0.3, 0.1),
        slope,
    )
    chex.assert_trees_all_close(double(new.params), params, rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(update.priorities, priorities, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(update.metrics["critic_loss"], losses.mean(), rtol=1e-4)
    np.testing.assert_allclose(update.metrics["value"], values.mean(), rtol=1e-4)
    chex.assert_trees_all_equal(new.target_params, other)
    assert new.num_updates == 1


@pytest.mark.parametrize("critic", CRITICS)
def test_a_prediction_that_equals_its_target_has_priority_0(critic):
    """The entropy of the target is no reason to repeat a window."""
    config = small(critic=critic, discount=1.0, n_step=1, mixture_components=2)
    networks = linear_networks(make_head(config).num_outputs)
    agent = jitted(make_agent(SPEC, config, networks=networks))
    learner = initial(agent, 0)
    rows, _ = random_rows(0, 8, 2)
    rows["observation"][:, 1] = x = rows["observation"][:, 0]
    rows["action"][:, 0] = x @ learner.params.policy
    rows["reward"][:] = 0
    _, update = agent.gradients(learner, as_sample(rows))
    np.testing.assert_allclose(update.priorities, 0, atol=1e-4)
    rows["reward"][:, 1] = 50.0
    _, update = agent.gradients(learner, as_sample(rows))
    assert (update.priorities > 1e-2).all()


def test_metrics_tell_the_mass_of_targets_outside_of_the_support():
    """Terminations: a target is one point, at the N-step return."""
    agent = agent_of(vmin=-3.0, vmax=2.0, discount=0.5, n_step=2)
    rows, mask = random_rows(0, 4, 3, ends=[2] * 4, terminated=[1] * 4)
    rows["reward"][:, 1] = [1.0, 1.5, -3.0, 2.5]
    rows["reward"][:, 2] = [2.0, 1.5, -0.5, 0.5]  # returns 2, 2.25, -3.25, 2.75
    _, update = agent.gradients(initial(agent, 0), as_sample(rows, mask))
    np.testing.assert_allclose(update.metrics["clipped_below_vmin"], 0.25, rtol=1e-5)
    np.testing.assert_allclose(update.metrics["clipped_above_vmax"], 0.5, rtol=1e-5)
    # Otherwise the atoms of the target critic are moved: behind a reward of 6 all are outside.
    rows["discount"][:] = 1.0
    rows["reward"][:, 1] = [6.0, 0.0, 0.0, 0.0]
    rows["reward"][:, 2] = 0.0
    _, update = agent.gradients(initial(agent, 0), as_sample(rows, mask))
    np.testing.assert_allclose(update.metrics["clipped_above_vmax"], 0.25, rtol=1e-5)


@pytest.mark.parametrize("max_norm", [None, 0.1])
def test_updates_do_not_depend_on_the_units_of_actions(max_norm):
    """A task whose actions are those of another, shifted and scaled, is learned alike."""
    rows, mask = random_rows(0, 4, 4)
    unit = np.random.default_rng(1).uniform(-1, 1, (4, 4, A)).astype(np.float32)
    found = []
    for bounds in ((-1.0, 1.0), ((-1.0, 0.0), (7.0, 0.5))):
        middle, half = middle_and_half(actions_within(*bounds))
        rows["action"] = middle + half * unit
        agent = agent_of(bounds=bounds, max_action_gradient_norm=max_norm)
        learner, update = base.update(agent)(initial(agent, 0), as_sample(rows, mask))
        found.append((learner.params, update))
    chex.assert_trees_all_close(*found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cost", [0.0, 0.5])
def test_a_policy_at_its_bounds_returns_where_preactivations_have_a_cost(cost):
    """tanh's derivative is 0 there: what is left is the cost times the outputs, here 30."""
    agent = agent_of(preactivation_cost=cost)
    learner = initial(agent, 0)
    name = "policy_module/~/output"
    output = jax.tree.map(jnp.zeros_like, learner.params.policy[name])
    policy = {**learner.params.policy, name: {**output, "b": jnp.full(A, 30.0)}}
    learner = learner._replace(params=learner.params._replace(policy=policy))
    gradients, _ = agent.gradients(learner, as_sample(*random_rows(0, 4, 4)))
    np.testing.assert_allclose(gradients.policy[name]["b"], [30.0 * cost] * A, rtol=1e-5)


@pytest.mark.parametrize("critic", ["categorical", "scalar"])
def test_padding_and_what_is_behind_the_end_do_not_matter(critic):
    agent = agent_of(critic)
    learner = initial(agent, 0)
    rows, mask = random_rows(0, 4, 4, ends=[2, 1, 3, 9], terminated=[0, 1, 1, 0])
    changed = {name: values.copy() for name, values in rows.items()}
    for name in ("observation", "reward", "action", "discount"):
        changed[name][~mask] = 7.0
    changed["action"][:, 1:] = 3.0  # only the first action is learned from
    changed["observation"][1, 1] = 5.0  # behind a termination nothing is bootstrapped
    update = base.update(agent)
    (state, expected), (other, found) = (
        update(learner, as_sample(r, mask)) for r in (rows, changed)
    )
    chex.assert_trees_all_close(found, expected, rtol=1e-5, atol=1e-6)
    chex.assert_trees_all_close(plain(other), plain(state), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("end", [1, 2, 3])
def test_truncation_bootstraps_from_the_last_observation_there_is(end):
    agent = agent_of("scalar")
    learner = initial(agent, 0)
    update = base.update(agent)
    rows, mask = random_rows(0, 4, 4, ends=[end] * 4, terminated=[False] * 4)
    before = update(learner, as_sample(rows, mask))[1].priorities
    for t in range(1, 4):
        changed = {name: values.copy() for name, values in rows.items()}
        changed["observation"][:, t] += 1.0
        after = update(learner, as_sample(changed, mask))[1].priorities
        assert ((after != before) == (t == end)).all(), t


def test_weights_are_the_critics_alone():
    agent = agent_of()
    learner = initial(agent, 0)
    rows, mask = random_rows(0, 4, 4)
    update = base.update(agent)
    plain, _ = update(learner, as_sample(rows, mask))
    nothing, _ = update(learner, as_sample(rows, mask, np.zeros(4, np.float32)))
    chex.assert_trees_all_equal(nothing.params.critic, learner.params.critic)
    chex.assert_trees_all_equal(nothing.params.policy, plain.params.policy)
    with pytest.raises(AssertionError):
        chex.assert_trees_all_equal(plain.params.critic, learner.params.critic)


def test_the_policys_gradient_into_the_torso_is_exactly_zero():
    spec = SPEC._replace(observations=specs.Array((9, 9, 3), np.uint8))
    config = small(n_step=1, pixel_features=7)
    agent = jitted(make_agent(spec, config, critic_optimizer=optax.sgd(1.0)))
    learner = initial(agent, 0)
    rows, mask = random_rows(0, 2, 2)
    images = np.random.default_rng(0).integers(0, 256, (2, 2, 9, 9, 3), np.uint8)
    rows["observation"] = images
    update = base.update(agent)
    nothing, _ = update(learner, as_sample(rows, mask, np.zeros(2, np.float32)))
    chex.assert_trees_all_equal(nothing.params.torso, learner.params.torso)
    trained, _ = update(learner, as_sample(rows, mask))
    for params, before in ((nothing.params.policy, learner.params.policy),
                           (trained.params.torso, learner.params.torso)):  # fmt: skip
        with pytest.raises(AssertionError):
            chex.assert_trees_all_equal(params, before)


def test_gradients_of_two_halves_average_to_those_of_the_batch():
    """What a parameter server and several devices rely on; and computing them changes nothing."""
    agent = agent_of()
    gradients = agent.gradients
    learner = initial(agent, 0)
    rows, mask = random_rows(0, 4, 4, ends=[3, 1, 2, 9])
    whole, update = gradients(learner, as_sample(rows, mask))
    for name, part in (("critic", (whole.torso, whole.critic)), ("policy", whole.policy)):
        for metric, value in gradient_metrics(part, f"{name}_").items():
            np.testing.assert_allclose(update.metrics[metric], value, rtol=1e-5)
    halves = [
        gradients(learner, as_sample({name: x[part] for name, x in rows.items()}, mask[part]))
        for part in (slice(0, 2), slice(2, 4))
    ]
    mean = jax.tree.map(lambda x, y: (x + y) / 2, halves[0][0], halves[1][0])
    chex.assert_trees_all_close(mean, whole, rtol=1e-4, atol=1e-6)
    priorities = np.concatenate([half.priorities for _, half in halves])
    np.testing.assert_allclose(priorities, update.priorities, rtol=1e-5)
    chex.assert_trees_all_equal_shapes_and_dtypes(whole, learner.params)


def test_target_networks_are_copied_every_period():
    agent = agent_of()
    update = base.update(agent)
    learner = initial(agent, 0)
    start = learner.params
    sample = as_sample(*random_rows(0, 4, 4))
    for number in range(1, 7):
        learner, _ = update(learner, sample)
        same = number in (3, 6)
        expected = learner.params if same else start
        if number <= 3 or same:
            chex.assert_trees_all_equal(learner.target_params, expected)
        if not same:
            with pytest.raises(AssertionError):
                chex.assert_trees_all_equal(learner.target_params, learner.params)


def shrunk(preset):
    config = d4pg.PRESETS[preset]()  # test_reward_scale.py has agents that scale rewards
    sizes = {"policy_sizes": (4,), "critic_sizes": (4, 4), "num_atoms": 5}
    return dataclasses.replace(config, scale_rewards=False, **sizes)


@pytest.mark.parametrize("preset", sorted(d4pg.PRESETS))
def test_every_preset_has_an_agent(preset):
    """Traced, not compiled: see the next test for the graphs."""
    config = shrunk(preset)
    agent = make_agent(SPEC, config)
    learner = jax.eval_shape(agent.init, jax.random.key(0))
    length = agent.sequence.length
    assert (length, agent.sequence.crosses_episodes) == (config.n_step + 1, False)
    sample = as_sample(*random_rows(0, 2, length))
    new, result = jax.eval_shape(base.update(agent), learner, sample)
    chex.assert_trees_all_equal_shapes_and_dtypes(new, learner)
    assert result.priorities.shape == (2,)


@pytest.mark.parametrize("critic", CRITICS)
def test_compiles_once_for_every_critic(critic):
    """States before and after an update are alike; rows are those that the agent declares."""
    agent = agent_of(critic)
    learner, actor = initial(agent, 0), agent.begin(jax.random.key(1), 1, 4)
    assert (agent.sequence.length, agent.sequence.crosses_episodes) == (4, False)
    for number in range(3):
        decision = agent.explore(agent.acting_params(learner), actor, timestep_of(1))
        assert avals(decision.state) == avals(actor)
        assert (decision.action.shape, decision.action.dtype) == ((A,), np.float32)
        assert decision.extras == agent.sequence.extras == {}
        new, result = base.update(agent)(learner, as_sample(*random_rows(number, 4, 4)))
        assert avals(new) == avals(learner)
        learner, actor = new, decision.state
        assert np.isfinite(result.priorities).all()
        assert (result.priorities >= 0).all()
        assert all(np.isfinite(value) for value in result.metrics.values())
    assert learner.num_updates == 3


def exploring(num_actors, draws, **changes):
    """Actions `[num_actors, draws, A]` at one observation, and the greedy one `[A]`."""
    agent = agent_of(**changes)
    params = agent.acting_params(initial(agent, 0))

    def draw(actor_id, key):
        actor = agent.begin(key, actor_id, num_actors)
        return agent.explore(params, actor, timestep_of(0)).action

    keys = jax.random.split(jax.random.key(1), (num_actors, draws))
    per_actor = jax.vmap(draw, in_axes=(None, 0))
    actions = jax.jit(jax.vmap(per_actor))(np.arange(num_actors), keys)
    actor = agent.begin(keys[0, 0], 0, num_actors)
    greedy = agent.exploit(params, actor, timestep_of(0)).action
    return np.asarray(actions), np.asarray(greedy)


def test_noise_has_the_size_of_its_actor():
    changes = {"exploration": "per_actor", "sigma_min": 0.02, "sigma_max": 0.32}
    actions, greedy = exploring(5, 4000, **changes)
    deviations = np.sqrt(np.mean((actions - greedy) ** 2, axis=1)) / (HIGH - LOW) * 2
    expected = np.array([0.02, 0.04, 0.08, 0.16, 0.32])[:, None] * np.ones(A)
    np.testing.assert_allclose(deviations[:4], expected[:4], rtol=0.05)
    np.testing.assert_allclose(deviations[4], expected[4], rtol=0.1)  # some are clipped
    np.testing.assert_allclose(actions.mean(1) - greedy, 0, atol=0.1)


def test_one_actor_alone_explores_between_the_extremes():
    agent = agent_of(exploration="per_actor", sigma_min=0.04, sigma_max=0.36)
    np.testing.assert_allclose(agent.begin(jax.random.key(0), 0, 1).sigma, 0.12, rtol=1e-6)


def test_fixed_noise_is_the_same_for_all():
    agent = agent_of(exploration="fixed", sigma=0.2)
    sigmas = [agent.begin(jax.random.key(0), actor, 4).sigma for actor in range(4)]
    np.testing.assert_allclose(sigmas, 0.2)


@pytest.mark.parametrize("correlation", [0.0, 0.6, 0.9])
def test_noise_is_an_autoregressive_process_that_starts_again_with_each_episode(correlation):
    agent = agent_of(exploration="fixed", sigma=0.05, noise_correlation=correlation)
    params = agent.acting_params(initial(agent, 0))
    lengths = 20, 1980
    kinds = np.concatenate([[0] + [1] * (length - 1) for length in lengths]).astype(np.int32)
    greedy = agent.exploit(params, agent.begin(jax.random.key(0), 0, 1), timestep_of(1))

    def act(actor, kind):
        decision = agent.explore(params, actor, timestep_of(kind))
        return decision.state, decision.action

    def of_key(key):
        return jax.lax.scan(act, agent.begin(key, 0, 1), kinds)[1]

    actions = jax.jit(jax.vmap(of_key))(jax.random.split(jax.random.key(1), 20))
    noise = (np.asarray(actions) - np.asarray(greedy.action)) / (HIGH - LOW) * 2 / 0.05
    np.testing.assert_allclose(noise.std((0, 1)), 1.0, rtol=0.05)
    for lag in (1, 3):
        products = noise[:, 40:-lag] * noise[:, 40 + lag :]
        np.testing.assert_allclose(products.mean((0, 1)), correlation**lag, atol=0.05)
    across = np.mean(noise[:, lengths[0] - 1] * noise[:, lengths[0]])  # 40 products
    assert abs(across) < 0.5
    np.testing.assert_allclose(noise[:, 0].std(), 1.0, rtol=0.3)


def timestep_of(kind):
    seen = np.ones(D, np.float32)
    return TimeStep(jnp.int32(kind), np.float32(0), np.float32(1), seen)


def test_actions_stay_within_bounds_and_noise_is_new_each_time():
    actions, _ = exploring(1, 200, exploration="fixed", sigma=5.0)
    assert (actions >= LOW).all()
    assert (actions <= HIGH).all()
    assert (actions == LOW).any()
    assert (actions == HIGH).any()
    agent = agent_of(noise_correlation=0.0)  # correlated noise is never the same
    params, actor = agent.acting_params(initial(agent, 0)), agent.begin(jax.random.key(0), 0, 1)
    first = agent.explore(params, actor, timestep_of(1))
    second = agent.explore(params, first.state, timestep_of(1))
    assert (first.action != second.action).any()


def test_the_stored_action_is_the_executed_one():
    """The loop stores the decision's action; the environment's own clip must not change it."""
    from retrax.environments import make

    environment = make("Pendulum-v1", seed=0, num_envs=2)
    agent = jitted(make_agent(environment.spec, small(exploration="fixed", sigma=3.0)))
    timestep = environment.reset()
    params = agent.acting_params(initial(agent, 0))
    keys = jax.random.split(jax.random.key(0))
    actors = jax.vmap(lambda key: agent.begin(key, 0, 2))(keys)
    explore = jax.jit(jax.vmap(agent.explore, (None, 0, 0)))
    seen = []
    for _ in range(20):
        decision = explore(params, actors, timestep)
        actors, action = decision.state, np.asarray(decision.action)
        seen.append(action)
        np.testing.assert_array_equal(action, environment._act(action))
        timestep = environment.step(action)
    environment.close()
    assert np.abs(seen).max() == 2.0  # some were clipped, by the agent


@pytest.mark.parametrize("critic", ["categorical", "mixture_of_gaussians"])
def test_a_run_goes_on_from_a_snapshot_exactly(critic, tmp_path):
    agent = agent_of(critic)
    update = base.update(agent)
    samples = [as_sample(*random_rows(seed, 4, 4)) for seed in range(3)]
    learner, _ = update(initial(agent, 0), samples[0])
    snapshots = Snapshots(tmp_path)
    snapshots.save(1, Snapshot(learner, {"rows": np.zeros(1)}, {"steps": 1}))
    restored = snapshots.read(1, learner=jax.eval_shape(agent.init, jax.random.key(5))).learner
    chex.assert_trees_all_equal_dtypes(restored, learner)
    assert isinstance(restored, d4pg.LearnerState)
    for sample in samples[1:]:
        learner, expected = update(learner, sample)
        restored, found = update(restored, sample)
        chex.assert_trees_all_equal(found, expected)
    chex.assert_trees_all_equal(plain(restored), plain(learner))


def test_the_mixtures_samples_differ_between_updates_and_are_the_same_for_a_key():
    agent = agent_of("mixture_of_gaussians")
    update = base.update(agent)
    learner, sample = initial(agent, 0), as_sample(*random_rows(0, 4, 4))
    again = learner._replace(num_updates=learner.num_updates + 1)
    priorities = [update(state, sample)[1].priorities for state in (learner, learner, again)]
    np.testing.assert_array_equal(priorities[0], priorities[1])
    assert (priorities[0] != priorities[2]).any()


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (specs.DiscreteArray(3), r"D4PG needs continuous actions .* got DiscreteArray"),
        (specs.Array((2,), np.float32), r"D4PG needs actions with finite bounds, .* got Array"),
        (specs.BoundedArray((2,), np.float32, -1, np.inf), "actions with finite bounds"),
        (specs.BoundedArray((2,), np.float32, [0, 1], [1, 1]), "minimum below its maximum"),
        (specs.BoundedArray((2,), np.int32, 0, 1), r"continuous actions .* got BoundedArray"),
    ],
)
def test_wrong_actions_are_refused(actions, message):
    with pytest.raises(ValueError, match=message):
        make_agent(SPEC._replace(actions=actions), small())


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (specs.Array((4,), np.int64), r"shape \(4,\) and dtype int64: allowed are uint8 images"),
        (specs.Array((3, 3, 1), np.uint8), "side of 3 pixels is too small for convolutions"),
    ],
)
def test_observations_that_no_network_takes_are_refused(observation, message):
    with pytest.raises(ValueError, match=message):
        make_agent(SPEC._replace(observations=observation), Config.paper())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"critic": "quantile"}, "critic must be one of categorical, mixture_of_gaussians, scalar"),
        ({"vmin": 1.0, "vmax": 1.0}, "vmin must be less than vmax, got vmin 1.0, vmax 1.0"),
        ({"vmin": float("-inf")}, "vmin must be .* got -inf"),
        ({"num_atoms": 1}, "num_atoms must be an integer >= 2, got 1"),
        ({"n_step": 0}, "n_step must be an integer >= 1, got 0"),
        ({"discount": 1.1}, r"discount must be a number >= 0.0 and <= 1.0, got 1.1"),
        ({"exploration": "ou"}, "exploration must be one of fixed, per_actor, got 'ou'"),
        ({"sigma": -0.1}, "sigma must be a number >= 0.0, got -0.1"),
        ({"sigma_min": 0.0}, "sigma_min must be a number > 0.0, got 0.0"),
        ({"sigma_min": 0.5, "sigma_max": 0.4}, "sigma_max must be a number >= 0.5, got 0.4"),
        ({"policy_learning_rate": 0.0}, "policy_learning_rate must be a number > 0.0"),
        ({"critic_learning_rate": float("nan")}, "critic_learning_rate must be .* got nan"),
        (
            {"max_action_gradient_norm": 0.0},
            "max_action_gradient_norm must be a number > 0.0 or None, got 0.0",
        ),
        ({"target_update_period": 0}, "target_update_period must be an integer >= 1, got 0"),
        ({"mixture_components": 0}, "mixture_components must be an integer >= 1, got 0"),
        ({"mixture_samples": 0}, "mixture_samples must be an integer >= 1, got 0"),
        ({"return_unit": 0.0}, "return_unit must be a number > 0.0, got 0.0"),
        ({"mixture_min_scale": 0.0}, "mixture_min_scale must be a number > 0.0, got 0.0"),
        ({"policy_sizes": ()}, r"policy_sizes must be .* >= 1, at least 1 of them, got \(\)"),
        ({"critic_sizes": (3,)}, r"critic_sizes must be .* >= 1, at least 2 of them, got \(3,\)"),
        ({"critic_sizes": (0, 3)}, "critic_sizes must be a tuple of integers >= 1"),
        ({"action_input": "third"}, "action_input must be one of second_layer, concatenated"),
        ({"layer_norm": 3}, "layer_norm must be one of True, False, got 3"),
    ],
)
def test_wrong_configs_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Config(**changes)


def test_presets_have_the_papers_values():
    config = Config.control_suite()
    assert (config.num_atoms, config.vmin, config.vmax) == (101, -150.0, 150.0)
    assert (config.n_step, config.discount, config.target_update_period) == (5, 0.99, 100)
    assert (config.policy_learning_rate, config.critic_learning_rate) == (1e-4, 1e-4)
    assert (config.policy_sizes, config.critic_sizes) == ((300, 200), (400, 300))
    assert (config.exploration, config.sigma_min, config.sigma_max) == ("per_actor", 1 / 32, 1.0)
    replay = config.replay
    assert (replay.batch_size, replay.capacity, replay.priority_exponent) == (256, 10**6, 0.6)
    assert (replay.selector, replay.importance_exponent) == ("proportional", 1.0)
    assert Config.paper() == Config()
    assert Config.paper(replay=ReplayConfig()).replay.batch_size == 4


def test_ablations_differ_from_the_paper_in_one_field():
    others = {"paper", "control_suite", "small"}
    for name in d4pg.PRESETS.keys() - others:
        assert len(differences(Config.paper(), d4pg.PRESETS[name]())) == 1, name
    assert len(d4pg.PRESETS) == 8


def test_entry_offers_the_presets_and_their_steps():
    entry = d4pg.AGENT
    assert entry.name == "d4pg"
    assert entry.presets is d4pg.PRESETS
    assert entry.default_preset("dm_control:walker:walk", SPEC) == "small"
    assert entry.default_preset("Pendulum-v1", SPEC) == "small"
    assert entry.default_steps("dm_control:walker:walk", "control_suite") == 1_000_000
    assert entry.default_steps("Pendulum-v1", "small") == 40_000
    assert (entry.episode_metrics, entry.evaluation_modes) == ((), ())
