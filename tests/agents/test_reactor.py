"""Reactor: updates against NumPy, masks, acting, presets, torsos, compilation, rejections."""

import dataclasses
import functools
import re
from pathlib import Path

import chex
import haiku as hk
import jax
import numpy as np
import optax
import oracles
import pytest
from dm_env import specs
from linear_agents import (
    SPECS,
    TINY,
    A,
    D,
    acted,
    as_sample,
    avals,
    decisions,
    ended_samples,
    jitted,
    mixed,
    random_rows,
    reactor_network,
    timestep,
)

from retrax import agents
from retrax.agents import reactor
from retrax.agents.reactor import AGENT, Config, make_agent
from retrax.datatypes import ReplayConfig
from retrax.networks import VectorTorso

SPEC = SPECS["discrete"]
random_rows = functools.partial(random_rows, "discrete")


def small(**changes):
    return Config.small(**{**TINY["reactor"], "scale_rewards": False, **changes})


# What the other presets have is in one of these.
VARIANTS = [
    ("paper", "zero"),
    ("non_distributional", "zero"),
    ("tislr", "zero"),
    ("small", "stored"),
]


@functools.cache
def variant(preset, initial_state):
    """An agent of a preset with small networks; test_reward_scale.py has those that scale."""
    config = dataclasses.replace(
        reactor.PRESETS[preset](),
        **TINY["reactor"],
        scale_rewards=False,
        initial_state=initial_state,
        target_update_period=3,
    )
    return jitted(make_agent(SPEC, config))


def memories(agent, batch=2):
    """The extra of rows in which a network begins without a memory."""
    extras = {name: agent.sequence.extras[name] for name in agent.sequence.first_row_extras}
    return jax.tree.map(lambda x: np.zeros((batch, *x.shape), x.dtype), extras)


@functools.cache
def linear_agent(**changes):
    """An agent on a linear network, with plain gradient steps of 0.5, and its config."""
    values = {
        "policy_gradient_cap": 2.0,
        "retrace_lambda": 0.9,
        "discount": 0.8,
        "num_atoms": 5,
        "vmin": -3.0,
        "vmax": 3.0,
        "policy_epsilon": 0.1,
        "entropy_cost": 0.2,
        "max_abs_reward": 1.5,
        "sequence_length": 6,
        "target_update_period": 1000,
    }
    config = Config(**{**values, **changes})
    agent = make_agent(SPEC, config, network=reactor_network(config), optimizer=optax.sgd(0.5))
    return jitted(agent), config


def with_other_target(agent, seed):
    """A first state whose target network is not the online network."""
    target = agent.init(jax.random.key(seed + 10)).params
    return agent.init(jax.random.key(seed))._replace(target_params=target)


def double(tree):
    return jax.tree.map(lambda x: np.asarray(x, np.float64), tree)


@pytest.mark.parametrize("policy_gradient", ["beta_loo", "tislr", "islr"])
@pytest.mark.parametrize("seed", [0, 1])
def test_one_update_is_the_numpy_loop(policy_gradient, seed):
    agent, config = linear_agent(policy_gradient=policy_gradient)
    learner = with_other_target(agent, seed)
    other = learner.target_params
    rows = random_rows(seed, 3, 6)
    assert rows["is_last"].any()
    weights = np.array([0.5, 2.0, 1.3], np.float32)
    new, update = agents.update(agent)(learner, as_sample(rows, weights))

    params, priorities = oracles.reactor_linear_update(
        double(learner.params), double(other), rows, weights, dataclasses.asdict(config), 0.5
    )
    chex.assert_trees_all_close(new.params, params, atol=2e-5)
    np.testing.assert_allclose(update.priorities, priorities, atol=1e-5)
    chex.assert_trees_all_equal(new.target_params, other)
    assert new.num_updates == 1


def test_gradients_are_the_numpy_loops_and_apply_takes_no_sample():
    agent, config = linear_agent()
    learner = with_other_target(agent, 0)
    rows, weights = random_rows(0, 3, 6), np.array([0.5, 2.0, 1.3], np.float32)

    gradients, outputs = agent.gradients(learner, as_sample(rows, weights))
    params, target = double(learner.params), double(learner.target_params)
    expected, _ = oracles.reactor_linear_update(
        params, target, rows, weights, dataclasses.asdict(config), 0.5
    )
    loops = jax.tree.map(lambda before, after: (before - after) / 0.5, params, expected)
    chex.assert_trees_all_close(gradients, loops, atol=4e-5)
    norm = np.sqrt(sum(np.square(leaf).sum() for leaf in jax.tree.leaves(loops)))
    np.testing.assert_allclose(outputs.metrics["gradient_norm"], norm, rtol=1e-4)
    new = agent.apply(learner, gradients)
    chex.assert_trees_all_close(new.params, expected, atol=2e-5)
    assert (learner.num_updates, new.num_updates) == (0, 1)


