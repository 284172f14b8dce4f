"""What Reactor and ACER share: a stochastic policy, its record, its memory, torsos of one's own."""

import chex
import haiku as hk
import jax
import numpy as np
import pytest
from dm_env import StepType, specs
from linear_agents import (
    KEEP,
    MASKED,
    PACKAGES,
    SPECS,
    TINY,
    A,
    D,
    as_sample,
    decisions,
    first_state,
    jitted,
    linear_agent,
    memories_by_hand,
    mixed,
    random_rows,
    reactor_network,
    timestep,
)

from retrax.networks import VectorTorso

BOTH = ["acer", "reactor"]
BEHIND = {"acer": "hidden", "reactor": "shared", "agent57": "~/linear"}  # the layers after torsos
LENGTH = 6
# Settings with which a network's memory is stored with the rows.
STORED = {"acer": {"memory_size": 4}, "reactor": {"initial_state": "stored"}}


def small(name, **changes):
    scale = {} if name == "agent57" else {"scale_rewards": False}
    return PACKAGES[name].Config.small(**{**TINY[name], **scale, **changes})


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("acer", {"delta": 0.01}),
        ("reactor", {"initial_state": "zero"}),
        ("reactor", {"initial_state": "stored"}),
    ],
    ids=["acer", "zero", "stored"],
)
def test_both_networks_remember_from_the_initial_state_and_within_an_episode(name, changes):
    """The update is that of a network without memory that observes what this one remembers."""
    rows = random_rows("discrete", 0, 2, LENGTH)
    assert rows["is_first"].any()
    memory = np.random.default_rng(1).normal(size=(2, D)).astype(np.float32)
    is_stored = changes.get("initial_state") != "zero"
    starts = memory if is_stored else np.zeros((2, D))
    inputs = zip(rows["observation"], rows["is_first"], starts, strict=True)
    read = np.stack([memories_by_hand(*each) for each in inputs])

    agent, _ = linear_agent(name, keep=KEEP, **changes)
    forgetful, _ = linear_agent(name, **({} if name == "reactor" else changes))
    state = first_state(agent)
    expected = forgetful.gradients(state, as_sample(rows | {"observation": read}))
    found = agent.gradients(state, as_sample(rows | ({"memory": memory} if is_stored else {})))
    chex.assert_trees_all_close(found, expected, atol=1e-5)
    if name == "acer":
        assert found[1].metrics["constrained"] > 0.2


@pytest.mark.parametrize("name", BOTH)
def test_exploration_follows_the_policy_of_legal_actions_and_records_it(name):
    """The agent's own network; a mask without a legal action, as on padding, counts as none."""
    config = small(name)
    epsilon = getattr(config, "policy_epsilon", 0.0)
    free, agent = (
        jitted(PACKAGES[name].make_agent(x, config)) for x in (SPECS["discrete"], MASKED)
    )
    params = jax.tree.map(lambda x: 5 * x, agent.acting_params(agent.init(jax.random.key(4))))
    for mask in ([1, 0, 1], [0, 1, 0], [1, 1, 1], [0, 0, 0]):
        legal, seen = np.array(mask) if any(mask) else np.ones(A), np.float32([0.5, *mask])
        softmax = legal * (decisions(free, params, 1, seen)[1].extras["mu"][0] - epsilon / A)
        wanted = (1 - epsilon) * softmax / softmax.sum() + epsilon * legal / legal.sum()
        actors, decision = decisions(agent, params, 4000, seen)
        mu = np.asarray(decision.extras["mu"][0], np.float64)
        np.testing.assert_allclose(mu, wanted, atol=1e-5)
        counts = np.bincount(decision.action, minlength=A)
        assert not (mu + counts)[legal == 0].any()
        assert (np.abs(counts - 4000 * mu) <= 4 * np.sqrt(4000 * mu * (1 - mu) + 1e-9)).all()
        keys = jax.random.key_data(decision.state.key)
        assert (keys != jax.random.key_data(actors.key)).any(), "keys are never used twice"
        start = agent.begin(jax.random.key(0), 0, 1)
        assert agent.exploit(params, start, timestep(observation=seen)).action == mu.argmax()


