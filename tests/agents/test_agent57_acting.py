"""Agent57's acting: scripted episodes, arms of actors and evaluators, warm starts."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from dm_env import StepType
from linear_agents import (
    SPECS,
    TINY,
    A,
    D,
    agent57_networks,
    jitted,
    timestep,
    tiny_agent,
    tiny_agent57_networks,
)
from linear_agents import agent57_config as tiny

from retrax.agents import agent57
from retrax.agents.agent57 import bandit, families, make_agent, novelty
from retrax.networks import R2D2Inputs

N, SPEC = TINY["agent57"]["num_arms"], SPECS["discrete"]
NETWORKS = tiny_agent57_networks()  # those of `tiny_agent`
FIRST_STEP = timestep(StepType.FIRST)


def script(lengths):
    """Time steps of episodes one after another; rewards 1, 2, 3 ... arrive."""
    rng = np.random.default_rng(0)
    steps = []
    for length in lengths:
        for t in range(length):
            kind = StepType.FIRST if t == 0 else StepType.LAST if t == length - 1 else StepType.MID
            reward = len(steps) + 1 if t else 0
            step = timestep(kind, rng.normal(size=D).astype(np.float32), reward)
            steps.append(step._replace(discount=np.float32(kind != StepType.LAST)))
    return steps


def play(act, params, state, steps):
    """Actions and extras of each step, stacked, and the actor's states behind each step."""
    decisions = []
    for step in steps:
        decisions.append(act(params, state, step))
        state = decisions[-1].state
    rows = jax.tree.map(lambda *x: np.stack(x), *[(d.action, d.extras) for d in decisions])
    return *rows, [decision.state for decision in decisions]


def actor(**changes):
    agent, config = tiny_agent("agent57", num_neighbours=1, **changes)
    return config, agent, agent.init(jax.random.key(0))


def test_scripted_episodes_reach_the_rows_without_an_offset():
    """Row t has what arrived with x_t: r^i(x_t), a_{t-1}; and r^i is 0 on a first row."""
    config, agent, learner = actor(novelty_window=2)
    learner = learner._replace(num_updates=jnp.int32(1))
    params, steps = agent.acting_params(learner), script((5, 4))
    state = agent.begin(jax.random.key(1), 0, 2)
    actions, extras, states = play(agent.explore, params, state, steps)
    embed, novel = jax.jit(NETWORKS.embedding.apply), jax.jit(NETWORKS.novelty.apply)
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
    actual = extras["intrinsic_reward"]
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-6)
    assert actual[0] == actual[5] == 0
    assert min(actual[1:5]) > 0
    np.testing.assert_allclose(extras["episodic_reward"], episodic, rtol=1e-3, atol=1e-6)
    for episode in (slice(0, 5), slice(5, 9)):
        previous, taken = extras["previous_action"][episode], actions[episode]
        np.testing.assert_array_equal(previous[1:], taken[:-1])
        total = extras["intrinsic_return"][episode][-1]
        np.testing.assert_allclose(total, sum(actual[episode]), rtol=1e-5)

    # The bandit: arm 0, then arm 1; paid the undiscounted extrinsic return, terminal reward too.
    assert extras["arm"].tolist() == [0] * 5 + [1] * 4
    assert [int(s.bandit.num_pulls) for s in states] == [0] * 4 + [1] * 4 + [2]
    np.testing.assert_allclose(states[-1].bandit.returns[:2], [2 + 3 + 4 + 5, 7 + 8 + 9])
    assert not states[-1].evaluator.sampled.num_pulls
    assert not states[-1].evaluator.episodes

    # Before its first update the predictor's errors do not count.
    untrained = params._replace(intrinsic=params.intrinsic._replace(num_updates=jnp.int32(0)))
    _, extras, _ = play(agent.explore, untrained, state, steps[:5])
    np.testing.assert_allclose(extras["intrinsic_reward"], episodic[:5], rtol=1e-3, atol=1e-6)


def test_learner_reads_what_the_actor_read():
    """From the memory stored at row 2, the learner's values make the actor's mu, row by row.

    On the last arm: a public agent has one family of beta and gamma in actors, another in learners.
    """
    _, agent, learner = actor(arm_choice="actor", intrinsic_weight=3.0)
    params, steps = agent.acting_params(learner), script((9,))
    state = agent.begin(jax.random.key(2), N - 1, N)._replace(epsilon=jnp.float32(0.6))
    rows = play(agent.explore, params, state, steps)[:2]
    actions, extras, steps = jax.tree.map(
        lambda x: x[2:], (*rows, jax.tree.map(lambda *x: np.stack(x), *steps))
    )
    inputs = R2D2Inputs(
        steps.observation,
        extras["previous_action"],
        steps.reward,
        extras["intrinsic_reward"],
        extras["arm"],
    )
    unroll, is_first = jax.jit(NETWORKS.value.unroll), steps.step_type == StepType.FIRST
    extrinsic, intrinsic = (
        unroll(params.values[name], inputs, is_first, jax.tree.map(lambda x: x[0], memory))[0]
        for name, memory in extras["memory"].items()
    )
    assert (extras["arm"] == N - 1).all()
    beta = families.intrinsic_weights(N, 3.0)[N - 1]
    greedy = np.argmax(extrinsic + beta * intrinsic, axis=1) == actions
    np.testing.assert_allclose(extras["mu"], np.where(greedy, 0.6, 0.2), rtol=1e-6)
    assert greedy.any()
    assert not greedy.all()


