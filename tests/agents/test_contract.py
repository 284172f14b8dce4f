"""Properties of all four agents that are not in the contract: see test_check_agent.py for it."""

import ast
import functools
import re
from pathlib import Path

import chex
import jax
import numpy as np
import pytest
import tyro
from dm_env import specs
from linear_agents import (
    KINDS,
    PACKAGES,
    SPECS,
    agent57_config,
    agent57_networks,
    first_state,
    jitted,
    linear_agent,
    random_sample,
    tiny_agent,
)

from retrax.agents import agent57, base
from retrax.agents.optimization import gradient_metrics
from retrax.datatypes import ReplayConfig
from retrax.training.run_config import differences

NAMES = sorted(PACKAGES)
# What each norm of gradients is of.
PARTS = {
    "acer": lambda gradients: {"": gradients},
    "agent57": lambda gradients: {f"{x}_": gradients[x] for x in ("extrinsic", "intrinsic")},
    "d4pg": lambda gradients: {
        "critic_": (gradients.torso, gradients.critic),
        "policy_": gradients.policy,
    },
    "reactor": lambda gradients: {"": gradients},
}


@functools.cache
def agent_of(name):
    """An agent on a linear network or a tiny one, whose targets are copied soon."""
    if name == "agent57":  # with stored rewards, so that the gradients of a batch are means
        config = agent57_config(intrinsic_rewards="stored", target_update_period=3)
        return jitted(agent57.make_agent(spec_of(name), config, networks=agent57_networks()))
    changes = {} if name == "acer" else {"target_update_period": 3}
    return (tiny_agent if name == "d4pg" else linear_agent)(name, **changes)[0]


def spec_of(name):
    return SPECS[KINDS[name][0]]


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_two_halves_average_to_those_of_the_batch(name):
    """What a parameter server and several devices rely on; a half is given twice, as a batch."""
    agent = agent_of(name)
    learner = first_state(agent)
    sample = random_sample(agent, spec_of(name), 0, batch=6, ends=[9, 3, 2, 1, 9, 3])
    sample = sample._replace(weights=np.linspace(0.5, 2.0, 6, dtype=np.float32))
    whole, update = agent.gradients(learner, sample)
    for prefix, part in PARTS[name](whole).items():
        for metric, value in gradient_metrics(part, prefix).items():
            np.testing.assert_allclose(update.metrics[metric], value, rtol=1e-5)
    (one, first), (other, second) = (
        agent.gradients(learner, jax.tree.map(lambda x, half=half: x[half], sample))
        for half in ([0, 1, 2, 0, 1, 2], [3, 4, 5, 3, 4, 5])
    )
    mean = jax.tree.map(lambda x, y: (x + y) / 2, one, other)
    tolerance = 1e-5 if name == "agent57" else 1e-6
    chex.assert_trees_all_close(mean, whole, rtol=1e-4, atol=tolerance)
    priorities = np.concatenate([first.priorities[:3], second.priorities[3:]])
    np.testing.assert_allclose(priorities, update.priorities, rtol=1e-5)


@pytest.mark.parametrize("name", ["agent57", "d4pg", "reactor"])
def test_target_networks_are_copied_every_period(name):
    agent = agent_of(name)
    learner = first_state(agent)
    target, sample = learner.target_params, random_sample(agent, spec_of(name), 0, batch=6)
    for number in range(1, 7):
        learner, _ = base.update(agent)(learner, sample)
        if number in (3, 6):
            target = learner.params
        chex.assert_trees_all_equal(learner.target_params, target)
        if number not in (3, 6):
            with pytest.raises(AssertionError):
                chex.assert_trees_all_equal(target, learner.params)