@pytest.mark.parametrize("function", ["explore", "exploit"])
@pytest.mark.parametrize("name", BOTH)
def test_acting_remembers_within_an_episode(name, function):
    agent, config = linear_agent(name, keep=KEEP, **STORED[name])
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
        mu = mixed(mu, config) if name == "reactor" else mu
        np.testing.assert_allclose(decision.extras["mu"], mu, rtol=1e-5)
        np.testing.assert_allclose(decision.extras["memory"], before, rtol=1e-5)
        np.testing.assert_allclose(decision.state.memory, read[t], rtol=1e-5)
        if function == "exploit":
            assert decision.action == mu.argmax()
        actor, before = decision.state, read[t]


@pytest.mark.parametrize(
    ("name", "kind", "changes", "count"),
    [
        ("acer", "discrete", {}, 1),
        ("acer", "continuous", {"shared_network": False}, 2),
        ("acer", "continuous", {"stochastic_dueling": False}, 2),
        ("reactor", "discrete", {}, 1),
    ],
)
def test_a_torso_of_ones_own_takes_any_observation(name, kind, changes, count):
    """In place of each default one, which would refuse such images; chosen for an entry."""

    def torso():
        return hk.Sequential([hk.Flatten(), lambda x: x / 255.0, hk.Linear(5, name="own")])

    images = SPECS[kind]._replace(observations=specs.Array((2, 3, 1), np.uint8))
    entry = PACKAGES[name].AGENT.override("mine", torso=torso)
    state = jax.eval_shape(entry.make_agent(images, small(name, **changes)).init, jax.random.key(0))
    paths = jax.tree_util.tree_leaves_with_path(state.params)
    shapes = {jax.tree_util.keystr(path): leaf.shape for path, leaf in paths}
    assert [shape for path, shape in shapes.items() if "/own']['w']" in path] == count * [(6, 5)]
    assert not any("torso" in path for path in shapes)


@pytest.mark.parametrize("name", BOTH)
def test_a_torso_of_another_shape_is_refused_before_training(name):
    make_agent, spec, config = PACKAGES[name].make_agent, SPECS["discrete"], small(name)
    with pytest.raises(ValueError, match=r"features \[T, D\], got .*shape=\(2, 2, 2\)"):
        make_agent(spec, config, torso=lambda: lambda x: x.reshape(-1, 2, 2))
    network = reactor_network(small("reactor"))
    with pytest.raises(ValueError, match="give one of the two"):
        make_agent(spec, config, network=network, torso=lambda: VectorTorso((8,)))


@pytest.mark.parametrize(("name", "layer"), BEHIND.items())
def test_an_orthogonal_gain_keeps_the_size_of_features(name, layer):
    """Columns of the convolutions and of the layer behind them are orthogonal, of length 3."""
    image = SPECS["discrete"]._replace(observations=specs.Array((20, 20, 1), np.uint8))
    config = small(name, convolutions=((4, 4, 2), (8, 3, 1)), orthogonal_gain=3.0)
    agent = PACKAGES[name].make_agent(image, config)
    params = jax.jit(agent.init)(jax.random.key(0)).params
    modules, _ = jax.tree.flatten_with_path(params, is_leaf=lambda x: "w" in x)
    found = [x for path, x in modules if "torso" in str(path) or f"/{layer}'" in str(path)]
    assert len(found) == (6 if name == "agent57" else 3)  # which has two networks
    for module in found:
        columns = module["w"].reshape(-1, module["w"].shape[-1])
        np.testing.assert_allclose(columns.T @ columns, 9 * np.eye(columns.shape[1]), atol=1e-5)
        np.testing.assert_array_equal(module["b"], 0)
