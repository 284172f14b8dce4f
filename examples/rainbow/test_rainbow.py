import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs

import rainbow
import retrax
from rainbow.network import make_network
from retrax.datatypes import Row, Sample
from retrax.environments import make
from retrax.testing import check_agent, check_agent_shapes

pytestmark = pytest.mark.once
SPEC = make("catch").spec
TINY = dataclasses.replace(
    rainbow.PRESETS["small"](), n_step=2, num_atoms=5, vmin=-2.0, vmax=2.0, hidden_size=8
)


def test_it_keeps_the_contract():
    check_agent(rainbow.make_agent(SPEC, TINY), SPEC, entry=rainbow.AGENT)


def test_it_takes_images():
    image = specs.BoundedArray((84, 84, 4), np.uint8, 0, 255)
    spec = SPEC._replace(observations=image)
    assert rainbow.AGENT.default_preset("ALE/Pong-v5", spec) == "paper"
    check_agent_shapes(rainbow.make_agent(spec, rainbow.PRESETS["paper"]()), spec)


def test_logits_are_the_definition():
    """V + A - mean_a A, with loops over actions and atoms."""
    network = make_network(specs.Array((4,), np.float32), num_actions=3, num_atoms=5, hidden_size=7)
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), shapes)
    x = rng.normal(size=(2, 4)).astype(np.float32)

    def layer(name, x):
        [weights] = [w for path, w in params.items() if path.endswith(name)]
        return x @ np.float64(weights["w"]) + weights["b"]

    features = np.maximum(layer("torso/~/linear", x), 0)
    value, advantage = (
        layer(f"{name}_output", np.maximum(layer(f"{name}_hidden", features), 0))
        for name in ("value", "advantage")
    )
    logits = network.apply(params, x)
    assert logits.shape == (2, 3, 5)
    for b, a, n in np.ndindex(2, 3, 5):
        of_actions = [advantage[b, other * 5 + n] for other in range(3)]
        expected = value[b, n] + of_actions[a] - sum(of_actions) / 3
        np.testing.assert_allclose(logits[b, a, n], expected, rtol=1e-4, atol=1e-4)


def test_sizes_for_images_are_the_papers():
    """DQN's convolutions, 512 units in each stream, 51 atoms; 18 actions."""
    image = specs.Array((84, 84, 4), np.uint8)
    network = make_network(image, num_actions=18, num_atoms=51, hidden_size=512)
    params = jax.eval_shape(network.init, jax.random.key(0))
    convolutions = [(8, 8, 4, 32), (4, 4, 32, 64), (3, 3, 64, 64)]
    streams = [(7 * 7 * 64, 512)] * 2 + [(512, 51), (512, 18 * 51)]
    assert sorted(layer["w"].shape for layer in params.values()) == sorted(convolutions + streams)


def sample(**changes):
    """One sequence of two steps."""
    rows = Row(
        observation=np.zeros((1, 3, 50), np.float32),
        reward=np.array([[0.0, 0.5, 0.5]], np.float32),
        discount=np.ones((1, 3), np.float32),
        is_first=np.array([[True, False, False]]),
        is_last=np.zeros((1, 3), bool),
        action=np.array([[1, 0, 0]], np.int32),
        extras={},
    )
    rows = rows._replace(**changes)
    return Sample(rows, np.ones(1, np.float32), np.ones((1, 3), bool))


# Its logits are its parameters, for all observations.
TABLE = rainbow.agent.Network(
    init=lambda key: jnp.zeros((3, 5)),
    apply=lambda params, batch: jnp.broadcast_to(params, (len(batch), 3, 5)),
)


def test_the_papers_periods_are_those_of_its_frames():
    """Table 1 of the paper, in frames: four are an agent step."""
    config = rainbow.PRESETS["paper"]()
    frames_per_update = 4 * config.replay.acting_steps_per_update
    assert 4 * config.epsilon_steps == 250_000
    assert frames_per_update * config.target_update_period == 32_000
    assert frames_per_update * config.importance_updates == 200_000_000
    assert 4 * config.replay.min_rows == 80_000


@pytest.mark.parametrize(("discount", "target"), [(1.0, [0, 0, 0, 0, 1]), (0.0, [0, 0, 0, 1, 0])])
def test_targets_are_those_of_double_q_learning(discount, target):
    """The online network prefers action 2; in the target network its return is 2 (atom 4)."""
    config = dataclasses.replace(TINY, discount=1.0)
    agent = rainbow.make_agent(SPEC, config, network=TABLE)
    online = jnp.zeros((3, 5)).at[2, 4].set(9.0)
    other = jnp.full((3, 5), -99.0).at[0, 0].set(99).at[1, 0].set(99).at[2, 4].set(99.0)
    state = agent.init(jax.random.key(0))._replace(params=online, target_params=other)
    data = sample(discount=np.array([[1.0, 1.0, discount]], np.float32))
    grads, update = agent.gradients(state, data)
    # Of the action taken, 1, whose logits are 0: softmax less target.
    np.testing.assert_allclose(grads[1], 0.2 - np.array(target), atol=1e-6)
    np.testing.assert_allclose(grads[jnp.array([0, 2])], 0, atol=1e-6)
    np.testing.assert_allclose(update.priorities, [np.log(5)], rtol=1e-6)


