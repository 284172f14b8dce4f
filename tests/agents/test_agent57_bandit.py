"""The sliding-window bandit by hand and against a list of all pulls; the family of its arms."""

import jax
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from retrax.agents.agent57 import bandit, families

update = jax.jit(bandit.update)
choose = jax.jit(bandit.choose, static_argnames=("num_arms", "bonus", "epsilon"))


def after(pulls, window):
    state = bandit.init(window)
    for arm, paid in pulls:
        state = update(state, np.int32(arm), np.float32(paid))
    return state


THREE = [(0, 1.0), (1, 2.3), (0, 3.0)]


@pytest.mark.parametrize(
    ("pulls", "window", "counts", "means"),
    [
        (THREE, 10, [2, 1], [2, 2.3]),
        # Public windows write count[t mod window, arm] and never clear the slot's earlier arm.
        ([(0, 100.0), (1, 1.0), (1, 2.0), (1, 3.0)], 3, [0, 3], [0, 2]),
        # A first reset that feeds a return of 0, as one public bandit does, would show here.
        ([], 4, [0, 0], [0, 0]),
    ],
)
def test_statistics_by_hand(pulls, window, counts, means):
    found = bandit.statistics(after(pulls, window), 2)
    np.testing.assert_allclose(found, [counts, means], rtol=1e-6)


def test_choices_by_hand():
    """Arm 0 paid 1 and 3, arm 1 paid 2.3: 2 + 1 / sqrt(2) = 2.71 is less than 2.3 + 1."""
    richer = [*THREE[:2], (0, 3.8)]
    for pulls, arms in ((THREE, {0.0: 1, 1.0: 1, 9.0: 1}), (richer, {0.0: 0, 1.0: 1})):
        for bonus, arm in arms.items():
            options = {"num_arms": 2, "bonus": bonus, "epsilon": 0.0}
            assert choose(jax.random.key(0), after(pulls, 10), **options) == arm
            # The window has forgotten arm 0, whose bound is infinite then.
            forgotten = after([*pulls, (1, 9.0), (1, 9.0)], 2)
            assert choose(jax.random.key(0), forgotten, **options) == 0


@pytest.mark.parametrize(("first", "expected"), [(0, [0, 1, 2, 3]), (7, [3, 0, 1, 2])])
def test_each_arm_is_pulled_once_at_first(first, expected):
    state, arms = bandit.init(5), []
    for number in range(4):
        key = jax.random.key(number)
        arm = choose(key, state, num_arms=4, bonus=1.0, epsilon=0.9, first=first)
        state = update(state, arm, np.float32(number))
        arms.append(int(arm))
    assert arms == expected


@settings(max_examples=20, deadline=None)
@given(
    pulls=st.lists(
        st.lists(st.tuples(st.integers(0, 3), st.integers(-9, 9)), max_size=9),
        min_size=1,
        max_size=4,
    )
)
@example(pulls=[[(1, -5)], []])  # slots that are not filled have arm 0 and return 0
@example(pulls=[[(1, -5)]])
@example(pulls=[[]])
def test_best_of_all_has_the_largest_mean_over_all_windows(pulls):
    """And the best of one bandit in its own."""
    each = [after(part, 4) for part in pulls]
    arms = [jax.jit(bandit.best_of_all)(jax.tree.map(lambda *x: np.stack(x), *each))]
    arms += [bandit.best(state, 4) for state in each if len(each) == 1]
    newest = [pull for part in pulls for pull in part[-4:]]
    returns = {a: [paid for other, paid in newest if other == a] for a, _ in newest}
    means = {a: np.mean(paid) for a, paid in returns.items()}
    if not means:
        assert {*map(int, arms)} == {0}
        return
    np.testing.assert_allclose([means[int(arm)] for arm in arms], max(means.values()), rtol=1e-6)


# The arms' weights and discounts: their values, and the errata of the printed formulas


def test_paper_families_have_the_known_values():
    beta = families.intrinsic_weights(32, 0.3)
    gamma = families.agent57_discounts(32, 0.9999, 0.997, 0.99)
    known = {0: 0, 8: 0.0028, 12: 0.0358, 15: 0.15, 18: 0.2642, 24: 0.2993, 31: 0.3}
    for j, value in known.items():
        assert abs(beta[j] - value) < 5e-5
    start = [0.9999, 0.999896, 0.9998, 0.99845, 0.9971, 0.997004, 0.997, 0.997, 0.997, 0.996839]
    np.testing.assert_allclose(gamma[:10], start, atol=1e-6)
    np.testing.assert_allclose(gamma[-3:], [0.990994, 0.99051, 0.99], atol=1e-6)


@pytest.mark.parametrize("num_arms", [2, 3, 4, 5, 8, 16, 32, 64])
def test_families_of_any_size_are_monotone(num_arms):
    beta = families.intrinsic_weights(num_arms, 0.3)
    gamma = families.agent57_discounts(num_arms, 0.999, 0.99, 0.9)
    ngu = families.ngu_discounts(num_arms, 0.997, 0.99)
    assert beta.shape == gamma.shape == ngu.shape == (num_arms,)
    assert (np.diff(beta) >= 0).all()
    assert (np.diff(gamma) <= 0).all()
    assert (np.diff(ngu) < 0).all()
    np.testing.assert_allclose([beta[0], beta[-1]], [0, 0.3])
    np.testing.assert_allclose([gamma[0], gamma[-1]], [0.999, 0.9])
    np.testing.assert_allclose([ngu[0], ngu[-1]], [0.997, 0.99])
