"""D4PG's networks: sizes, bounds, where the action enters, pixels, all against NumPy."""

import functools

import jax
import numpy as np
import oracles
import pytest
from compiled_networks import compiled, dense, random_params
from dm_env import specs

from retrax.agents.d4pg import Config, make_agent
from retrax.datatypes import EnvironmentSpec
from retrax.networks import make_d4pg_networks

D, A, P, B = 4, 2, 3, 5
VECTORS = specs.Array((D,), np.float32)
LOW, HIGH = np.array([-3.0, 2.0], np.float32), np.array([-1.0, 10.0], np.float32)
ACTIONS = specs.BoundedArray((A,), np.float32, LOW, HIGH)
RESIDUAL = {
    "residual": True, "action_input": "concatenated", "policy_sizes": (6, 6), "critic_sizes": (7, 7)
}  # fmt: skip

PIXELS = {
    "pixel_torso/~/conv2_d": (3, 3, 9, 32),
    "pixel_torso/~/conv2_d_1": (3, 3, 32, 32),
    "pixel_torso/~/output/~/linear": (39 * 39 * 32, 50),
}


def make_networks(observation=VECTORS, actions=ACTIONS, **changes):
    sizes = {"num_outputs": P, "policy_sizes": (6, 5), "critic_sizes": (7, 6)}
    networks = make_d4pg_networks(observation, actions, **(sizes | changes))
    torso, policy, critic = map(compiled, networks[:3])
    return networks._replace(
        torso=torso, policy=policy, critic=critic, squash=jax.jit(networks.squash)
    )


def random_batch(seed=0):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(B, D)).astype(np.float32)
    return features, rng.uniform(LOW, HIGH, size=(B, A)).astype(np.float32)


def layer_norm_of(params, prefix, x):
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return x * params[f"{prefix}layer_norm"]["scale"] + params[f"{prefix}layer_norm"]["offset"]


def normed(params, prefix, x):
    return np.tanh(layer_norm_of(params, f"{prefix}/~/", dense(params, f"{prefix}/~/linear", x)))


def hidden_layers(params, prefix, x, layer_norm, added=0.0, residual=False):
    """Two of them; `added` to the second one before its ReLU."""
    first, second = f"{prefix}hidden_1", f"{prefix}hidden_2"
    x = normed(params, first, x) if layer_norm else dense(params, first, x)
    if residual:
        units = dense(params, f"{second}/inner", layer_norm_of(params, f"{second}/", x))
        x = x + dense(params, f"{second}/outer", np.maximum(units, 0))
        return layer_norm_of(params, prefix, x)
    x = x if layer_norm else np.maximum(x, 0)
    return np.maximum(dense(params, second, x) + added, 0)


def shapes(params):
    return {name: layer["w"].shape for name, layer in params.items() if "w" in layer}


@pytest.mark.parametrize(
    ("observation", "config", "torso", "num_features", "num_atoms"),
    [
        (specs.Array((17,), np.float32), Config.control_suite(), {}, 17, 101),
        (specs.Array((84, 84, 9), np.uint8), Config(), PIXELS, 50, 51),
    ],
)
def test_sizes_are_the_papers(observation, config, torso, num_features, num_atoms):
    spec = EnvironmentSpec(observation, specs.BoundedArray((6,), np.float32, -1, 1))
    params = jax.eval_shape(make_agent(spec, config).init, jax.random.key(0)).params
    assert shapes(params.torso) == torso
    assert shapes(params.policy) == {
        "policy_module/~/hidden_1": (num_features, 300),
        "policy_module/~/hidden_2": (300, 200),
        "policy_module/~/output": (200, 6),
    }
    assert shapes(params.critic) == {
        "critic_module/~/hidden_1": (num_features, 400),
        "critic_module/~/hidden_2": (400, 300),
        "critic_module/~/action": (6, 300),
        "critic_module/~/output": (300, num_atoms),
    }


@pytest.mark.parametrize(("layer_norm", "changes"), [(False, {}), (True, {}), (False, RESIDUAL)])
def test_policy_is_its_definition(layer_norm, changes):
    networks = make_networks(layer_norm=layer_norm, **changes)
    params, (features, _) = random_params(networks.policy), random_batch()
    features, is_residual = features.astype(np.float64), changes is RESIDUAL
    x = hidden_layers(params, "policy_module/~/", features, layer_norm, residual=is_residual)
    outputs = dense(params, "policy_module/~/output", x)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
    close(networks.policy.apply(params, features), outputs)
    close(networks.squash(outputs), LOW + (np.tanh(outputs) + 1) / 2 * (HIGH - LOW))
    close(networks.action(params, features), networks.squash(outputs))


def test_policy_begins_in_the_middle_and_reaches_both_bounds():
    networks = make_networks()
    features, _ = random_batch()
    params = networks.policy.init(jax.random.key(0))
    np.testing.assert_allclose(networks.action(params, features), [[-2.0, 6.0]] * B, atol=0.1)
    for sign, bound in ((-1.0, LOW), (1.0, HIGH)):
        params["policy_module/~/output"]["b"] = np.full(A, 100.0 * sign, np.float32)
        np.testing.assert_allclose(networks.action(params, features), [bound] * B, rtol=1e-6)


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("action_input", ["second_layer", "concatenated", "residual"])
def test_critic_is_its_definition(action_input, layer_norm):
    changes = RESIDUAL if action_input == "residual" else {"action_input": action_input}
    critic = make_networks(layer_norm=layer_norm, **changes).critic
    params, (features, actions) = random_params(critic), random_batch()
    unit = (actions.astype(np.float64) - LOW) / (HIGH - LOW) * 2 - 1
    x, prefix, added = features.astype(np.float64), "critic_module/~/", 0.0
    if action_input == "second_layer":
        added = dense(params, f"{prefix}action", unit)
    else:
        x = np.concatenate([x, unit], axis=-1)
    x = hidden_layers(params, prefix, x, layer_norm, added, action_input == "residual")
    expected = dense(params, f"{prefix}output", x)
    found = critic.apply(params, features, actions)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_pixel_torso_is_its_definition():
    observation = specs.Array((7, 8, 2), np.uint8)
    torso = make_networks(observation, convolutions=((3, 3, 2), (2, 2, 1)), pixel_features=4).torso
    params = random_params(torso)
    images = np.random.default_rng(0).integers(0, 256, (2, 7, 8, 2), np.uint8)
    prefix = "pixel_torso/~/"
    expected = []
    for image in images:
        x = image / 255.0
        for name, stride in ((f"{prefix}conv2_d", 2), (f"{prefix}conv2_d_1", 1)):
            x = oracles.valid_convolution(x, params[name]["w"], params[name]["b"], stride)
            x = np.where(x > 0, x, np.exp(x) - 1)
        expected.append(normed(params, f"{prefix}output", x.reshape(-1)))
    found = torso.apply(params, images)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(2, 1), ()])
def test_vectors_and_actions_of_any_rank_are_flattened(shape):
    actions = specs.BoundedArray(shape, np.float32, -1.0, 3.0)
    networks = make_networks(specs.Array((2, 2), np.float32), actions)
    assert networks.torso.init(jax.random.key(0)) == {}
    vectors = np.arange(20.0, dtype=np.float32).reshape(B, 2, 2)
    features = networks.torso.apply({}, vectors)
    np.testing.assert_array_equal(features, vectors.reshape(B, 4))
    chosen = networks.action(random_params(networks.policy), features)
    assert chosen.shape == (B, *shape)
    assert networks.critic.apply(random_params(networks.critic), features, chosen).shape == (B, P)
