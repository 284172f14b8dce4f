"""Losses and returns against slow definitions in NumPy.

Each case is named as its function, and draws arguments and what the definition says of them. Sizes
are few, since each is compiled on its own; ends of episodes vary freely.
"""

import compiled_losses as losses
import numpy as np
import oracles
import pytest
from compiled_losses import simplex, single, window
from hypothesis import given, settings
from hypothesis import strategies as st

from retrax.losses import signed_hyperbolic_pair

EPS = 1e-3
PAIR = signed_hyperbolic_pair(EPS)


def random_window(rng):
    return window(rng, *rng.choice([(1, 1), (7, 3)]), ends=rng.uniform(0, 0.6))


def segment(rng):
    """Rows 0 .. k of values of states and of actions taken, and of the ratios of those."""
    shape = rng.choice([1, 6]) + 1
    is_last = rng.random(shape) < 0.2
    terminated = is_last & (rng.random(shape) < 0.5)
    rows = {name: rng.normal(size=shape) for name in ("q", "v", "r")}
    rows["discount"] = np.where(terminated, 0.0, rng.uniform(0.7, 1.0, shape))
    return rows | {"rho": np.exp(rng.normal(size=shape)), "is_last": is_last}


def behind(rows, *names):
    """What belongs to the destination steps of a segment."""
    values = {**rows, "continues": 1.0 - rows["is_last"], "cut": rows["rho"] * ~rows["is_last"]}
    return [values[name][1:] for name in names]


def literal_returns(rows, trace):
    """ACER's equations 5 and 21, backwards; `trace` is a function of rho."""
    k = len(rows["r"]) - 1
    returns, after = np.zeros(k), rows["v"][k]
    for i in reversed(range(k)):
        if rows["is_last"][i + 1]:
            after = rows["v"][i + 1]
        returns[i] = rows["r"][i + 1] + rows["discount"][i + 1] * after
        after = trace(rows["rho"][i]) * (returns[i] - rows["q"][i]) + rows["v"][i]
    return returns


def acer_policy_gradient(rng):
    size, c = rng.choice([1, 3]), rng.uniform(0, 20)
    (pi, mu), (q, returns) = simplex(rng, 2, size), rng.normal(size=(2, size))
    a = rng.integers(size)
    ((_, gradient, _),) = oracles.acer_discrete_steps(
        *([pi, pi], [pi, pi], [q, q], [mu, mu], [a, 0], [0, returns[a]], [1, 0], [False, True]),
        c=c,
        delta=None,
    )
    return (pi, mu, q, pi @ q, a, returns[a], c), gradient


def q_retrace(rng):
    rows, root, lambda_ = segment(rng), 1 / rng.integers(1, 7), rng.random()
    expected = literal_returns(rows, lambda rho: lambda_ * min(1.0, rho**root))
    return (*behind(rows, "q", "v", "r", "discount", "cut"), root, lambda_), expected


def q_opc(rng):
    rows = segment(rng)
    expected = literal_returns(rows, lambda rho: 1.0)
    return behind(rows, "q", "v", "r", "discount", "continues"), expected


def importance_sampled_return(rng):
    rows = segment(rng)
    arguments = behind(rows, "v", "r", "discount", "rho", "continues")
    del rows["q"]
    return arguments, oracles.importance_sampled_return(**rows)


def truncated_importance_trajectory(rng):
    rows, cap = segment(rng), rng.uniform(0.1, 10)
    values = behind(rows, "v", "r", "discount")
    sources = rows["v"][:-1], np.log(rows["rho"][:-1])
    arguments = sources[0], *values, sources[1], *behind(rows, "continues"), cap
    del rows["q"]
    return arguments, oracles.truncated_importance_trajectory(**rows, cap=cap)


def n_step_return(rng):
    length = rng.choice([1, 4])
    r_t, discount_t = rng.normal(size=length), rng.random(length) * (rng.random(length) < 0.8)
    return (r_t, discount_t), oracles.n_step_return(r_t, discount_t)


def categorical_target(rng):
    """Atoms of unequal distances, a return, a discount and probabilities."""
    atoms = np.cumsum(rng.uniform(0.5, 2.0, size=rng.choice([2, 7]))) - 3.0
    discount = rng.choice([0.0, 0.5, 1.0])
    return atoms, 2 * rng.normal(), discount, rng.dirichlet(np.ones(len(atoms)))