@pytest.mark.parametrize("refresh", ["episode", "step"])
def test_embedding_is_refreshed_once_an_episode(refresh):
    _, agent, learner = actor(embedding_refresh=refresh)
    old = agent.acting_params(learner)
    embedding = jax.tree.map(lambda x: 2 * x, old.intrinsic.embedding)
    new = old._replace(intrinsic=old.intrinsic._replace(embedding=embedding))
    steps, state = script((4, 4)), agent.begin(jax.random.key(1), 0, 2)
    _, _, [state] = play(agent.explore, old, state, steps[:1])
    rewards, kept = (
        play(agent.explore, params, state, steps[1:])[1]["intrinsic_reward"]
        for params in (new, old)
    )
    assert np.isclose(rewards[:3], kept[:3], rtol=1e-6).all() == (refresh == "episode")


# Arms, without intrinsic rewards, which no arm's choice depends on.


@functools.cache
def evaluator():
    """An agent, and its parameters."""
    config = tiny(values="extrinsic", evaluator_window=20, evaluator_epsilon=0.0, bandit_bonus=0.0)
    agent = jitted(make_agent(SPEC, config))
    return agent, agent.acting_params(agent.init(jax.random.key(0)))


def evaluated(state, episodes, paid):
    """Plays episodes of one transition; `paid` is each arm's return.

    Returns the state after them, the arms of sampled episodes, those of greedy ones, and of each
    episode whether it was greedy.
    """
    agent, params = evaluator()
    arms, modes = {True: [], False: []}, []
    for _ in range(episodes):
        decision = agent.exploit(params, state, FIRST_STEP)
        arm = int(decision.extras["arm"])
        last = timestep(StepType.LAST, reward=paid[arm])._replace(discount=np.float32(0))
        ended = agent.exploit(params, decision.state, last)
        for extras in (decision.extras, ended.extras):
            assert extras["greedy_arm"] != extras["sampled_arm"]
        modes.append(bool(ended.extras["greedy_arm"]))
        arms[modes[-1]].append(arm)
        assert modes[-1] == decision.extras["greedy_arm"]
        state = ended.state
    return state, arms[False], arms[True], modes


PAID = (1.0, 3.0, 9.0, 2.0, 0.5)


