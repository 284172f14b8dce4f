"""What every function of `retrax.losses` keeps: batches, shapes, targets without gradients."""

import functools
import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retrax import losses

PAIR = losses.signed_hyperbolic_pair()
SIZES = {"T": 4, "A": 3, "N": 5}
UNASKED = "may take gradients in any argument"
# From a function to the shapes of its arguments, the others, and the argument that takes gradients.
# T steps, A actions, N atoms, 0 axes; a: an action, b: bool, s: a sorted support, k: a PRNG key.
FUNCTIONS = {
    "acer_policy_gradient": ("A A A 0 0a 0", {"c": 2.0}, None),
    "acer_sampled_policy_gradient": ("A 0 0 A 0 0", {"c": 2.0}, None),
    "beta_loo_loss": ("A A 0a 0 0", {}, 0),
    "categorical_bellman_target": ("Ns 0 0 N", {}, UNASKED),
    "categorical_cross_entropy": ("N N", {}, 1),
    "categorical_kl_divergence": ("N N", {}, 1),
    "categorical_projection": ("Ns N N", {}, UNASKED),
    "categorical_td_loss": ("Ns N 0 0 N", {}, 1),
    "clipped_mass": ("Ns 0 0 N", {}, UNASKED),
    "deterministic_policy_gradient_loss": ("A A", {}, 0),
    "distributional_off_policy_target": ("Ns TAN Ta T T TA T", {}, None),
    "expected_off_policy_return": ("TA Ta T T TA T", {}, None),
    "importance_coefficients": ("T T", {"lambda_": 0.9}, UNASKED),
    "importance_sampled_return": ("T T T T T", {}, None),
    "importance_weighted_value_loss": ("T T T", {}, 1),
    "islr_loss": ("A 0 0 0a 0", {}, 0),
    "mixture_of_gaussians_td_loss": (
        "N N N 0 0 A A A 0k",
        {"num_samples": 2, "min_scale": 0.1},
        (0, 1, 2),
    ),
    "n_step_return": ("T T", {}, UNASKED),
    "policy_entropy": ("A", {}, 0),
    "q_opc": ("T T T T T", {}, None),
    "q_retrace": ("T T T T T", {}, None),
    "retrace_coefficients": ("T T", {"lambda_": 0.9}, UNASKED),
    "scalar_td_loss": ("0 0 0 0", {}, 0),
    "sequence_priority": ("T Tb", {"eta": 0.9}, UNASKED),
    "signed_hyperbolic": ("T", {}, 0),
    "signed_parabolic": ("T", {}, 0),
    "stochastic_dueling": ("0 0 A", {}, (0, 1, 2)),
    "tislr_loss": ("A A A 0 0a 0", {"c": 2.0}, 0),
    "total_variation": ("N N", {}, 1),
    "transformed_n_step_double_q_return": ("TA TA T T T", {"n": 2, "transform": PAIR}, None),
    "transformed_off_policy_return": ("TA Ta T T TA T", {"transform": PAIR}, None),
    "tree_backup_coefficients": ("T", {"lambda_": 0.9}, UNASKED),
    "truncated_beta": ("T", {"c": 1.5}, UNASKED),
    "truncated_importance_trajectory": ("T T T T T Tb", {}, None),
    "trust_region_projection": ("A A", {"delta": 0.1}, None),
    "v_target": ("T T T T", {}, None),
}
# Functions of arrays of any shape, and arguments whose length no other has.
ELEMENTWISE = ("signed_hyperbolic", "signed_parabolic", "truncated_beta")
OWN_LENGTH = {"categorical_projection": 0, "islr_loss": 0, "stochastic_dueling": 2}


def example(name, seed, sizes=SIZES):
    """Arguments of a function."""
    rng, arguments = np.random.default_rng(seed), []
    for symbols in FUNCTIONS[name][0].split():
        shape = tuple(sizes[symbol] for symbol in symbols if symbol in sizes)
        if "k" in symbols:
            arguments.append(jax.random.key(seed))
        elif "a" in symbols:
            arguments.append(rng.integers(3, size=shape).astype(np.int32))
        elif "b" in symbols:
            arguments.append(rng.random(shape) < 0.7)
        else:
            values = rng.uniform(0.1, 0.9, shape).astype(np.float32)
            arguments.append(np.sort(values) if "s" in symbols else np.asarray(values))
    return arguments


def function(name):
    """The function of its arrays alone."""
    return functools.partial(getattr(losses, name), **FUNCTIONS[name][1])


