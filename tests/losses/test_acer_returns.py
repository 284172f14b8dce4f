"""ACER's targets against the pseudo-code; errata are numbered as in the list of our notes."""

import chex
import compiled_losses as losses
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

SEEDS = st.integers(0, 2**31)
HORIZONS = st.sampled_from([1, 6])  # two, since each is compiled on its own
OF_THE_VALUE = jax.jit(jax.value_and_grad(losses.importance_weighted_value_loss, argnums=1))


def random_rows(seed, horizon, ends=0.2):
    """Rows 0 .. horizon with values of states and of actions taken, and the ratios of those."""
    rng = np.random.default_rng(seed)
    shape = horizon + 1
    is_last = rng.random(shape) < ends
    terminated = is_last & (rng.random(shape) < 0.5)
    return {
        "q": rng.normal(size=shape),
        "v": rng.normal(size=shape),
        "r": rng.normal(size=shape),
        "discount": np.where(terminated, 0.0, rng.uniform(0.7, 1.0, shape)),
        "rho": np.exp(rng.normal(size=shape)),
        "is_last": is_last,
    }


def behind(rows, *names):
    """What belongs to the destination steps, in single precision."""
    values = {**rows, "continues": ~rows["is_last"], "cut": rows["rho"] * ~rows["is_last"]}
    return [np.asarray(values[name][1:], np.float32) for name in names]


def retrace(rows, exponent=1.0):
    return losses.q_retrace(*behind(rows, "q", "v", "r", "discount", "cut"), exponent)


def opc(rows):
    return losses.q_opc(*behind(rows, "q", "v", "r", "discount", "continues"))


def sampled(rows):
    return losses.importance_sampled_return(*behind(rows, "v", "r", "discount", "rho", "continues"))


def trajectories(rows, cap=5.0):
    """Weights and advantages."""
    sources = np.float32([rows["v"][:-1], np.log(rows["rho"][:-1])])
    values = behind(rows, "v", "r", "discount")
    return losses.truncated_importance_trajectory(
        sources[0], *values, sources[1], *behind(rows, "continues"), cap
    )


def literal_returns(rows, trace):
    """Eq. 5 and 21, backwards, for rows 0 .. k; `trace` is a function of rho."""
    k = len(rows["r"]) - 1
    returns, after = np.zeros(k), rows["v"][k]
    for i in reversed(range(k)):
        if rows["is_last"][i + 1]:
            after = rows["v"][i + 1]
        returns[i] = rows["r"][i + 1] + rows["discount"][i + 1] * after
        after = trace(rows["rho"][i]) * (returns[i] - rows["q"][i]) + rows["v"][i]
    return returns


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, horizon=HORIZONS, d=st.integers(1, 6))
def test_returns_are_the_recursions_of_the_pseudo_code(seed, horizon, d):
    rows = random_rows(seed, horizon)
    expected = literal_returns(rows, lambda rho: min(1.0, rho ** (1 / d)))
    np.testing.assert_allclose(retrace(rows, 1 / d), expected, rtol=1e-4, atol=1e-4)
    expected = literal_returns(rows, lambda rho: 1.0)
    np.testing.assert_allclose(opc(rows), expected, rtol=1e-4, atol=1e-4)


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, horizon=HORIZONS, cap=st.floats(0.1, 10))
def test_baselines_are_their_sums(seed, horizon, cap):
    rows = random_rows(seed, horizon)
    wanted = {name: rows[name] for name in ("v", "r", "discount", "rho", "is_last")}
    expected = oracles.importance_sampled_return(**wanted)
    np.testing.assert_allclose(sampled(rows), expected, rtol=2e-4, atol=2e-4)
    weights, advantages = trajectories(rows, cap)
    expected = oracles.truncated_importance_trajectory(**wanted, cap=cap)
    np.testing.assert_allclose(weights, expected[0], rtol=2e-4, atol=1e-5)
    np.testing.assert_allclose(advantages, expected[1], rtol=2e-4, atol=2e-4)


