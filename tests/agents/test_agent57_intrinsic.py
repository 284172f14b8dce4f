"""The intrinsic reward: episodic memory and life-long novelty."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrax.agents.agent57 import Config, episodic_memory, novelty

NAMES = ("cluster_distance", "kernel_epsilon", "pseudo_count", "max_similarity")
CONSTANTS = dict(zip(NAMES, (0.008, 1e-4, 1e-3, 8.0), strict=True))


@functools.cache
def bonus_of(k):
    bonus = functools.partial(episodic_memory.bonus, num_neighbours=k, **CONSTANTS)
    return jax.jit(bonus, donate_argnums=0)


def rewards_of(embeddings, firsts, *, capacity, k):
    state = episodic_memory.init(capacity, embeddings.shape[1])
    rewards = []
    for embedding, first in zip(embeddings, firsts, strict=True):
        reward, state = bonus_of(k)(episodic_memory.empty(state, first), embedding)
        rewards.append(float(reward))
    return np.array(rewards), state


def oracle_rewards(embeddings, firsts, *, capacity, k):
    memory = oracles.EpisodicMemory(capacity, k, *CONSTANTS.values())
    rewards = []
    for embedding, first in zip(embeddings, firsts, strict=True):
        if first:
            memory.begin()
        rewards.append(memory.reward(embedding))
    return np.array(rewards)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    sizes=st.sampled_from([(4, 1), (4, 4), (30, 3)]),
    scale=st.sampled_from([1e-3, 1.0, 30.0]),
    ends=st.floats(0, 0.3),
)
def test_episodic_bonus_is_algorithm_1(seed, sizes, scale, ends):
    rng = np.random.default_rng(seed)
    embeddings = (scale * rng.normal(size=(20, 3))).astype(np.float32)
    again = rng.random(20) < 0.3
    embeddings[again] = embeddings[0]
    firsts = rng.random(20) < ends
    capacity, k = sizes
    ours, _ = rewards_of(embeddings, firsts, capacity=capacity, k=k)
    expected = oracle_rewards(embeddings, firsts, capacity=capacity, k=k)
    np.testing.assert_allclose(ours, expected, rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 512, 513, 1024, 1025, 1100, 1200, 1201, 1900, 3000])
@pytest.mark.parametrize("k", [1, 10, 600])
def test_neighbours_are_those_of_all_blocks_of_the_memory(size, k):
    """1,201 slots: two whole blocks and one that overlaps the second, before and after a lap."""
    rng = np.random.default_rng(size)
    entries, query = rng.normal(size=(1201, 3)), rng.normal(size=3)
    state = episodic_memory.init(1200, 3)._replace(entries=np.float32(entries), size=np.int32(size))
    others = np.delete(entries[: min(size, 1201)], (size - 1) % 1201, axis=0)
    expected = np.full(k, np.inf)
    nearest = np.sort(np.sum((others - query) ** 2, axis=1))[:k]
    expected[: len(nearest)] = nearest
    ours = jax.jit(episodic_memory.nearest_distances, static_argnums=2)(state, np.float32(query), k)
    np.testing.assert_allclose(ours, expected, rtol=1e-5)


def test_near_neighbours_of_large_embeddings_keep_their_distance():
    """|x|^2 - 2 x y + |y|^2 in single precision says 0 here, or less."""
    state = episodic_memory.init(5, 2)
    _, state = bonus_of(1)(state, np.array([1000.0, 0.0], np.float32))
    _, state = bonus_of(1)(state, np.array([1000.01, 0.0], np.float32))
    np.testing.assert_allclose(state.mean_distance, 1e-4, rtol=0.02)


def test_too_similar_states_are_paid_nothing():
    constants = {**CONSTANTS, "max_similarity": 3.0, "num_neighbours": 10}
    bonus = jax.jit(functools.partial(episodic_memory.bonus, **constants))
    state = episodic_memory.init(30, 2)
    for _ in range(12):
        reward, state = bonus(state, jnp.ones(2))
    assert reward == 0


def test_small_pays_a_new_state_much_more_than_a_revisited_one():
    """With kernel_epsilon 1 the ratios are 1.2 and 1.4: the reward says nothing about novelty."""
    small = Config.small()
    constants = {name: getattr(small, name) for name in (*CONSTANTS, "num_neighbours")}
    bonus = jax.jit(functools.partial(episodic_memory.bonus, **constants))
    state = episodic_memory.init(small.episodic_capacity, small.embedding_size)
    new, again = [], [[], [], []]
    for number, embedding in enumerate(
        np.random.default_rng(0).normal(size=(40, small.embedding_size)).astype(np.float32)
    ):
        reward, state = bonus(state, embedding)
        new.append(float(reward))
        for rewards in again if number % 8 == 7 else []:
            reward, state = bonus(state, embedding)
            rewards.append(float(reward))
    known_once, _, known_thrice = (np.mean(rewards[1:]) for rewards in again)
    assert np.mean(new[10:]) > 1.6 * known_once
    assert np.mean(new[10:]) > 2.5 * known_thrice


def test_memory_is_updated_in_place():
    """A copy of 30,000 entries in each step would cost more than the look-up."""
    compiled = bonus_of(10).lower(episodic_memory.init(30_000, 32), jnp.ones(32)).compile()
    copies = [line for line in compiled.as_text().splitlines() if " copy(" in line]
    assert not [line for line in copies if "30001,32" in line]
    state = episodic_memory.init(30_000, 32)
    before = state.entries.unsafe_buffer_pointer()
    _, state = bonus_of(10)(state, jnp.ones(32))
    assert state.entries.unsafe_buffer_pointer() == before


modulator = jax.jit(novelty.modulator, static_argnums=2)
# Squares of differences below 1e-19 are 0 in single precision.
ERRORS = st.floats(0, 100).map(lambda error: round(error, 9))


def modulators(errors, window):
    """alpha of each error, and the moments after all of them."""
    moments, alphas = novelty.init(), []
    for error in np.float32(errors):
        alpha, moments = modulator(moments, error, window, True)
        alphas.append(float(alpha))
    return np.array(alphas), moments


@settings(max_examples=25, deadline=None)
@given(errors=st.lists(ERRORS, min_size=1, max_size=12), window=st.sampled_from([1, 2, 5, 100]))
def test_modulator_is_its_definition(errors, window):
    errors = np.float32(errors)
    alphas, moments = modulators(errors, window)
    if np.std(errors[-2:]) > 1e-3 * np.max(errors):
        expected = oracles.lifelong_modulators(errors, window)
        np.testing.assert_allclose(alphas[-1], expected[-1], rtol=2e-3, atol=2e-3)
    assert moments.number == min(len(errors), window)
    if window == 100:
        np.testing.assert_allclose(moments.mean, errors.mean(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("errors", "window", "alphas", "moments"),
    [
        ([1, 3], 9, [1, 2], (2, 1)),  # 1 + (3 - 2) / 1; a public one says 3 / 1
        ([4, 0, 2], 2, [1, 0, 1], (2, 2)),  # forgets: mean 2, variance 4; then 4 / 2
    ],
)
def test_modulator_by_hand(errors, window, alphas, moments):
    found, after = modulators(errors, window)
    np.testing.assert_allclose(found, alphas, atol=1e-6)
    np.testing.assert_allclose((after.mean, after.variance), moments)


def falling_errors():
    """Errors of known states while the predictor learns: from 1 to 0.01, with noise."""
    rng, steps = np.random.default_rng(0), np.arange(4000)
    return (np.exp(-steps / 300) + 0.01) * rng.uniform(0.7, 1.3, 4000)


def test_a_new_state_is_novel_after_the_errors_have_fallen():
    """Its error is 0.1, ten times those of known states, a tenth of those at first."""
    _, known = modulators(falling_errors(), 200)
    alpha, _ = modulator(known, np.float32(0.1), 200, True)
    assert alpha > 5
    _, cumulative = modulators(falling_errors(), 10**9)
    alpha, _ = modulator(cumulative, np.float32(0.1), 10**9, True)
    assert alpha < 1.5, "the mean since the first step never forgets the first errors"


def test_known_states_are_not_novel_while_the_errors_fall():
    alphas, _ = modulators(falling_errors(), 200)
    assert alphas[1000:].mean() < 1.1
    assert np.quantile(alphas[1000:], 0.99) < 3.5


def test_errors_of_an_untrained_predictor_do_not_count():
    moments = novelty.init()
    for error in (3.0, 9.0):
        alpha, moments = modulator(moments, np.float32(error), 200, False)
        assert alpha == 1
    assert moments.number == 0
    alphas = []
    for error in (1.0, 3.0):
        alpha, moments = modulator(moments, np.float32(error), 200, True)
        alphas.append(alpha)
    np.testing.assert_allclose(alphas, [1.0, 2.0], rtol=1e-6)


@settings(max_examples=25, deadline=None)
@given(
    errors=st.lists(ERRORS, min_size=6, max_size=6),
    mask=st.lists(st.booleans(), min_size=6, max_size=6).filter(any),
)
def test_modulators_of_a_batch_are_their_definition(errors, mask):
    """As recomputed rewards of 1 with L = 1e6: alpha where it is at least 1."""
    errors, mask = np.reshape(np.float32(errors), (2, 3)), np.reshape(mask, (2, 3))
    alphas = np.asarray(novelty.batch_modulators(errors, mask))
    assert np.isfinite(alphas).all()
    seen = errors[mask]
    if np.std(seen) > 1e-3 * np.max(seen):
        roots = np.sqrt(np.float64(errors)).reshape(-1, 1)
        wanted = oracles.recomputed_rewards(roots, 0 * roots, np.ones((2, 3)), mask, 1e6)
        np.testing.assert_allclose(np.maximum(alphas, 1)[mask], wanted[mask], rtol=2e-3)
        np.testing.assert_allclose(alphas[mask].mean(), 1.0, atol=1e-3)


def test_modulators_of_a_batch_by_hand():
    """Errors 1, 3 and one that does not count: mean 2, deviation 1."""
    alphas = novelty.batch_modulators(np.float32([[1, 3, 50]]), np.array([[True, True, False]]))
    np.testing.assert_allclose(alphas[0, :2], [0.0, 2.0], rtol=1e-6)
    equal = novelty.batch_modulators(np.full((2, 2), 0.3, np.float32), np.ones((2, 2), bool))
    np.testing.assert_allclose(equal, 1.0, atol=1e-4)


@pytest.mark.parametrize(("alpha", "factor"), [(-3.0, 1.0), (1.0, 1.0), (2.5, 2.5), (9.0, 5.0)])
def test_modulator_is_clipped_in_the_product(alpha, factor):
    reward = novelty.intrinsic_reward(jnp.float32(0.7), jnp.float32(alpha), 5.0)
    np.testing.assert_allclose(reward, 0.7 * factor, rtol=1e-6)