@pytest.mark.parametrize(
    ("name", "preset"), [(name, preset) for name in NAMES for preset in PACKAGES[name].PRESETS]
)
def test_every_preset_has_an_agent_and_wrap_changes_it_inside_of_other_wrappers(name, preset):
    """Traced, not compiled: see test_check_agent.py for the graphs."""
    config, states = PACKAGES[name].PRESETS[preset](), []

    def wrap(agent, given):
        assert given is config
        return agent._replace(init=lambda key: states.append(agent.init(key)) or states[-1])

    for kind in KINDS[name]:
        agent = PACKAGES[name].make_agent(SPECS[kind], config, wrap=wrap)
        assert jax.tree.leaves(jax.eval_shape(agent.init, jax.random.key(0)))
        assert isinstance(states.pop(), PACKAGES[name].LearnerState)


@pytest.mark.parametrize(
    ("name", "preset", "count"),
    [("acer", "paper_mujoco", 8), ("d4pg", "paper", 5), ("reactor", "paper", 4)],
)
def test_ablations_in_a_readme_are_flags_that_change_a_preset(name, preset, count):
    readme = Path(PACKAGES[name].__file__).with_name("README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\|.*\| `(--agent\.[^`]+)` \|$", readme, re.MULTILINE)
    assert len(rows) == count
    config = PACKAGES[name].PRESETS[preset]()
    form = tyro.conf.FlagConversionOff[type(config)]
    for words in rows:
        flags = words.replace("--agent.", "--").split()
        changed = tyro.cli(form, args=flags, default=config)
        assert len(differences(config, changed)) == len(flags) // 2, words


def bounded(low, high, shape=(2,), dtype=np.float32):
    return specs.BoundedArray(shape, dtype, low, high)


UNBOUNDED = specs.Array((2,), np.float32)
ACERS = "with a finite minimum and maximum, to which its Gauss"


@pytest.mark.parametrize(
    ("name", "actions", "message"),
    [
        ("acer", bounded([-1.0, -np.inf], [1.0, 1.0]), ACERS),
        ("acer", bounded(-1.0, 1.0, shape=()), ACERS),
        ("acer", UNBOUNDED, ACERS),
        ("agent57", bounded(-1, 1), r"Agent57 needs discrete actions .* got BoundedArray"),
        ("d4pg", specs.DiscreteArray(3), "continuous actions, without action_mask, got Discr"),
        ("d4pg", UNBOUNDED, r"D4PG needs actions with finite bounds, .* got Array"),
        ("d4pg", bounded(-1, np.inf), "actions with finite bounds"),
        ("d4pg", bounded([0, 1], [1, 1]), "minimum below its maximum"),
        ("d4pg", bounded(0, 1, dtype=np.int32), r"continuous actions .* got BoundedArray"),
        ("reactor", bounded(-1, 1), r"Reactor needs discrete actions .* got BoundedArray"),
    ],
)
def test_wrong_actions_are_refused(name, actions, message):
    spec = spec_of(name)._replace(actions=actions, masks_actions=hasattr(actions, "num_values"))
    with pytest.raises(ValueError, match=message):
        PACKAGES[name].make_agent(spec, PACKAGES[name].Config.small())


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (specs.Array((4,), np.int64), r"and dtype int64: allowed are uint8 images"),
        (specs.Array((0,), np.float32), "arrays with at least one entry"),
        (specs.Array((3, 3, 1), np.uint8), "side of 3 pixels is too small for convolutions"),
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_observations_that_no_network_takes_are_refused(name, observation, message):
    with pytest.raises(ValueError, match=message):
        PACKAGES[name].make_agent(
            spec_of(name)._replace(observations=observation), PACKAGES[name].Config()
        )


