"""The sliding-window bandit against a list of all pulls."""

import jax
import numpy as np
import oracles
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from retrax.agents.agent57 import bandit

update = jax.jit(bandit.update)
choose = jax.jit(bandit.choose, static_argnames=("num_arms", "bonus", "epsilon"))


def after(pulls, window):
    state = bandit.init(window)
    for arm, paid in pulls:
        state = update(state, np.int32(arm), np.float32(paid))
    return state


@settings(max_examples=30, deadline=None)
@given(
    pulls=st.lists(st.tuples(st.integers(0, 2), st.integers(-3, 3)), min_size=3, max_size=15),
    window=st.sampled_from([3, 6]),
)
def test_greedy_choice_is_the_definition(pulls, window):
    state = after(pulls, window)
    bounds = oracles.bandit_bounds(pulls, 3, window, 0.7)
    arm = choose(jax.random.key(0), state, num_arms=3, bonus=0.7, epsilon=0.0)
    np.testing.assert_allclose(bounds[arm], bounds.max(), rtol=1e-6)


def test_bounds_by_hand():
    """Arm 0 paid 1 and 3, arm 1 paid 2.3: 2 + 1 / sqrt(2) = 2.71 is less than 2.3 + 1."""
    state = after([(0, 1.0), (1, 2.3), (0, 3.0)], 10)
    counts, means = bandit.statistics(state, 2)
    np.testing.assert_allclose(counts, [2, 1])
    np.testing.assert_allclose(means, [2, 2.3], rtol=1e-6)
    arms = [
        choose(jax.random.key(0), state, num_arms=2, bonus=b, epsilon=0.0) for b in (0.0, 1.0, 9.0)
    ]
    assert arms == [1, 1, 1]
    state = after([(0, 1.0), (1, 2.3), (0, 3.8)], 10)
    assert choose(jax.random.key(0), state, num_arms=2, bonus=0.0, epsilon=0.0) == 0
    assert choose(jax.random.key(0), state, num_arms=2, bonus=1.0, epsilon=0.0) == 1


@pytest.mark.parametrize(("first", "expected"), [(0, [0, 1, 2, 3]), (7, [3, 0, 1, 2])])
def test_each_arm_is_pulled_once_at_first(first, expected):
    state, arms = bandit.init(5), []
    for number in range(4):
        key = jax.random.key(number)
        arm = choose(key, state, num_arms=4, bonus=1.0, epsilon=0.9, first=first)
        state = update(state, arm, np.float32(number))
        arms.append(int(arm))
    assert arms == expected


def test_old_entries_leave_the_window_whichever_arm_they_were():
    """Public windows write count[t mod window, arm] and never clear the slot's earlier arm."""
    state = after([(0, 100.0), (1, 1.0), (1, 2.0), (1, 3.0)], 3)
    counts, means = bandit.statistics(state, 2)
    np.testing.assert_allclose(counts, [0, 3])
    np.testing.assert_allclose(means, [0, 2])


def test_nothing_is_paid_before_the_first_pull():
    """A first reset that feeds a return of 0, as one public bandit does, would show here."""
    counts, means = bandit.statistics(bandit.init(4), 3)
    assert not counts.any()
    assert not means.any()
    assert bandit.best(bandit.init(4), 3) == 0


def test_best_arm_has_the_largest_mean_without_a_bonus():
    state = after([(0, 1.0), (1, -5.0), (2, 4.0), (2, 0.0), (1, -1.0)], 10)
    assert bandit.best(state, 4) == 2
    assert bandit.best(after([(1, -5.0)], 10), 4) == 1, "arms without entries are not the best"


@settings(max_examples=20, deadline=None)
@given(
    pulls=st.lists(
        st.lists(st.tuples(st.integers(0, 3), st.integers(-9, 9)), max_size=9),
        min_size=1,
        max_size=4,
    )
)
@example(pulls=[[(1, -5)], []])  # slots that are not filled have arm 0 and return 0
def test_best_of_all_has_the_largest_mean_over_all_windows(pulls):
    states = jax.tree.map(lambda *x: np.stack(x), *(after(part, 4) for part in pulls))
    arm = jax.jit(bandit.best_of_all)(states)
    newest = [pull for part in pulls for pull in part[-4:]]
    returns = {a: [paid for other, paid in newest if other == a] for a, _ in newest}
    means = {a: np.mean(paid) for a, paid in returns.items()}
    if not means:
        assert arm == 0
        return
    np.testing.assert_allclose(means[int(arm)], max(means.values()), rtol=1e-6)