@pytest.mark.parametrize("number", [0, 3])
def test_evaluators_alternate_between_five_greedy_and_five_sampled_episodes(number):
    """The sampled arms are all, from another one in each pair on; the best of them is greedy."""
    assert N == 5
    each = [evaluator()[0].begin(jax.random.key(0), k, 2 * N) for k in range(2 * N)]
    assert [evaluated(x, 1, PAID)[1] for x in each] == [a for k in range(N) for a in ([], [k])]
    state, sampled, greedy, modes = evaluated(each[number], 20, PAID)
    assert modes == ([number % 2 == 0] * 5 + [number % 2 == 1] * 5) * 2
    assert sampled[:5] == [(number // 2 + k) % N for k in range(N)]
    assert sampled[5:] == [2] * 5, "by upper confidence bound"
    assert greedy == [0] * 5 * (number % 2 == 0) + [2] * 5 * (1 + number % 2)
    assert state.evaluator.episodes == 20
    assert not state.bandit.num_pulls


def test_greedy_episodes_are_no_pulls_of_the_sampled_mode():
    state = evaluator()[0].begin(jax.random.key(0), 0, 1)
    pulls = evaluated(state, 9, PAID)[0].evaluator.sampled
    assert pulls.num_pulls == 4
    np.testing.assert_array_equal(pulls.arms[:4], [0, 1, 2, 3])
    np.testing.assert_array_equal(pulls.returns[:4], PAID[:4])


def actors_of(agent, seed, count):
    begin = jax.vmap(agent.begin, in_axes=(0, 0, None))
    return begin(jax.random.split(jax.random.key(seed), count), np.arange(count), count)


def after(empty, pulls):
    """The state of a bandit after some pulls, not more than its window."""
    arms, returns = (np.array(leaf) for leaf in (empty.arms, empty.returns))
    for slot, pull in enumerate(pulls):
        arms[slot], returns[slot] = pull
    return bandit.BanditState(arms, returns, np.int32(len(pulls)))


def test_warm_started_evaluators_keep_the_best_arm_of_all_actors():
    """Means 2, 3, 0: neither failures nor better arms of its own episodes change it."""
    agent, _ = evaluator()
    fresh, actors = agent.begin(jax.random.key(0), 0, 1), actors_of(agent, 1, 2)
    chex.assert_trees_all_equal(agent57.AGENT.warm_start(fresh, actors).evaluator, fresh.evaluator)
    shares = [[(1, 9.0), (0, 2.0)], [(1, 0.0), (1, 0.0), (4, 0.0)]]
    books = [after(fresh.bandit, share) for share in shares]
    actors = actors._replace(bandit=jax.tree.map(lambda *x: jnp.stack(x), *books))
    state = agent57.AGENT.warm_start(fresh, actors)
    chex.assert_trees_all_equal_shapes_and_dtypes(state, fresh)
    assert state.evaluator.sampled.num_pulls == 0, "its bandit has its own pulls only"
    state, sampled, greedy, _ = evaluated(state, 15, (1, -5, 9, 2, 3))
    assert greedy == [1] * 10
    assert sampled == [0, 1, 2, 3, 4]
    assert state.evaluator.sampled.num_pulls == 5


def test_warm_started_evaluators_have_the_novelty_moments_of_an_actor():
    """Evaluator e has those of actor e modulo E, and its own empty memory."""
    agent = jitted(make_agent(SPEC, tiny()))
    actors, evaluators = actors_of(agent, 1, 2), actors_of(agent, 2, 3)
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
    _, agent, learner = actor(values="extrinsic", arm_choice=choice)
    params, states = agent.acting_params(learner), actors_of(agent, 0, 4)
    explore = jax.vmap(agent.explore, in_axes=(None, 0, None))
    chosen = explore(params, states, FIRST_STEP).extras["arm"].tolist()
    assert chosen == arms if arms else len(set(chosen)) > 1


@functools.cache
def with_bandits(**changes):
    """`begin`, and functions of many states at once that explore and exploit."""
    config = tiny(
        values="extrinsic",
        actor_epsilon=0.9,
        actor_epsilon_exponent=2.0,
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


def states(begin, *, number=0, actor=(), evaluator=(), episodes=0, count=1500):
    """States before an episode that differ in their keys, after these pulls of each bandit."""
    state = begin(jax.random.key(0), number, 3)
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


def shares(extras):
    return np.bincount(extras["arm"], minlength=N) / len(extras["arm"])


def test_epsilon_differs_by_actor_and_is_the_rate_of_exploration():
    begin, explore, _ = with_bandits()
    rates = [
        np.mean(explore(states(begin, number=number), FIRST_STEP).extras["mu"] < 1 / A)
        for number in (0, 2)
    ]
    np.testing.assert_allclose(rates, [0.9 * 2 / 3, 0.9**3 * 2 / 3], atol=0.04)


def test_windows_of_the_two_bandits():
    state = with_bandits()[0](jax.random.key(0), 0, 1)
    assert (len(state.bandit.arms), len(state.evaluator.sampled.arms)) == (20, 12)


def test_arms_of_actors_are_those_of_their_bandit_with_its_epsilon_and_bonus():
    begin, explore, _ = with_bandits()
    before = states(begin, actor=best_by_bonus(3), evaluator=best_by_bonus(1))
    arms = shares(explore(before, FIRST_STEP).extras)
    np.testing.assert_allclose(arms, [0.12, 0.12, 0.12, 0.52, 0.12], atol=0.05)


def test_sampled_arms_of_evaluators_are_those_of_their_bandit_with_its_epsilon_and_bonus():
    begin, _, exploit = with_bandits()
    before = states(begin, actor=best_by_bonus(3), evaluator=best_by_bonus(1), episodes=5)
    extras = exploit(before, FIRST_STEP).extras
    assert extras["sampled_arm"].all()
    np.testing.assert_allclose(shares(extras), [0.04, 0.84, 0.04, 0.04, 0.04], atol=0.05)


def test_epsilon_of_evaluators():
    begin, _, exploit = with_bandits()
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
def test_evaluation_with_one_arm(changes, arm):
    """In every episode, although another arm has a higher bound."""
    begin, _, exploit = with_bandits(**changes)
    for episodes in (0, 5):
        before = states(begin, evaluator=best_by_bonus(1), episodes=episodes, count=20)
        extras = exploit(before, FIRST_STEP).extras
        assert (extras["arm"] == arm).all()
        assert extras["greedy_arm"].all()
        assert not extras["sampled_arm"].any()


def test_an_arm_is_evaluated_by_its_number():
    assert agent57.AGENT.with_arm(tiny(), 3) == tiny(evaluation="arm", evaluation_arm=3)
    with pytest.raises(ValueError, match="evaluation_arm must be an integer >= 0 and <= 4, got 5"):
        agent57.AGENT.with_arm(tiny(), 5)