def test_metrics_tell_the_mass_at_the_ends_of_the_support():
    agent, _ = linear_agent()
    learner = with_other_target(agent, 0)
    rows = random_rows(0, 3, 6)
    _, outputs = agent.gradients(learner, as_sample(rows))
    logits = np.einsum("btd,dan->btan", rows["observation"], np.asarray(learner.params["value"]))
    first, last = [], []
    for b, t in np.ndindex(3, 5):
        if not rows["is_last"][b, t]:
            probs = np.asarray(jax.nn.softmax(logits[b, t, rows["action"][b, t]]))
            first.append(probs[0])
            last.append(probs[-1])
    assert len(first) < 15
    np.testing.assert_allclose(outputs.metrics["mass_at_vmin"], np.mean(first), rtol=1e-4)
    np.testing.assert_allclose(outputs.metrics["mass_at_vmax"], np.mean(last), rtol=1e-4)


def test_metrics_tell_the_mass_of_targets_outside_of_the_support():
    agent, config = linear_agent()
    learner = with_other_target(agent, 0)
    rows = random_rows(0, 3, 6)
    _, outputs = agent.gradients(learner, as_sample(rows))
    atoms = np.linspace(config.vmin, config.vmax, config.num_atoms)
    target = learner.target_params
    values = np.einsum("btd,dan->btan", rows["observation"], np.asarray(target["value"]))
    softmax = jax.nn.softmax(rows["observation"] @ np.asarray(target["policy"]))
    policy = mixed(np.asarray(softmax), config)
    masses = []
    for b, t in np.ndindex(3, 5):
        if rows["is_last"][b, t]:
            continue
        masses_of_step = np.zeros(2)
        reward = np.clip(rows["reward"][b, t + 1], -1.5, 1.5)
        discount = config.discount * rows["discount"][b, t + 1]
        for a, p in enumerate(policy[b, t + 1]):
            for atom, prob in zip(atoms, jax.nn.softmax(values[b, t + 1, a]), strict=True):
                value = reward + discount * atom
                masses_of_step += p * prob * np.array([value < config.vmin, value > config.vmax])
        masses.append(masses_of_step)
    expected = np.mean(masses, axis=0)
    assert (expected > 0.01).all()
    found = [outputs.metrics[name] for name in ("clipped_below_vmin", "clipped_above_vmax")]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_metrics_tell_how_far_actions_are_from_the_target_networks_policy():
    agent, config = linear_agent()
    learner = with_other_target(agent, 0)
    rows = random_rows(0, 3, 6)
    _, outputs = agent.gradients(learner, as_sample(rows))
    softmax = jax.nn.softmax(rows["observation"] @ np.asarray(learner.target_params["policy"]))
    policy = mixed(np.asarray(softmax), config)
    taken = rows["action"][:, 1:, None]
    pi_a, mu_a = (np.take_along_axis(x[:, 1:], taken, 2)[..., 0] for x in (policy, rows["mu"]))
    wanted = oracles.off_policyness(pi_a, mu_a, ~rows["is_last"][:, 1:])
    names = ("mean_ratio", "cut_traces", "effective_sample_share")
    np.testing.assert_allclose([outputs.metrics[name] for name in names], wanted, rtol=1e-4)


def test_gradients_of_a_batch_are_the_mean_of_those_of_its_halves():
    agent, _ = linear_agent()
    learner = with_other_target(agent, 0)
    rows, weights = random_rows(0, 6, 6), np.linspace(0.5, 2.0, 6).astype(np.float32)
    mask = np.arange(6) < np.array([[6], [3], [6], [2], [6], [6]])
    sample = as_sample(rows, weights, mask)
    whole, first, second = (
        agent.gradients(learner, jax.tree.map(lambda x: x[part], sample))[0]  # noqa: B023
        for part in (slice(6), slice(3), slice(3, 6))
    )
    mean = jax.tree.map(lambda x, y: (x + y) / 2, first, second)
    chex.assert_trees_all_close(whole, mean, rtol=1e-4, atol=1e-6)