def test_retrace_by_hand():
    # Behind: 2 + 0.5 * 4 = 4. Before: 1 + 0.5 * (min(1, 2) * (4 - 3) + 1) = 2.
    returns = losses.q_retrace(
        q_t=jnp.array([3.0, 9.0]),
        v_t=jnp.array([1.0, 4.0]),
        r_t=jnp.array([1.0, 2.0]),
        discount_t=jnp.array([0.5, 0.5]),
        rho_t=jnp.array([2.0, 7.0]),
    )
    np.testing.assert_allclose(returns, [2.0, 4.0])


def test_trajectories_by_hand():
    # Advantages: 1 + 0.5 * 2 + 0.25 * 4 - 0 = 3 and 2 + 0.5 * 4 - 1 = 3; weights 2 * 3 and 3.
    weights, advantages = losses.truncated_importance_trajectory(
        v_tm1=jnp.array([0.0, 1.0]),
        v_t=jnp.array([1.0, 4.0]),
        r_t=jnp.array([1.0, 2.0]),
        discount_t=jnp.array([0.5, 0.5]),
        log_rho_tm1=jnp.log(jnp.array([2.0, 3.0])),
        continues_t=jnp.array([True, True]),
    )
    np.testing.assert_allclose(weights, [5.0, 3.0], rtol=1e-6)
    np.testing.assert_allclose(advantages, [3.0, 3.0])


def test_erratum_3_retrace_is_capped_at_one():
    rows = random_rows(0, 6, ends=0.0)
    rows["rho"] = 1.0 + rows["rho"]
    np.testing.assert_allclose(retrace(rows), opc(rows), rtol=1e-6)


def test_erratum_6_sums_stop_at_the_end_of_the_trajectory():
    """Nothing behind an episode's end, in the sequence or at it, changes what is before."""
    rows = random_rows(1, 6, ends=0.0)
    rows["is_last"][3] = True
    changed = {name: value.copy() for name, value in rows.items()}
    for name in ("q", "r", "discount"):
        changed[name][4:] += 0.1
    changed["v"][4:] += 1.0
    changed["rho"][3:] *= 2.0

    def results(rows):
        return retrace(rows), opc(rows), sampled(rows), *trajectories(rows)

    for first, second in zip(results(rows), results(changed), strict=True):
        np.testing.assert_allclose(first[:3], second[:3], rtol=1e-6)
        assert np.abs(first[3:] - second[3:]).max() > 1e-3


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, size=st.sampled_from([1, 5]))
def test_erratum_7_v_target_corrects_at_its_own_state(seed, size):
    """Eq. 24 and 25, all at x_t: its expectation under mu is V + E_mu[min(1, rho)(Q_ret - Q)]."""
    rng = np.random.default_rng(seed)
    pi, mu = rng.dirichlet(np.ones(size), 2)
    q, q_pi = rng.normal(size=(2, size))
    rho = pi / mu
    v = np.float32(pi @ q)
    targets = losses.v_target(np.float32(q_pi), np.float32(q), np.full(size, v), np.float32(rho))
    before = mu @ (np.minimum(1, rho) * q_pi) + pi @ (np.maximum(1 - 1 / rho, 0) * q)
    np.testing.assert_allclose(mu @ targets, before, atol=1e-5)


def test_erratum_8_importance_sampling_discounts():
    returns = losses.importance_sampled_return(
        v_t=jnp.array([9.0, 4.0]),
        r_t=jnp.array([1.0, 2.0]),
        discount_t=jnp.array([0.5, 0.25]),
        rho_t=jnp.array([3.0, 9.0]),
        continues_t=jnp.array([True, True]),
    )
    np.testing.assert_allclose(returns, [1 + 0.5 * 3 * 3, 3.0])