def categorical_td_loss(rng):
    atoms, *target = categorical_target(rng)
    arguments = atoms, rng.normal(size=len(atoms)), *target
    return arguments, oracles.categorical_td_loss(*arguments)


def categorical_bellman_target(rng):
    arguments = categorical_target(rng)
    return arguments, oracles.projected(*arguments)


def clipped_mass(rng):
    """In single precision: a value that is an atom's is not outside."""
    atoms, return_, discount, probs = (np.float32(x) for x in categorical_target(rng))
    values = return_ + discount * atoms
    expected = [probs[where].sum() for where in (values < atoms[0], values > atoms[-1])]
    return (atoms, return_, discount, probs), expected


def categorical_kl_divergence(rng):
    """Some targets have zeros, some predictions are nearly certain."""
    atoms = rng.choice([1, 7])
    target = rng.dirichlet(np.full(atoms, rng.choice([0.01, 1.0, 100.0]))).astype(np.float32)
    logits = np.clip(rng.choice([0.1, 3.0, 100.0]) * rng.normal(size=atoms), -300, 300)
    logits = np.float64(logits.astype(np.float32))
    probs = np.exp(logits - logits.max())
    return (target, logits), oracles.kl_divergence(np.float64(target), probs / probs.sum())


def expected_off_policy_return(rng):
    arguments = random_window(rng)
    return arguments.values(), oracles.expected_off_policy_return(**arguments)


def signed_hyperbolic(rng):
    x, eps = rng.choice([-1, 1]) * 10 ** rng.uniform(-9, 6), rng.choice([EPS, 1e-2, 0.3])
    return (x, eps), oracles.signed_hyperbolic(x, eps)


def signed_parabolic(rng):
    x, eps = rng.choice([-1, 1]) * 10 ** rng.uniform(-6, 3), rng.choice([EPS, 1e-2, 0.3])
    return (x, eps), oracles.signed_hyperbolic_inverse(x, eps)


def transformed_off_policy_return(rng):
    arguments = random_window(rng)
    return (*arguments.values(), PAIR), oracles.expected_off_policy_return(**arguments, eps=EPS)


def transformed_n_step_double_q_return(rng):
    arguments, n = random_window(rng), int(rng.choice([1, 3, 9]))
    selector = rng.normal(size=arguments["q_t"].shape)
    goes_on = 1.0 * (arguments["c_t"] > 0)
    given = arguments["q_t"], selector, arguments["r_t"], arguments["discount_t"], goes_on, n
    return (*given, PAIR), oracles.n_step_double_q_target(*given, EPS)


def sequence_priority(rng):
    size, eta = rng.choice([1, 5]), rng.uniform()
    td_error, mask = rng.normal(size=size), rng.random(size) < 0.6
    return (td_error, mask, eta), oracles.sequence_priority(td_error, mask, eta)


# With the relative and the absolute tolerance.
CASES = {
    acer_policy_gradient: (2e-4, 2e-4),
    categorical_bellman_target: (1e-3, 1e-4),
    categorical_kl_divergence: (1e-4, 1e-5),
    categorical_td_loss: (1e-3, 1e-4),
    clipped_mass: (1e-5, 1e-7),
    expected_off_policy_return: (1e-4, 1e-4),
    importance_sampled_return: (2e-4, 2e-4),
    n_step_return: (1e-5, 1e-6),
    q_opc: (1e-4, 1e-4),
    q_retrace: (1e-4, 1e-4),
    sequence_priority: (1e-5, 1e-7),
    signed_hyperbolic: (1e-6, 1e-12),
    signed_parabolic: (1e-5, 1e-9),
    transformed_n_step_double_q_return: (1e-4, 1e-4),
    transformed_off_policy_return: (1e-4, 1e-4),
    truncated_importance_trajectory: (2e-4, 2e-4),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_it_is_its_definition(case, seed):
    arguments, expected = case(np.random.default_rng(seed))
    found = getattr(losses, case.__name__)(*map(single, arguments))
    rtol, atol = CASES[case]
    several = isinstance(found, tuple)
    for x, y in zip(found, expected, strict=True) if several else [(found, expected)]:
        np.testing.assert_allclose(x, y, rtol=rtol, atol=atol)
