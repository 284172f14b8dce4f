"""D4PG: one update against NumPy, windows at the end, acting, optimisers, windows."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import linear_agents
import numpy as np
import optax
import oracles
import pytest
from dm_env import specs
from linear_agents import TINY, episode_rows, first_state, jitted, timestep

from retrax.agents import base
from retrax.agents.d4pg import Config, make_agent
from retrax.datatypes import EnvironmentSpec, SequenceSpec
from retrax.networks import D4PGNetworks, FeedForwardNetwork

D, A = 4, 2
LOW, HIGH = np.array([-1.0, 0.0], np.float32), np.array([1.0, 10.0], np.float32)
SPEC = EnvironmentSpec(
    specs.Array((D,), np.float32), specs.BoundedArray((A,), np.float32, LOW, HIGH)
)
CRITICS = ["categorical", "scalar", "mixture_of_gaussians"]


def small(**changes):
    return Config.small(**{"scale_rewards": False, **TINY["d4pg"], **changes})


@functools.cache
def agent_of(critic="categorical", **changes):
    """An agent whose policy makes plain gradient steps of 1, its functions compiled."""
    config = small(critic=critic, target_update_period=3, **changes)
    sgd = optax.sgd(1.0)
    return jitted(make_agent(SPEC, config, policy_optimizer=sgd, critic_optimizer=sgd))


def initial(agent, seed):
    return agent.init(jax.random.key(seed))


def linear_networks(num_outputs, slope=1.0):
    """Policy and outputs linear in the observation and the action; no torso, no bounds."""
    normal = jax.random.normal

    def critic_init(key):
        of_x, of_a = jax.random.split(key)
        return {"x": normal(of_x, (D, num_outputs)), "a": normal(of_a, (A, num_outputs))}

    return D4PGNetworks(
        torso=FeedForwardNetwork(lambda key: (), lambda params, x: x),
        policy=FeedForwardNetwork(lambda key: normal(key, (D, A)), lambda w, x: x @ w),
        critic=FeedForwardNetwork(critic_init, lambda w, x, a: x @ w["x"] + a @ w["a"]),
        squash=lambda outputs: slope * outputs,
    )


def random_rows(seed, batch, length, ends=None, terminated=True):
    """Windows of one episode each."""
    rng = np.random.default_rng(seed)
    rows, mask = episode_rows(rng, length, batch * [length] if ends is None else ends, terminated)
    actions = rng.uniform(LOW, HIGH, size=(*mask.shape, A)) * mask[..., None]
    return rows | {"action": actions.astype(np.float32)}, mask


def as_sample(rows, mask=None, weights=None):
    return linear_agents.as_sample(rows, weights, mask)


def double(params):
    critic = {f"critic_{name}": weights for name, weights in params.critic.items()}
    return linear_agents.double({"policy": params.policy, **critic})


def mixture_samples(learner, target, rows, mask, config):
    """What the update draws from the target's mixture, by its documented keys."""
    batch = len(mask)
    keys = jax.random.split(jax.random.fold_in(learner.key, learner.num_updates), batch)
    samples = []
    for b, key in enumerate(keys):
        x = rows["observation"][b, mask[b].sum() - 1]
        outputs = x @ target["critic_x"] + (x @ target["policy"]) @ target["critic_a"]
        parts = oracles.mixture_parts(outputs, config.mixture_min_scale, config.return_unit)
        probs, means, scales, _ = parts
        number = config.mixture_samples
        samples.append(oracles.mixture_samples(key, number, np.log(probs), means, scales))
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
    learner = first_state(agent, 0, 10)._replace(num_updates=jnp.int32(3))
    other = learner.target_params
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
    assert new.num_updates == 4


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


def test_a_policy_at_its_bounds_returns_where_preactivations_have_a_cost():
    """tanh's derivative is 0 there: what is left is the cost times the outputs, here 30."""
    agent = agent_of(preactivation_cost=0.5)
    learner = initial(agent, 0)
    name = "policy_module/~/output"
    output = jax.tree.map(jnp.zeros_like, learner.params.policy[name])
    policy = {**learner.params.policy, name: {**output, "b": jnp.full(A, 30.0)}}
    learner = learner._replace(params=learner.params._replace(policy=policy))
    gradients, _ = agent.gradients(learner, as_sample(*random_rows(0, 4, 4)))
    np.testing.assert_allclose(gradients.policy[name]["b"], [0.5 * 30.0] * A, rtol=1e-5)


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


