"""Properties of all four agents that are not in the contract: see test_check_agent.py for it."""

import re
from pathlib import Path

import chex
import jax
import numpy as np
import pytest
import tyro
from dm_env import specs
from linear_agents import KINDS, PACKAGES, SPECS, first_state, random_sample, tiny_agent

from retrax.agents import base
from retrax.agents.optimization import gradient_metrics
from retrax.datatypes import ReplayConfig
from retrax.training.config_file import differences

NAMES = sorted(PACKAGES)
# So that the gradients of a batch are means, and targets are copied soon.
CHANGES = {
    "acer": {},
    "agent57": {"intrinsic_rewards": "stored", "target_update_period": 3},
    "d4pg": {"target_update_period": 3},
    "reactor": {"target_update_period": 3},
}
# What each norm of gradients is of.
PARTS = {
    "acer": lambda gradients: {"": gradients},
    "agent57": lambda gradients: {f"{name}_": part for name, part in gradients.values.items()},
    "d4pg": lambda gradients: {
        "critic_": (gradients.torso, gradients.critic),
        "policy_": gradients.policy,
    },
    "reactor": lambda gradients: {"": gradients},
}


def spec_of(name):
    return SPECS[KINDS[name][0]]


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_two_halves_average_to_those_of_the_batch(name):
    """What a parameter server and several devices rely on."""
    agent, _ = tiny_agent(name, **CHANGES[name])
    learner = first_state(agent)
    sample = random_sample(agent, spec_of(name), 0, batch=6, ends=[9, 3, 2, 1, 9, 3])
    sample = sample._replace(weights=np.linspace(0.5, 2.0, 6, dtype=np.float32))
    whole, update = agent.gradients(learner, sample)
    for prefix, part in PARTS[name](whole).items():
        for metric, value in gradient_metrics(part, prefix).items():
            np.testing.assert_allclose(update.metrics[metric], value, rtol=1e-5)
    (one, first), (other, second) = (
        agent.gradients(learner, jax.tree.map(lambda x, part=part: x[part], sample))
        for part in (slice(3), slice(3, 6))
    )
    mean = jax.tree.map(lambda x, y: (x + y) / 2, one, other)
    tolerance = 1e-5 if name == "agent57" else 1e-6
    chex.assert_trees_all_close(mean, whole, rtol=1e-4, atol=tolerance)
    priorities = np.concatenate([first.priorities, second.priorities])
    np.testing.assert_allclose(priorities, update.priorities, rtol=1e-5)


@pytest.mark.parametrize("name", ["agent57", "d4pg", "reactor"])
def test_target_networks_are_copied_every_period(name):
    agent, _ = tiny_agent(name, **CHANGES[name])
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
def test_every_preset_has_an_agent(name, preset):
    """Traced, not compiled: see test_check_agent.py for the graphs."""
    config = PACKAGES[name].PRESETS[preset]()
    for kind in KINDS[name]:
        agent = PACKAGES[name].make_agent(SPECS[kind], config)
        assert jax.tree.leaves(jax.eval_shape(agent.init, jax.random.key(0)))


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
        ("d4pg", specs.DiscreteArray(3), r"D4PG needs continuous actions .* got DiscreteArray"),
        ("d4pg", UNBOUNDED, r"D4PG needs actions with finite bounds, .* got Array"),
        ("d4pg", bounded(-1, np.inf), "actions with finite bounds"),
        ("d4pg", bounded([0, 1], [1, 1]), "minimum below its maximum"),
        ("d4pg", bounded(0, 1, dtype=np.int32), r"continuous actions .* got BoundedArray"),
        ("reactor", bounded(-1, 1), r"Reactor needs discrete actions .* got BoundedArray"),
    ],
)
def test_wrong_actions_are_refused(name, actions, message):
    spec = spec_of(name)._replace(actions=actions)
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


WRONG = {
    "acer": [
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
    "agent57": [
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
    "d4pg": [
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
    "reactor": [
        (
            {"policy_gradient": "loo"},
            "policy_gradient must be one of beta_loo, tislr, islr, got 'loo'",
        ),
        ({"policy_gradient_cap": 0.5}, r"policy_gradient_cap must be a number >= 1.0, got 0.5"),
        ({"retrace_lambda": 1.5}, r"retrace_lambda must be a number >= 0.0 and <= 1.0, got 1.5"),
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
}


@pytest.mark.parametrize(
    ("name", "changes", "message"), [(name, *row) for name in NAMES for row in WRONG[name]]
)
def test_wrong_configs_are_refused(name, changes, message):
    with pytest.raises(ValueError, match=message):
        PACKAGES[name].Config(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"selector": "random"}, "selector must be one of uniform, proportional, contextual"),
        ({"capacity": 0}, "capacity must be an integer >= 1, got 0"),
        ({"min_rows": 0}, "min_rows must be an integer >= 1, got 0"),
        ({"min_rows": 1_000_001}, "min_rows must be an integer >= 1 and <= 1000000, got 1000001"),
        ({"batch_size": 0}, "batch_size must be an integer >= 1"),
        ({"acting_steps_per_update": 0.0}, "acting_steps_per_update must be a number > 0.0"),
        ({"importance_exponent": 1.1}, "importance_exponent must be a number >= 0.0 and <= 1.0"),
        ({"uniform_fraction": -0.1}, "uniform_fraction must be a number >= 0.0 and <= 1.0"),
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
def test_wrong_replay_configs_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        ReplayConfig(**changes)
