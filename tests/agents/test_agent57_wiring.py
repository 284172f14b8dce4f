"""Agent57: which setting reaches which part, and the values of the paper's preset."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import StepType
from linear_agents import SPECS, TINY, A, D, agent57_networks, jitted, timestep

from retrax import losses
from retrax.agents import agent57
from retrax.agents.agent57 import Config, bandit, loss, make_agent, policies
from retrax.agents.agent57.agent import Gradients
from retrax.agents.agent57.auxiliary import auxiliary_loss
from retrax.datatypes import Row, Sample
from retrax.networks import make_agent57_networks
from retrax.testing import check_agent_shapes

N = TINY["agent57"]["num_arms"]
SPEC = SPECS["discrete"]
FIRST_STEP = timestep(StepType.FIRST)


def tiny(**changes):
    return Config.small(**(TINY["agent57"] | changes))


# Acting


@functools.cache
def acting(**changes):
    """Without intrinsic rewards, which no arm's choice depends on: `begin`, explore, exploit."""
    config = tiny(
        values="extrinsic",
        bandit_epsilon=0.6,
        bandit_bonus=3.0,
        evaluator_epsilon=0.2,
        evaluation_epsilon=0.3,
        **changes,
    )
    agent = jitted(make_agent(SPEC, config, networks=agent57_networks(False)))
    params = agent.acting_params(agent.init(jax.random.key(0)))
    explore, exploit = (
        jax.jit(jax.vmap(functools.partial(act, params), in_axes=(0, None)))
        for act in (agent.explore, agent.exploit)
    )
    return agent.begin, explore, exploit


def after(empty, pulls):
    """The state of a bandit after some pulls, not more than its window."""
    arms, returns = (np.array(leaf) for leaf in (empty.arms, empty.returns))
    for slot, pull in enumerate(pulls):
        arms[slot], returns[slot] = pull
    return bandit.BanditState(arms, returns, np.int32(len(pulls)))


def states(begin, *, actor=(), evaluator=(), episodes=0, count=1500):
    """States before an episode that differ in their keys, after these pulls of each bandit."""
    state = begin(jax.random.key(0), 0, 1)
    pulls = after(state.evaluator.sampled, evaluator)
    state = state._replace(
        bandit=after(state.bandit, actor),
        evaluator=state.evaluator._replace(sampled=pulls, episodes=np.int32(episodes)),
    )
    keys = jax.random.split(jax.random.key(1), count)
    same = jax.tree.map(lambda x: np.broadcast_to(x, (count, *np.shape(x))), state._replace(key=()))
    return same._replace(key=keys)


def best_by_bonus(arm):
    """Pulls after which `arm` is best with a bonus of 3, and another with a bonus of 0 or 1.

    Bounds of `arm` and of the next one: 0 + 3 and 1 + 3 / sqrt(3) = 2.73; 0 + 1 and 1.58.
    """
    other = (arm + 1) % N
    return [(a, 0.0 if a == arm else -100.0) for a in range(N) if a != other] + [(other, 1.0)] * 3


def test_windows_of_the_two_bandits():
    begin, _, _ = acting()
    state = begin(jax.random.key(0), 0, 1)
    assert (len(state.bandit.arms), len(state.evaluator.sampled.arms)) == (20, 12)


def test_arms_of_actors_are_those_of_their_bandit_with_its_epsilon_and_bonus():
    begin, explore, _ = acting()
    before = states(begin, actor=best_by_bonus(3), evaluator=best_by_bonus(1))
    arms = np.bincount(explore(before, FIRST_STEP).extras["arm"], minlength=N) / 1500
    np.testing.assert_allclose(arms, [0.12, 0.12, 0.12, 0.52, 0.12], atol=0.05)


def test_sampled_arms_of_evaluators_are_those_of_their_bandit_with_its_epsilon_and_bonus():
    begin, _, exploit = acting()
    before = states(begin, actor=best_by_bonus(3), evaluator=best_by_bonus(1), episodes=5)
    extras = exploit(before, FIRST_STEP).extras
    assert extras["sampled_arm"].all()
    arms = np.bincount(extras["arm"], minlength=N) / 1500
    np.testing.assert_allclose(arms, [0.04, 0.84, 0.04, 0.04, 0.04], atol=0.05)