CONFIGS = {name: package.Config for name, package in PACKAGES.items()} | {"replay": ReplayConfig}
# What is allowed, and fields with values that are not.
REFUSED = {
    "a number": "d4pg.vmin -1e400, reactor.vmax 1e400",
    "a number > 0.0": "acer.delta -1.0, agent57.network_scale 0.0, d4pg.mixture_min_scale 0.0",
    "a number > 0.0 and < 1.0": "reactor.policy_epsilon 0.0",
    "a number > 0.0 and <= 1.0": "agent57.actor_epsilon 0.0, d4pg.policy_learning_rate 0.0",
    "a number > 0.0 or None": "d4pg.max_action_gradient_norm 0.0",
    "a number >= 0.0": "d4pg.sigma -0.1, replay.replay_ratio -1.0",
    "a number >= 0.0 and < 1.0": "agent57.discount_high 1.0, reactor.adam_b1 1.0",
    "a number >= 0.0 and <= 1.0": "acer.average_decay 1.1, replay.uniform_fraction -0.1",
    "a number >= 1.0": "agent57.max_modulator 0.5, reactor.policy_gradient_cap 0.5",
    "an integer >= 0": "acer.memory_size -1, agent57.burn_in -1",
    "an integer >= 0 and <= 31": "agent57.evaluation_arm 32",
    "an integer >= 1": "d4pg.n_step 0, reactor.shared_size None, replay.updates_per_call 0",
    "an integer >= 1 and <= 160": "agent57.replay_period 161",
    "an integer >= 1 and <= 30000": "agent57.num_neighbours 30001",
    "at most the capacity, 1000000": "replay.min_rows 1000001",
    "an integer >= 2": "acer.sequence_length 1, d4pg.num_atoms 1, reactor.num_atoms 2.5",
    "an integer >= 32": "agent57.bandit_window 31",
    "a tuple of integers >= 1": "agent57.vector_sizes (0,), reactor.vector_sizes (0,)",
    "a tuple of integers >= 1, at least 1 of them": "d4pg.policy_sizes ()",
    "a tuple of integers >= 1, at least 2 of them": "d4pg.critic_sizes (3,)",
    "a tuple of tuples of 3 integers >= 1 or None": "acer.convolutions (16,8,4)",
    "one of True, False": "acer.trust_region 'no', d4pg.layer_norm 3, replay.on_policy 1.5",
    "one of acer, tis": "acer.estimator 'a2c'",
    "one of split, mixed, extrinsic": "agent57.values 'both'",
    "one of episode, step": "agent57.embedding_refresh 400",
    "one of uniform, proportional, contextual": "replay.selector 'random'",
}


@pytest.mark.parametrize(
    ("allowed", "case"), [(key, case) for key in REFUSED for case in REFUSED[key].split(", ")]
)
def test_values_out_of_range_are_refused(allowed, case):
    where, text = case.split(" ")
    name, field = where.split(".")
    value = ast.literal_eval(text)
    sentence = f"{CONFIGS[name].__name__}.{field} must be {allowed}, got {value!r}."
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        CONFIGS[name](**{field: value})


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("acer", {"replay": ReplayConfig()}, "pace must be rounds for ACER, got 'steady'"),
        ("agent57", {"discount_low": 0.998}, "low must not increase, got 0.9999, 0.997, 0.998"),
        ("agent57", {"replay": ReplayConfig(capacity=99, min_rows=5)}, "an integer >= 161, got 99"),
        ("d4pg", {"vmin": 1.0, "vmax": 1.0}, "Config.vmax must be a number > 1.0, got 1.0"),
        ("d4pg", {"residual": True}, r"equal policy_sizes \(300, 200\), .*, got 'second_layer'"),
        ("d4pg", {"sigma_min": 0.5, "sigma_max": 0.4}, "max must be a number >= 0.5, got 0.4"),
        ("reactor", {"vmin": 1.0, "vmax": 1.0}, "vmax must be a number > 1.0, got 1.0"),
        ("reactor", {"replay": ReplayConfig(capacity=20, min_rows=5)}, "integer >= 33, got 20"),
        ("replay", {"replay_ratio": 0.0, "pace": "rounds"}, "be > 0 if on_policy is False, got 0"),
        ("replay", {"on_policy": True}, "pace must be rounds if on_policy is True, got 'steady'"),
    ],
)
def test_values_that_do_not_fit_each_other_are_refused(name, changes, message):
    with pytest.raises(ValueError, match=message):
        CONFIGS[name](**changes)