def test_without_distributions_one_step_is_td_by_hand():
    config = Config(
        distributional=False, sequence_length=2, discount=0.5, entropy_cost=0.0, policy_epsilon=0.2
    )
    optimizer = optax.sgd(1.0)
    agent = jitted(make_agent(SPEC, config, network=reactor_network(config), optimizer=optimizer))
    learner = agent.init(jax.random.key(0))
    rows = random_rows(3, 1, 2, ends=0.0)
    new, update = agents.update(agent)(learner, as_sample(rows))
    x, a = rows["observation"][0], rows["action"][0, 0]
    params = jax.tree.map(np.asarray, learner.params)
    pi = mixed(np.asarray(jax.nn.softmax(x[1] @ params["policy"])), config)
    q = np.einsum("td,dan->ta", x, params["value"])
    reward = np.clip(rows["reward"][0, 1], -1, 1)
    td = reward + 0.5 * pi @ q[1] - q[0, a]
    np.testing.assert_allclose(update.priorities, [abs(td)], rtol=1e-5)
    expected = params["value"].copy()
    expected[:, a, 0] += td * x[0]
    np.testing.assert_allclose(new.params["value"], expected, atol=1e-5)


@pytest.mark.parametrize("each", VARIANTS, ids=str)
def test_padding_and_what_is_behind_a_last_row_do_not_matter(each):
    agent = variant(*each)
    learner = with_other_target(agent, 0)
    samples = ended_samples("discrete", memories(agent))
    results = [agents.update(agent)(learner, sample) for sample in samples]
    chex.assert_trees_all_close(results[0], results[1], rtol=1e-5, atol=1e-6)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(results))


def test_truncation_bootstraps_and_termination_does_not():
    agent = variant("small", "stored")
    learner, rows = agent.init(jax.random.key(0)), random_rows(0, 2, 8, ends=0.0)
    rows["is_last"][:, 7] = True

    # Not the new parameters: Adam makes steps of equal size of gradients that differ by rounding.
    def gradients_with(discount, last_observation):
        changed = {k: v.copy() for k, v in rows.items()} | memories(agent)
        changed["discount"][:, 7] = discount
        changed["observation"][:, 7] = last_observation
        return agent.gradients(learner, as_sample(changed))[0]

    chex.assert_trees_all_close(gradients_with(0.0, 1.0), gradients_with(0.0, -2.0), atol=1e-6)
    difference = jax.tree.map(
        lambda x, y: np.abs(x - y).max(), gradients_with(1.0, 1.0), gradients_with(1.0, -2.0)
    )
    assert max(jax.tree.leaves(difference)) > 1e-3


def test_target_network_is_copied_every_period():
    agent = variant("small", "stored")
    learner = agent.init(jax.random.key(0))
    start = learner.params
    sample = as_sample(random_rows(0, 2, 8) | memories(agent))
    for number in range(1, 7):
        learner, _ = agents.update(agent)(learner, sample)
        if number == 2:
            chex.assert_trees_all_equal(learner.target_params, start)
        if number in (3, 6):
            chex.assert_trees_all_equal(learner.target_params, learner.params)
        if number in (1, 2, 4, 5):
            with pytest.raises(AssertionError):
                chex.assert_trees_all_equal(learner.target_params, learner.params)


@pytest.mark.parametrize("each", VARIANTS, ids=str)
def test_compiles_once_for_every_kind_of_preset(each):
    """States before and after an update are alike, and rows are those that the agent declares."""
    agent = variant(*each)
    learner = agent.init(jax.random.key(0))
    for number in range(3):
        new, result = agents.update(agent)(learner, acted(agent, learner, 2, 8))
        assert avals(new) == avals(learner)
        assert np.isfinite(result.priorities).all()
        assert (result.priorities >= 0).all()
        assert new.num_updates == number + 1
        learner = new


@pytest.mark.parametrize("preset", sorted(reactor.PRESETS))
def test_every_preset_has_an_agent(preset):
    config = dataclasses.replace(reactor.PRESETS[preset](), scale_rewards=False)
    agent = make_agent(SPEC, config)
    learner = jax.eval_shape(agent.init, jax.random.key(0))
    chex.assert_trees_all_equal_shapes_and_dtypes(learner.params, learner.target_params)