def exploring(num_actors, draws, **changes):
    """Actions `[num_actors, draws, A]` at one observation, and the greedy one `[A]`."""
    agent = agent_of(**changes)
    params = agent.acting_params(initial(agent, 0))

    def draw(actor_id, key):
        actor = agent.begin(key, actor_id, num_actors)
        return agent.explore(params, actor, timestep(0)).action

    keys = jax.random.split(jax.random.key(1), (num_actors, draws))
    per_actor = jax.vmap(draw, in_axes=(None, 0))
    actions = jax.jit(jax.vmap(per_actor))(np.arange(num_actors), keys)
    actor = agent.begin(keys[0, 0], 0, num_actors)
    greedy = agent.exploit(params, actor, timestep(0)).action
    return np.asarray(actions), np.asarray(greedy)


def test_noise_has_the_size_of_its_actor():
    changes = {"exploration": "per_actor", "sigma_min": 0.02, "sigma_max": 0.32}
    actions, greedy = exploring(5, 4000, **changes)
    deviations = np.sqrt(np.mean((actions - greedy) ** 2, axis=1)) / (HIGH - LOW) * 2
    expected = np.array([0.02, 0.04, 0.08, 0.16, 0.32])[:, None] * np.ones(A)
    np.testing.assert_allclose(deviations[:4], expected[:4], rtol=0.05)
    np.testing.assert_allclose(deviations[4], expected[4], rtol=0.1)  # some are clipped
    np.testing.assert_allclose(actions.mean(1) - greedy, 0, atol=0.1)


def test_fixed_noise_is_the_same_for_all_and_one_actor_alone_is_between_the_extremes():
    fixed = agent_of(exploration="fixed", sigma=0.2)
    sigmas = [fixed.begin(jax.random.key(0), actor, 4).sigma for actor in range(4)]
    np.testing.assert_allclose(sigmas, 0.2)
    alone = agent_of(exploration="per_actor", sigma_min=0.04, sigma_max=0.36, noise_correlation=0.6)
    actor = alone.begin(jax.random.key(0), 0, 1)
    np.testing.assert_allclose((actor.sigma, actor.correlation), (0.12, 0.3), rtol=1e-6)


@pytest.mark.parametrize("correlation", [0.0, 0.6, 0.9])
def test_noise_is_an_autoregressive_process_that_starts_again_with_each_episode(correlation):
    agent = agent_of(exploration="fixed", sigma=0.05, noise_correlation=correlation)
    params = agent.acting_params(initial(agent, 0))
    lengths = 20, 1980
    kinds = np.concatenate([[0] + [1] * (length - 1) for length in lengths]).astype(np.int32)
    greedy = agent.exploit(params, agent.begin(jax.random.key(0), 0, 1), timestep(1))

    def act(actor, kind):
        decision = agent.explore(params, actor, timestep()._replace(step_type=kind))
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


def test_actions_stay_within_bounds_and_noise_is_new_each_time():
    actions, _ = exploring(1, 200, exploration="fixed", sigma=5.0)
    np.testing.assert_array_equal(actions.min((0, 1)), LOW)
    np.testing.assert_array_equal(actions.max((0, 1)), HIGH)
    agent = agent_of(noise_correlation=0.0)  # correlated noise is never the same
    params, actor = agent.acting_params(initial(agent, 0)), agent.begin(jax.random.key(0), 0, 1)
    first = agent.explore(params, actor, timestep(1))
    assert (first.action != agent.explore(params, first.state, timestep(1)).action).any()


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_policy_and_critic_have_their_own_learning_rates(decay):
    """The torso is the critic's; a weight decay is of both, apart from Adam's moments."""
    rates = (0.01, 0.3)
    config = dict(zip(("policy_learning_rate", "critic_learning_rate"), rates, strict=True))
    config = small(weight_decay=decay, pixel_features=2, **config)
    images = SPEC._replace(observations=specs.Array((9, 9, 1), np.uint8))
    agent = make_agent(images, config)
    learner = start = jax.jit(agent.init)(jax.random.key(0))
    scales, apply = (0.5, -0.1), jax.jit(agent.apply)
    for scale in scales:
        gradients = optax.tree.full_like(start.params, scale)
        learner = apply(learner, gradients)
    for name, rate in (("policy", rates[0]), ("critic", rates[1]), ("torso", rates[1])):
        before, after = (getattr(state.params, name) for state in (start, learner))
        assert jax.tree.leaves(before)
        first, both = (oracles.adam(0.0, scales[:count], rate) for count in (1, 2))
        kept = 1 - rate * decay

        def expected(x, first=first, second=both - first, kept=kept):
            return kept * (kept * np.asarray(x) + first) + second

        chex.assert_trees_all_close(after, jax.tree.map(expected, before), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n_step", [1, 4])
def test_every_row_begins_a_window_of_n_transitions_in_one_episode(n_step):
    agent = make_agent(SPEC, small(n_step=n_step))
    assert agent.sequence == SequenceSpec(length=n_step + 1, period=1, crosses_episodes=False)