def test_epsilon_of_evaluators():
    begin, _, exploit = acting()
    before = states(begin)
    assert not np.allclose(before.epsilon, 0.3)
    extras = exploit(before, FIRST_STEP).extras
    np.testing.assert_allclose(extras["epsilon"], 0.3)
    is_greedy = np.asarray(extras["mu"]) > 0.5
    np.testing.assert_allclose(extras["mu"], np.where(is_greedy, 0.8, 0.1), rtol=1e-5)
    np.testing.assert_allclose(is_greedy.mean(), 0.8, atol=0.05)


@pytest.mark.parametrize(
    ("changes", "arm"),
    [
        ({"evaluation": "arm"}, 0),
        ({"evaluation": "arm", "evaluation_arm": 3}, 3),
        ({"evaluation": "greedy"}, 2),
    ],
)
@pytest.mark.parametrize("episodes", [0, 5])
def test_evaluation_with_one_arm(changes, arm, episodes):
    """In every episode, although another arm has a higher bound."""
    begin, _, exploit = acting(**changes)
    before = states(begin, evaluator=best_by_bonus(1), episodes=episodes, count=20)
    extras = exploit(before, FIRST_STEP).extras
    assert (extras["arm"] == arm).all()
    assert extras["greedy_arm"].all()
    assert not extras["sampled_arm"].any()


def test_an_arm_is_evaluated_by_its_number():
    config = agent57.AGENT.with_arm(tiny(), 3)
    assert config == tiny(evaluation="arm", evaluation_arm=3)
    with pytest.raises(ValueError, match="evaluation_arm must be an integer >= 0 and <= 4, got 5"):
        agent57.AGENT.with_arm(tiny(), 5)


# Optimisers


OPTIMIZER = {
    "learning_rate": 0.03,
    "auxiliary_learning_rate": 0.007,
    "embedding_weight_decay": 0.2,
    "adam_b1": 0.6,
    "adam_b2": 0.8,
    "adam_epsilon": 0.05,
    "gradient_clip": 2.0,
}


def adam(params, gradients, learning_rate, decay, config):
    """Adam on one vector of parameters: clipped gradients, then L2, then the step."""
    first = second = 0.0
    for number, gradient in enumerate(gradients, 1):
        gradient = gradient * min(1.0, config.gradient_clip / np.linalg.norm(gradient))
        gradient = gradient + decay * params
        first = config.adam_b1 * first + (1 - config.adam_b1) * gradient
        second = config.adam_b2 * second + (1 - config.adam_b2) * gradient**2
        direction = first / (1 - config.adam_b1**number)
        deviation = np.sqrt(second / (1 - config.adam_b2**number))
        params = params - learning_rate * direction / (deviation + config.adam_epsilon)
    return params


def flat(tree):
    leaves = [np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(tree)]
    return np.concatenate(leaves)


def parts(values, auxiliary):
    """What each optimiser trains, as vectors."""
    return {
        "extrinsic": flat(values["extrinsic"]),
        "intrinsic": flat(values["intrinsic"]),
        "embedding": flat([auxiliary["embedding"], auxiliary["classifier"]]),
        "predictor": flat(auxiliary["predictor"]),
    }


def test_optimisers_are_adam_with_the_configs_numbers():
    """Two steps: the first gradients are longer than the clip, the second ones are not."""
    config = tiny(**OPTIMIZER)
    agent = jitted(make_agent(SPEC, config, networks=agent57_networks(False)))
    learner = start = agent.init(jax.random.key(0))
    rng = np.random.default_rng(0)
    gradients = [
        jax.tree.map(
            lambda x: scale * rng.normal(size=x.shape).astype(np.float32),  # noqa: B023
            Gradients(start.params, start.auxiliary_params),
        )
        for scale in (3.0, 0.02)
    ]
    for step in gradients:
        learner = agent.apply(learner, step)
    before = parts(start.params, start.auxiliary_params)
    found = parts(learner.params, learner.auxiliary_params)
    steps = [parts(*step) for step in gradients]
    settings = {
        "extrinsic": (0.03, 0.0),
        "intrinsic": (0.03, 0.0),
        "embedding": (0.007, 0.2),
        "predictor": (0.007, 0.0),
    }
    for name, (rate, decay) in settings.items():
        norms = [np.linalg.norm(step[name]) for step in steps]
        assert norms[0] > 2.0 > norms[1]
        expected = adam(before[name], [step[name] for step in steps], rate, decay, config)
        np.testing.assert_allclose(found[name], expected, atol=1e-6, err_msg=name)