def test_exploration_follows_the_policy_and_records_it():
    agent, _ = linear_agent(policy_epsilon=0.3)
    params = agent.init(jax.random.key(4)).params
    actors, decision = decisions(agent, params)
    mu = np.asarray(decision.extras["mu"][0], np.float64)
    assert mu.min() >= 0.3 / A - 1e-6
    counts = np.bincount(decision.action, minlength=A)
    deviation = (counts - 4000 * mu) / np.sqrt(4000 * mu * (1 - mu))
    assert np.abs(deviation).max() < 4
    keys = jax.random.key_data(decision.state.key)
    assert (keys != jax.random.key_data(actors.key)).any(), "keys are never used twice"
    exploit = jax.jit(jax.vmap(agent.exploit, in_axes=(None, 0, None)))
    assert (exploit(params, actors, timestep()).action == mu.argmax()).all()


def test_acting_step_by_step_is_the_learners_unroll():
    agent = variant("small", "stored")
    network = reactor.agent._make_network(SPEC, small())
    params = agent.init(jax.random.key(0)).params
    observations = np.random.default_rng(0).normal(size=(6, D)).astype(np.float32)
    step_types = np.array([0, 1, 2, 0, 1, 1], np.int32)
    actor = agent.begin(jax.random.key(0), 0, 1)
    policies, seen = [], []
    for observation, step_type in zip(observations, step_types, strict=True):
        decision = agent.explore(params, actor, timestep(step_type, observation))
        policies.append(decision.extras["mu"])
        seen.append(decision.extras["memory"])
        actor = decision.state
    unroll = jax.jit(network.unroll)
    whole, _ = unroll(params, observations, step_types == 0, network.initial_state())
    np.testing.assert_allclose(np.stack(policies), whole.policy, atol=1e-6)
    # From the stored memory before t = 2, the rest is the same: it is not one step off.
    rest, _ = unroll(params, observations[2:], step_types[2:] == 0, seen[2])
    np.testing.assert_allclose(rest.policy, whole.policy[2:], atol=1e-6)


def test_a_torso_of_ones_own_takes_the_place_of_the_default_one():
    """One that equals the default torso gives the same update, and observes anything."""
    config = small(initial_state="stored", target_update_period=3)
    torso = lambda: VectorTorso((8,), name="torso")  # noqa: E731
    results = []
    for agent in (variant("small", "stored"), jitted(make_agent(SPEC, config, torso=torso))):
        sample = as_sample(random_rows(0, 2, 8) | memories(agent))
        results.append(agents.update(agent)(agent.init(jax.random.key(0)), sample))
    chex.assert_trees_all_equal(*results)

    def flat_linear():
        return hk.Sequential([hk.Flatten(), lambda x: x / 255.0, hk.Linear(5, name="own")])

    tiny_images = SPEC._replace(observations=specs.Array((2, 3, 1), np.uint8))
    agent = make_agent(tiny_images, config, torso=flat_linear)
    params = jax.eval_shape(agent.init, jax.random.key(0)).params
    assert params["reactor_module/~/own"]["w"].shape == (6, 5)
    assert params["reactor_module/~/shared"]["w"].shape == (5, 8)
    assert not any("torso" in name for name in params)