def test_erratum_9_the_target_of_v_is_of_one_step():
    arrays = [np.random.default_rng(0).uniform(size=4).astype(np.float32) for _ in range(4)]
    whole = losses.v_target(*arrays)
    for i in range(4):
        np.testing.assert_array_equal(losses.v_target(*(x[i] for x in arrays)), whole[i])


def test_erratum_17_the_root_is_retraces_alone():
    q, v, rho = np.float32([0.0]), np.float32([0.0]), np.float32([0.0625])
    common = [np.float32([0.0, 1.0]), np.float32([0.0, 0.0]), np.float32([0.0, 1.0])]
    returns = losses.q_retrace(*common, np.ones(2, np.float32), np.float32([0.0625, 1.0]), 1 / 4)
    np.testing.assert_allclose(returns, [0.5, 1.0])  # 0.0625 ** (1 / 4)
    np.testing.assert_allclose(losses.v_target(np.float32([1.0]), q, v, rho), [0.0625])


def test_the_mean_of_a_dueling_network_over_the_policy_is_the_value():
    # Two actions of probability 1/4 and 3/4, two samples: all eight cases.
    pi, advantage = np.array([0.25, 0.75]), np.array([2.0, -1.0])
    total = 0.0
    for a in range(2):
        for u in range(2):
            for w in range(2):
                sampled = jnp.array([advantage[u], advantage[w]])
                q = losses.stochastic_dueling(jnp.float32(0.7), jnp.float32(advantage[a]), sampled)
                total += pi[a] * pi[u] * pi[w] * float(q)
    np.testing.assert_allclose(total, 0.7, rtol=1e-6)


def test_a_dueling_network_passes_gradients_to_all_its_parts():
    gradients = jax.jit(jax.grad(losses.stochastic_dueling, argnums=(0, 1, 2)))
    grads = gradients(1.0, 2.0, jnp.array([3.0, 5.0]))
    chex.assert_trees_all_close(grads, (1.0, 1.0, jnp.array([-0.5, -0.5])))


@pytest.mark.parametrize("log_rho", [200.0, -200.0])
def test_importance_sampled_returns_of_extreme_ratios_are_clipped(log_rho):
    rho = jnp.exp(jnp.full(4, log_rho))
    v, r = np.float32([5, 6, 7, 8]), np.float32([0, 0, 0, 2])
    discount, go = np.float32([1, 1, 0, 0.5]), np.float32([1, 1, 1, 1])
    returns = losses.importance_sampled_return(v, r, discount, rho, go)
    # The last: 2 + 0.5 * 8. Before it a termination without a reward: 0, whatever the ratio.
    np.testing.assert_array_equal(returns, [0, 0, 0, 6])
    returns = losses.importance_sampled_return(v, r, np.full(4, 0.5, np.float32), rho, go)
    before = 2.0**63 if log_rho > 0 else 0.0
    np.testing.assert_array_equal(returns, [before, before, before, 6])
    negative = losses.importance_sampled_return(-v, -r, np.full(4, 0.5, np.float32), rho, go)
    np.testing.assert_array_equal(negative, -returns)


def test_the_importance_weighted_loss_of_the_value():
    # 3 / 2 * (5 - 1)^2 = 24; its gradient is -3 * 4.
    value, gradient = OF_THE_VALUE(*np.float32([5.0, 1.0, 3.0]))
    np.testing.assert_array_equal([value, gradient], [24.0, -12.0])


@pytest.mark.parametrize("error", [0.0, 0.5, 3.0, 2.0**63])
@pytest.mark.parametrize("log_rho", [200.0, -200.0])
def test_the_importance_weighted_loss_is_finite_for_extreme_ratios(error, log_rho):
    arrays = (jnp.float32(error), jnp.float32(0.0), jnp.exp(jnp.float32(log_rho)))
    value, gradient = OF_THE_VALUE(*arrays)
    assert np.isfinite([value, gradient]).all()
    if log_rho < 0 or not error:
        np.testing.assert_array_equal([value, gradient], 0.0)
    else:
        assert gradient < -(2.0**30)