def test_a_prediction_that_equals_its_target_has_priority_0():
    """Whatever its entropy: priorities are KL divergences (Hessel et al. 2018)."""
    config = dataclasses.replace(TINY, discount=1.0)
    agent = rainbow.make_agent(SPEC, config, network=TABLE)
    best = jnp.zeros((3, 5)).at[1].set(jnp.array([0.0, 0.0, 1.0, 0.0, 2.0]))
    state = agent.init(jax.random.key(0))._replace(params=best, target_params=best)
    _, update = agent.gradients(state, sample(reward=np.zeros((1, 3), np.float32)))
    np.testing.assert_allclose(update.priorities, [0.0], atol=1e-6)
    assert update.metrics["loss"] > 1


@pytest.mark.parametrize("exponent", [0.0, 0.4, 1.0])
def test_weights_are_the_definition_and_scale_updates_down_only(exponent):
    probabilities = np.array([0.5, 0.25, 0.125, 0.125])
    weights = 1 / (4 * probabilities)
    found = jax.jit(rainbow.agent.anneal_weights)(weights.astype(np.float32), exponent)
    expected = weights**exponent
    np.testing.assert_allclose(found, expected / expected.max(), rtol=1e-6)
    assert found.max() == 1


def test_the_exponent_of_the_weights_rises_linearly_to_one_and_stays():
    """Two sequences differ in their actions and weights, 1 and 4; the largest weight becomes 1."""
    config = dataclasses.replace(TINY, importance_exponent=0.4, importance_updates=100)
    agent = rainbow.make_agent(SPEC, config, network=TABLE)
    data = jax.tree.map(lambda x: np.concatenate([x, x]), sample())
    rows = data.rows._replace(action=np.array([[1, 0, 0], [0, 0, 0]], np.int32))
    data = data._replace(rows=rows, weights=np.array([1.0, 4.0], np.float32))
    for updates, beta in [(0, 0.4), (50, 0.7), (100, 1.0), (1000, 1.0)]:
        state = agent.init(jax.random.key(0))._replace(num_updates=jnp.int32(updates))
        grads, _ = agent.gradients(state, data)
        np.testing.assert_allclose(grads[1] / grads[0], 4.0**-beta, rtol=1e-5)


def test_rewards_are_clipped():
    agent = rainbow.make_agent(SPEC, TINY, network=TABLE)
    state = agent.init(jax.random.key(0))
    rewards = [sample(reward=np.array([[0, x, 0]], np.float32)) for x in (1.0, 7.0)]
    one, many = (agent.gradients(state, data)[0] for data in rewards)
    np.testing.assert_array_equal(one, many)


def test_epsilon_decreases_with_the_steps_of_all_actors():
    config = dataclasses.replace(TINY, epsilon=0.0, epsilon_steps=100)
    agent = rainbow.make_agent(SPEC, config, network=TABLE)
    params = jnp.zeros((3, 5)).at[2, 4].set(9.0)
    timestep = jax.tree.map(lambda x: x[0], make("catch").reset())

    def rate(steps):
        def greedy(key):
            state = agent.begin(key, jnp.zeros((), jnp.int32), 10)._replace(steps=jnp.int32(steps))
            return agent.explore(params, state, timestep).action == 2

        return jnp.mean(jax.vmap(greedy)(jax.random.split(jax.random.key(0), 2000)))

    found = [rate(steps) for steps in (0, 5, 10, 99)]
    np.testing.assert_allclose(found, [1 / 3, 2 / 3, 1, 1], atol=0.05)


def test_networks_and_configs_of_wrong_sizes_are_refused():
    network = make_network(SPEC.observations, num_actions=4, num_atoms=5, hidden_size=8)
    with pytest.raises(
        ValueError, match="logits must be 3 actions x 5 atoms, got 4 actions x 5 atoms"
    ):
        rainbow.make_agent(SPEC, TINY, network=network)
    with pytest.raises(ValueError, match=r"vmin must be less than vmax, got 3\.0 and 2\.0"):
        dataclasses.replace(TINY, vmin=3.0)
    replay = dataclasses.replace(TINY.replay, importance_exponent=0.5)
    with pytest.raises(ValueError, match=r"importance_exponent must be 1, got 0\.5"):
        dataclasses.replace(TINY, replay=replay)


@pytest.mark.slow
def test_it_learns_catch(tmp_path):
    config = dataclasses.replace(
        TINY,
        num_atoms=21,
        hidden_size=32,
        epsilon_steps=3_000,
        learning_rate=2e-3,
        target_update_period=50,
        replay=dataclasses.replace(TINY.replay, min_rows=300, batch_size=32),
    )
    options = {"agent": "rainbow:AGENT", "environment": "catch", "evaluate_every": 0}
    run = retrax.RunConfig(**options, steps=6_000, agent_config=config)
    retrax.train(run, tmp_path / "run", plain=True)
    assert retrax.evaluate(tmp_path / "run").mean_return > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_it_solves_cart_pole_with_its_defaults(seed, tmp_path):
    run = retrax.RunConfig(agent="rainbow:AGENT", environment="CartPole-v1", seed=seed)
    retrax.train(run, tmp_path / "run", plain=True)
    assert retrax.evaluate(tmp_path / "run", episodes=20).mean_return >= 475