def test_the_readmes_example_makes_an_agent():
    text = (Path(reactor.__file__).parent / "README.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    names = {}
    exec(compile(block, "README.md", "exec"), names)
    agent = names["MINE"].make_agent(SPEC, small())
    params = jax.eval_shape(agent.init, jax.random.key(0)).params
    assert params["reactor_module/~/linear"]["w"].shape == (D, 64)


def test_a_torso_of_another_shape_is_refused_before_training():
    with pytest.raises(ValueError, match=r"features \[T, D\], got .*shape=\(2, 2, 2\)"):
        make_agent(SPEC, small(), torso=lambda: lambda x: x.reshape(-1, 2, 2))
    network = reactor_network(small())
    with pytest.raises(ValueError, match="give one of the two"):
        make_agent(SPEC, small(), network=network, torso=lambda: VectorTorso((8,)))


def test_the_entry_has_the_agent_and_its_steps():
    assert AGENT.name == "reactor"
    assert AGENT.presets is reactor.PRESETS
    assert AGENT.default_preset("memory", SPEC) == "small"
    assert AGENT.default_steps("memory", "small") == 20_000
    assert AGENT.default_steps("Acrobot-v1", "small") == 200_000
    assert AGENT.default_steps("ALE/Pong-v5", "paper") == 50_000_000
    mine = AGENT.override("mine", torso=lambda: VectorTorso((7,), name="mine"))
    agent = mine.make_agent(SPEC, small())
    assert agent.sequence == make_agent(SPEC, small()).sequence
    params = jax.eval_shape(agent.init, jax.random.key(0)).params
    assert "reactor_module/~/mine/~/linear" in params


def test_continuous_actions_are_refused():
    spec = SPEC._replace(actions=specs.BoundedArray((2,), np.float32, -1, 1))
    with pytest.raises(ValueError, match=r"Reactor needs discrete actions .* got BoundedArray"):
        make_agent(spec, small())


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (specs.Array((4,), np.int64), r"shape \(4,\) and dtype int64: allowed are uint8 images"),
        (specs.Array((), np.float32), "arrays with at least one entry"),
        (specs.Array((0,), np.float32), "arrays with at least one entry"),
        (specs.Array((10, 10, 1), np.uint8), "side of 10 pixels is too small for convolutions"),
    ],
)
def test_observations_that_no_network_takes_are_refused(observation, message):
    with pytest.raises(ValueError, match=message):
        make_agent(SPEC._replace(observations=observation), Config.paper())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"policy_gradient": "loo"},
            "policy_gradient must be one of beta_loo, tislr, islr, got 'loo'",
        ),
        ({"policy_gradient_cap": 0.5}, r"policy_gradient_cap must be a number >= 1.0, got 0.5"),
        ({"retrace_lambda": 1.5}, r"retrace_lambda must be a number >= 0.0 and <= 1.0, got 1.5"),
        ({"discount": float("nan")}, "discount must be .* got nan"),
        ({"num_atoms": 1}, "num_atoms must be an integer >= 2, got 1"),
        ({"vmin": 1.0, "vmax": 1.0}, "vmin must be less than vmax, got vmin 1.0, vmax 1.0"),
        ({"vmax": float("inf")}, "vmax must be .* got inf"),
        ({"policy_epsilon": 0.0}, r"policy_epsilon must be a number > 0.0 and < 1.0, got 0.0"),
        ({"learning_rate": 0.0}, "learning_rate must be a number > 0.0 and <= 1.0, got 0.0"),
        ({"sequence_length": 1}, "sequence_length must be an integer >= 2, got 1"),
        ({"target_update_period": 0}, "target_update_period must be an integer >= 1, got 0"),
        ({"adam_b1": 1.0}, r"adam_b1 must be a number >= 0.0 and < 1.0, got 1.0"),
        ({"num_atoms": 2.5}, "num_atoms must be an integer >= 2, got 2.5"),
        ({"shared_size": None}, "shared_size must be an integer >= 1, got None"),
        ({"vector_sizes": (0,)}, r"vector_sizes must be a tuple of integers >= 1, got \(0,\)"),
        ({"recurrent": "no"}, "recurrent must be one of True, False, got 'no'"),
        ({"initial_state": "warm"}, "initial_state must be one of zero, stored, got 'warm'"),
        (
            {"replay": ReplayConfig(capacity=20, min_rows=5)},
            "capacity must hold one sequence of 33 rows",
        ),
    ],
)
def test_wrong_configs_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Config(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"selector": "random"}, "selector must be one of uniform, proportional, contextual"),
        ({"capacity": 0}, "capacity must be an integer >= 1, got 0"),
        ({"min_rows": 0}, "min_rows must be an integer >= 1, got 0"),
        (
            {"min_rows": 1_000_001},
            "min_rows must be an integer >= 1 and <= 1000000, got 1000001",
        ),
        ({"batch_size": 0}, "batch_size must be an integer >= 1"),
        ({"acting_steps_per_update": 0.0}, "acting_steps_per_update must be a number > 0.0"),
        ({"importance_exponent": 1.1}, "importance_exponent must be a number >= 0.0 and <= 1.0"),
        ({"uniform_fraction": -0.1}, "uniform_fraction must be a number >= 0.0 and <= 1.0"),
    ],
)
def test_wrong_replay_configs_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        ReplayConfig(**changes)


def test_ablations_differ_from_the_paper_in_one_field():
    from retrax.run_directory.config_file import differences

    for name in ("non_distributional", "tislr", "uniform_replay", "proportional_replay"):
        assert len(differences(Config.paper(), reactor.PRESETS[name]())) == 1, name
