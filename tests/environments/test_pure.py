"""Environments in JAX against the host's classes, step by step, and what is refused."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import StepType, specs

from retrax.environments import make
from retrax.environments.pure import PureVector, Transition, check_pure
from retrax.environments.pure_tasks import (
    PureCartPole,
    PureCatch,
    PureMemory,
    PurePendulum,
)

NUM_ENVS = 3


def balanced(rng, observation):
    """Pushes the cart under its pole; environment 0 acts at random, so that its pole falls."""
    x, v, angle, omega = observation.T
    actions = (3 * angle + omega + 0.05 * x + 0.1 * v > 0).astype(np.int32)
    return np.where(np.arange(NUM_ENVS) == 0, rng.integers(2, size=NUM_ENVS), actions)


def place_numbers(host, state, e):
    host._environments[e].unwrapped.state = np.array(state[e], np.float64)


def random_actions(rng, spec):
    """Continuous ones are out of bounds sometimes."""
    if isinstance(spec, specs.DiscreteArray):
        return rng.integers(spec.num_values, size=NUM_ENVS)
    return rng.normal(0.0, 2.0, (NUM_ENVS, *spec.shape)).astype(np.float32)


# From the host's id to its counterpart, and steps to take.
TASKS = {
    "CartPole-v1": (PureCartPole(), 520),
    "Pendulum-v1": (PurePendulum(), 220),
}


@pytest.mark.parametrize("id", TASKS)
def test_every_step_is_that_of_the_host(id):
    environment, steps = TASKS[id]
    host, vector = make(id, num_envs=NUM_ENVS), PureVector(environment, num_envs=NUM_ENVS)
    assert environment.spec == host.spec
    rng, kinds, close = np.random.default_rng(0), set(), 1e-6
    close *= 5 if id == "Pendulum-v1" else 1  # its rewards reach -16
    found, wanted = vector.reset(), host.reset()
    for _ in range(steps):
        first = np.flatnonzero(found.step_type == StepType.FIRST)
        for e in first:
            place_numbers(host, jax.device_get(vector._running.state), e)
        rest = found.step_type != StepType.FIRST
        assert found.step_type.tolist() == wanted.step_type.tolist()
        np.testing.assert_allclose(found.reward, wanted.reward, atol=close)
        np.testing.assert_array_equal(found.discount, wanted.discount)
        np.testing.assert_allclose(found.observation[rest], wanted.observation[rest], atol=2e-4)
        kinds |= set(zip(found.step_type.tolist(), found.discount.tolist(), strict=True))
        if id == "CartPole-v1":
            actions = balanced(rng, found.observation)
        else:
            actions = random_actions(rng, environment.spec.actions)
        for e in np.flatnonzero(rest):  # rounding must not grow over hundreds of steps
            place_numbers(host, jax.device_get(vector._running.state), e)
        found, wanted = vector.step(actions), host.step(actions)
    terminated, truncated = {(2, 0.0)}, {(2, 1.0)}
    ends = truncated | terminated if id == "CartPole-v1" else truncated
    assert kinds == {(0, 1.0), (1, 1.0)} | ends


@pytest.mark.parametrize(
    ("environment", "low", "high"), [(PureCatch(), 0, 4), (PureMemory(), -1, 1)]
)
def test_all_starts_are_equally_likely(environment, low, high):
    states, _ = jax.vmap(environment.reset)(jax.random.split(jax.random.key(0), 5000))
    drawn = np.asarray(states[1])
    counts = np.bincount(drawn - low, minlength=high - low + 1)
    expected = [1000] * 5 if high == 4 else [2500, 0, 2500]
    np.testing.assert_allclose(counts, expected, atol=200)


def test_a_state_of_another_environment_is_refused():
    vector = PureVector(PureCatch(), num_envs=2)
    with pytest.raises(ValueError, match="were not reset yet"):
        vector.state()
    vector.reset()
    with pytest.raises(
        ValueError,
        match=r"a state of another environment: .*uint32 \(2, 2\).* in place of .*uint32 \(3, 2\)",
    ):
        PureVector(PureCatch(), num_envs=3).restore(vector.state())


@dataclasses.dataclass(frozen=True)
class Wrong(PureCartPole):
    def step(self, key, state, action):
        if float(state[0]) > 0:
            return state, Transition(state, 0.0, False, False)
        return state, Transition(state, 1.0, False, False)


@dataclasses.dataclass(frozen=True)
class Doubled(PureCartPole):
    def reset(self, key):
        state, observation = super().reset(key)
        return state, jnp.concatenate([observation, observation])


@dataclasses.dataclass(frozen=True)
class Changing(PureCartPole):
    def step(self, key, state, action):
        _, transition = super().step(key, state, action)
        return state.astype(jnp.int32), transition


@dataclasses.dataclass(frozen=True)
class Returns(PureCartPole):
    """A field of the third step is something else."""

    field: str = "reward"
    value: float | tuple[float, ...] = 0.0

    def reset(self, key):
        state, observation = super().reset(key)
        return (state, jnp.int32(0)), observation

    def step(self, key, state, action):
        inner, time = state
        inner, transition = super().step(key, inner, action)
        usual = getattr(transition, self.field)
        value = jnp.array(self.value)
        if value.shape == ():
            value = jnp.where(time == 2, value, usual)
        return (inner, time + 1), transition._replace(**{self.field: value})


@pytest.mark.parametrize(
    ("field", "value", "where"),
    [("reward", np.nan, ""), ("reward", -np.inf, ""), ("observation", np.nan, r"\[0\]")],
)
def test_numbers_that_are_not_finite_are_named(field, value, where):
    vector = PureVector(Returns(field=field, value=value), num_envs=2)
    vector.reset()
    for _ in range(2):
        vector.step(np.zeros(2, int))
    sentence = rf"^the {field}{where} of environment 0 at step 3 is {value}; it must be finite"
    with pytest.raises(ValueError, match=sentence):
        vector.step(np.zeros(2, int))


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        (Returns(value=(0.0,)), r"must return a reward that is one number, got float32 \(1,\)"),
        (Returns("terminated", (1.0, 1.0)), r"a terminated that is one bool, got float32 \(2,\)"),
        (Returns("truncated", 1.0), r"must return a truncated that is one bool, got float32 \(\)"),
        (Wrong(), "Wrong cannot be traced by JAX: "),
        (Doubled(), r"Doubled must return observations float32 \(4,\), got float32 \(8,\)\."),
        (Changing(), "Changing must return states of the same types from reset and from step"),
        (make("CartPole-v1"), "GymnasiumVector is not an environment written in JAX: it must have"),
        (object(), "object is not an environment written in JAX"),
    ],
)
def test_what_is_not_pure_is_refused_in_one_sentence(environment, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        check_pure(environment)
    assert "\n" not in str(caught.value)