# Losses


def test_ngus_discounts_run_from_the_middle_one_to_the_low_one():
    changes = {"discount_high": 0.99, "discount_middle": 0.9, "discount_low": 0.6}
    ngu = policies.make_arms(tiny(discounts="ngu", **changes)).discounts
    np.testing.assert_allclose(ngu[[0, 2, 4]], [0.9, 0.8, 0.6], rtol=1e-6)  # 0.2^2 = 0.1 * 0.4
    ours = policies.make_arms(tiny(discounts="agent57", **changes)).discounts
    np.testing.assert_allclose(ours[[0, 1, 4]], [0.99, 0.9, 0.6], rtol=1e-6)


def terminal_sample(reward):
    """One transition that ends its episode by termination, in arm 0."""

    def row(*values, dtype=np.float32):
        return np.array([values], dtype)

    extras = {
        "arm": row(0, 0, dtype=np.int32),
        "previous_action": row(0, 0, dtype=np.int32),
        "intrinsic_reward": row(0, 0),
        "mu": row(1, 1),
        "memory": {"extrinsic": ()},
    }
    rows = Row(
        observation=np.full((1, 2, D), 1 / D, np.float32),
        reward=row(0, reward),
        discount=row(1, 0),
        is_first=row(1, 0, dtype=bool),
        is_last=row(0, 1, dtype=bool),
        action=row(1, 0, dtype=np.int32),
        extras=extras,
    )
    return Sample(rows, np.ones(1, np.float32), np.ones((1, 2), bool))


@pytest.mark.parametrize(
    ("rescale", "target"),
    [(False, 99.0), (True, np.sqrt(100.0) - 1.0 + 1e-3 * 99.0)],
)
@pytest.mark.parametrize("kind", ["retrace", "double_q"])
def test_target_of_a_terminal_reward_is_rescaled_only_if_asked(rescale, target, kind):
    config = tiny(values="extrinsic", rescale=rescale, target=kind, trace_length=1, replay_period=1)
    network, params = (
        agent57_networks(False).value,
        {"extrinsic": jnp.ones((D, 1)) * jnp.array([5.0, 2.0, 3.0])},
    )
    value_loss = jax.jit(functools.partial(loss.value_loss, config=config, network=network))
    sample, nothing = terminal_sample(99.0), np.zeros((1, 2), np.float32)
    value, (priorities, _) = value_loss(params, params, sample, nothing)
    np.testing.assert_allclose(value, (target - 2.0) ** 2, rtol=1e-5)
    np.testing.assert_allclose(priorities, [target - 2.0], rtol=1e-5)


def test_rescale_false_combines_values_as_they_are():
    config = tiny(rescale=False, transformed_mix=True)
    assert policies.value_transform(config) is losses.IDENTITY
    values = {"extrinsic": np.array([7.0]), "intrinsic": np.array([10.0])}
    np.testing.assert_allclose(policies.combine(config, values, 0.3), [10.0])