def test_every_function_has_an_example():
    public = {name for name in losses.__all__ if inspect.isfunction(getattr(losses, name))}
    assert public - {"signed_hyperbolic_pair"} == FUNCTIONS.keys()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_batched_is_the_unbatched_and_targets_and_priorities_take_no_gradient(name):
    apply, (*_, learned) = function(name), FUNCTIONS[name]
    examples = [example(name, seed) for seed in range(3)]
    floats = [n for n, x in enumerate(examples[0]) if x.dtype == np.float32]

    @jax.jit
    def everything(*batch):
        alone, batched = apply(*(x[1] for x in batch)), jax.vmap(apply)(*batch)
        if learned == UNASKED:
            return alone, batched, ()
        outputs = lambda *arguments: jax.tree.leaves(apply(*arguments))  # noqa: E731
        return alone, batched, jax.jacrev(outputs, floats)(*(x[0] for x in batch))

    batch = [jnp.stack(arguments) for arguments in zip(*examples, strict=True)]
    alone, batched, jacobians = everything(*batch)
    for x, y in zip(jax.tree.leaves(alone), jax.tree.leaves(batched), strict=True):
        np.testing.assert_allclose(y[1], x, rtol=1e-6, atol=1e-6)
    learned = np.atleast_1d([] if learned is None else learned)
    for output, of_output in enumerate(jacobians):
        for number, jacobian in zip(floats, of_output, strict=True):
            takes = number in learned and output == 0
            assert np.any(jacobian) == takes, f"output {output}, argument {number}"


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in ELEMENTWISE])
def test_arrays_of_other_shapes_are_refused(name):
    right = example(name, 0)
    for number, array in enumerate(right):
        if not jnp.issubdtype(array.dtype, np.number):
            continue
        has_peers = array.ndim and len(right) > 1 and OWN_LENGTH.get(name) != number
        others = [np.repeat(array, 2, axis=-1), array[..., :1]] if has_peers else []
        for wrong in [np.stack([array, array]), *others]:
            arguments = [*right[:number], wrong, *right[number + 1 :]]
            with pytest.raises((AssertionError, TypeError), match=r"assert_|rank|shape") as error:
                jax.eval_shape(function(name), *arguments)
            named = re.findall(r"the argument (\w+)", str(error.value))
            assert inspect.signature(getattr(losses, name)).parameters.keys() >= {*named}


def test_float_actions_are_refused_and_a_wrong_rank_is_named():
    atoms, q_t, a_t, *others = example("distributional_off_policy_target", 0)
    with pytest.raises(AssertionError, match="assert_type"):
        losses.distributional_off_policy_target(atoms, q_t, np.float32(a_t), *others)
    with pytest.raises(AssertionError, match="the argument atoms"):
        losses.distributional_off_policy_target(atoms[None], q_t, a_t, *others)


WINDOWS = (
    *("distributional_off_policy_target", "expected_off_policy_return", "sequence_priority"),
    *("importance_sampled_return", "n_step_return", "q_opc", "q_retrace", "stochastic_dueling"),
    *("transformed_n_step_double_q_return", "transformed_off_policy_return"),
    *("truncated_importance_trajectory", "tree_backup_coefficients"),
    *("importance_coefficients", "retrace_coefficients"),
)


@pytest.mark.parametrize("name", WINDOWS)
def test_a_window_without_transitions_is_refused(name):
    none = "A" if name == "stochastic_dueling" else "T"  # it is a mean over actions
    with pytest.raises(AssertionError, match="dimension greater than '0' on axis '0'"):
        function(name)(*example(name, 0, SIZES | {none: 0}))


@pytest.mark.parametrize("mu", [[0.5, 0.25, 0.25], [0.5, 0.0, 0.5]])
def test_an_infinite_truncation_is_importance_sampling(mu):
    """Also where mu is 0 for an action that was not taken: infinity times 0 is NaN."""
    pi, q, v, return_, a = np.float32([0.2, 0.5, 0.3]), np.float32([1, 2, 3]), 1.5, 4.0, 0
    expected = np.zeros(3)
    expected[a] = (return_ - v) / mu[a]
    arguments = jnp.float32(mu), q, jnp.float32(v), a, jnp.float32(return_), np.inf
    found = losses.acer_policy_gradient(pi, *arguments)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_allclose(-jax.grad(losses.tislr_loss)(pi, *arguments), expected, rtol=1e-6)