def test_novelty_is_learned_on_the_frame_that_a_transition_leads_to():
    config = tiny(auxiliary_frames=1)
    networks = agent57.agent._make_networks(SPEC, config, A)
    learner = jax.jit(make_agent(SPEC, config).init)(jax.random.key(0))
    params, random = learner.auxiliary_params, learner.random_params
    gradients = jax.jit(
        jax.grad(functools.partial(auxiliary_loss, config=config, networks=networks), has_aux=True)
    )
    sample = terminal_sample(0.0)

    def of(*observations):
        rows = sample.rows._replace(observation=np.float32(observations)[None])
        return gradients(params, random, sample._replace(rows=rows))

    before, after, other = np.random.default_rng(0).normal(size=(3, D))
    found, metrics = of(before, after)
    novel = jax.jit(networks.novelty.apply)
    predicted, wanted = (
        novel(part, np.float32(after)[None])[0] for part in (params["predictor"], random)
    )
    expected = np.square(predicted - wanted).sum()
    np.testing.assert_allclose(metrics["novelty_loss"], expected, rtol=1e-4)
    changed, _ = of(other, after)
    np.testing.assert_array_equal(flat(changed["predictor"]), flat(found["predictor"]))
    assert np.abs(flat(changed["embedding"]) - flat(found["embedding"])).max() > 1e-4
    changed, _ = of(before, other)
    assert np.abs(flat(changed["predictor"]) - flat(found["predictor"])).max() > 1e-4


# Presets


PAPER = {
    "values": "split",
    "target": "retrace",
    "arm_choice": "bandit",
    "evaluation": "alternate",
    "evaluation_arm": 0,
    "num_arms": 32,
    "intrinsic_weight": 0.3,
    "discounts": "agent57",
    "discount_high": 0.9999,
    "discount_middle": 0.997,
    "discount_low": 0.99,
    "transformed_mix": False,
    "rescale": True,
    "rescaling_epsilon": 1e-3,
    "retrace_lambda": 0.95,
    "n_step": 5,
    "target_epsilon": 0.0,
    "actor_epsilon": 0.4,
    "actor_epsilon_exponent": 8.0,
    "evaluation_epsilon": 0.01,
    "evaluation_average_decay": 0.0,
    "bandit_window": 160,
    "bandit_bonus": 1.0,
    "bandit_epsilon": 0.5,
    "evaluator_window": 3600,
    "evaluator_epsilon": 0.01,
    "episodic_capacity": 30_000,
    "num_neighbours": 10,
    "cluster_distance": 0.008,
    "kernel_epsilon": 1e-4,
    "pseudo_count": 1e-3,
    "max_similarity": 8.0,
    "max_modulator": 5.0,
    "novelty_window": 10_000,
    "intrinsic_rewards": "stored",
    "embedding_refresh": "episode",
    "auxiliary_frames": 5,
    "learning_rate": 1e-4,
    "auxiliary_learning_rate": 5e-4,
    "embedding_weight_decay": 1e-5,
    "adam_b1": 0.9,
    "adam_b2": 0.999,
    "adam_epsilon": 1e-4,
    "gradient_clip": 40.0,
    "target_update_period": 1500,
    "trace_length": 160,
    "replay_period": 80,
    "burn_in": 0,
    "priority_eta": 0.9,
    "network_scale": 1.0,
    "convolutions": ((32, 8, 4), (64, 4, 2), (64, 3, 1)),
    "vector_sizes": (64,),
    "torso_size": 512,
    "lstm_size": 512,
    "head_size": 512,
    "embedding_size": 32,
    "classifier_size": 128,
    "novelty_size": 128,
    "recurrent": True,
}
REPLAY = {
    "selector": "proportional",
    "capacity": 5_000_000,
    "min_rows": 500_000,
    "batch_size": 64,
    "acting_steps_per_update": 13_312.0,
    "updates_per_call": 1,
    "priority_exponent": 0.9,
    "importance_exponent": 0.0,
    "uniform_fraction": 0.0,
}


def test_paper_has_these_values():
    values = dataclasses.asdict(Config.paper())
    replay = values.pop("replay")
    assert values == PAPER
    assert {name: replay[name] for name in REPLAY} == REPLAY


def test_networks_for_another_number_of_actions_are_refused_before_training():
    names = ("num_arms", "vector_sizes", "torso_size", "lstm_size", "head_size", "embedding_size",
             "classifier_size", "novelty_size")  # fmt: skip
    sizes = {name: TINY["agent57"][name] for name in names}
    networks = make_agent57_networks(SPEC.observations, num_actions=A + 1, **sizes)
    agent = make_agent(SPEC, tiny(), networks=networks)
    with pytest.raises(ValueError, match=r"Agent\.explore cannot be traced .*shape") as error:
        check_agent_shapes(agent, SPEC)
    assert "\n" not in str(error.value)
