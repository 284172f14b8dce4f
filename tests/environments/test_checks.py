import random

import gymnasium
import numpy as np
import pytest
from dm_env import specs
from scripted import played
from stepping import FIRST, LAST, MID, Counting

from retrax.environments import EnvironmentSpec, TimeStep, check_environment, make, sequential
from retrax.environments.plain_data import pack, unpack

OBSERVATIONS = specs.BoundedArray((3,), np.float32, -1, 1, "observation")
ACTIONS = specs.DiscreteArray(2, np.int32, "action")


class Broken:
    """Two environments with episodes of three steps, that keep every promise until `spoil`.

    `spoil(t, fields)` may change the fields of the time step at step t (0 is the reset).
    """

    num_envs = 2

    def __init__(self, spoil=None, observations=OBSERVATIONS, actions=ACTIONS):
        self.spec = EnvironmentSpec(observations, actions)
        self._spoil, self._t, self.actions = spoil or (lambda t, fields: None), 0, []

    def reset(self):
        self._t = 0
        return self._make()

    def step(self, actions):
        self._t += 1
        self.actions.append(actions)
        return self._make()

    def _make(self):
        kind = (FIRST, MID, MID, LAST)[self._t % 4]
        observation = np.zeros((2, *self.spec.observations.shape), self.spec.observations.dtype)
        fields = {
            "step_type": np.full(2, kind, np.int32),
            "reward": np.full(2, kind != FIRST, np.float32),
            "discount": np.full(2, kind != LAST, np.float32),
            "observation": observation,
        }
        self._spoil(self._t, fields)
        return TimeStep(**fields)


def put(step, name, index, value):
    """Spoils a part of a field at a step; the whole field if `index` is None."""

    def spoil(t, fields):
        if t == step and index is None:
            fields[name] = value
        elif t == step:
            fields[name][index] = value

    return spoil


@pytest.mark.parametrize("discount", [0.0, 0.5, 1.0])
def test_terminations_truncations_and_other_discounts_pass(discount):
    environment = Broken(put(3, "discount", 0, discount))
    check_environment(environment, steps=9)
    assert len(environment.actions) == 9
    assert environment._t == 0  # it was reset
    check_environment(Broken(put(2, "discount", 0, 0.9)), steps=5)


ARRAYS = [
    ("reward", 0, [0.0, 0.0], r"float32 \[2\], got list"),
    ("reward", 1, np.ones(2), r"float32 \[2\], got float64 \[2\]"),
    ("step_type", 1, np.ones(2, np.int8), "int32 .*, got int8"),
    ("reward", 4, np.zeros((2, 1), np.float32), r"float32 \[2\], got float32 \[2, 1\]"),
    ("observation", 1, np.zeros((2, 4), np.float32), r"float32 \[2, 3\], got float32 \[2, 4\]"),
]


@pytest.mark.parametrize(
    ("name", "step", "e", "value", "allowed"),
    [
        *((name, step, None, value, f"a NumPy array {what}") for name, step, value, what in ARRAYS),
        ("step_type", 1, 1, 7, "0, 1 or 2, got 7"),
        ("step_type", 0, 1, MID, r"0 \(FIRST\).*1"),
        ("step_type", 4, 0, MID, r"0 \(FIRST\).*1"),
        ("step_type", 2, 1, FIRST, "1 or 2.*got 0"),
        ("reward", 2, 1, np.nan, "finite, got nan"),
        ("reward", 4, 1, 2.5, "0 on a.*got 2.5"),
        ("reward", 0, 0, 1, "0 on a first step, got 1"),
        ("discount", 1, 0, 1.5, "0 to 1, got 1.5"),
        ("discount", 1, 0, np.nan, "0 to 1, got nan"),
        ("discount", 4, 1, 0.5, "1 on a.*got 0.5"),
        ("discount", 2, 1, 0, "above 0.*got 0.0"),
        ("observation", 2, (1, 2), np.inf, "finite, got inf"),
        ("observation", 2, (0, 1), 1.5, "at most 1.*got 1.5"),
        ("observation", 2, (0, 1), -1.5, "at least -1.*got -1.5"),
    ],
)
def test_each_broken_promise_is_named(name, step, e, value, allowed):
    number, index = e if isinstance(e, tuple) else (e, "")
    place = rf"\[{index}\]" if index != "" else ""
    where = "" if e is None else f"{place} of environment {number}"
    with pytest.raises(ValueError, match=f"^{name}{where} at step {step} must be {allowed}"):
        check_environment(Broken(put(step, name, e, value)), steps=9)


class Draws(Counting):
    """Shows a random number from somewhere."""

    def __init__(self, source):
        self.draw, self.observation_space = SOURCES[source], gymnasium.spaces.Box(0, 1, (1,))

    def step(self, action):
        return np.float32([self.draw(self)]), *super().step(action)[1:]


SOURCES = {
    "np_random": lambda self: self.np_random.random(),
    "space": lambda self: self.observation_space.sample()[0],
    "numpy": lambda self: np.random.random(),  # noqa: NPY002
    "random": lambda self: random.random(),
    "PCG64": lambda self: PCG64.random(),
}
PCG64 = np.random.default_rng(0)


@pytest.mark.parametrize("source", SOURCES)
def test_random_numbers_that_no_seed_repeats_are_told(source, caplog, monkeypatch):
    if source == "PCG64":  # as `np.random.set_bit_generator` has it
        monkeypatch.setattr(np.random, "get_state", lambda legacy: PCG64.bit_generator.state)
    Counting.observation_space.sample()  # of the class; each environment has spaces of its own
    one, two = (make(Draws, source=source, num_envs=2, seed=3) for _ in range(2))
    sequential._warn_of_global_draws.cache_clear()
    check_environment(one)
    told = [record.getMessage()[:14] for record in caplog.records]
    if source in ("numpy", "random", "PCG64"):
        assert told == ["An environment", "observation at"]
        return
    assert told == []
    one.seed_again()
    for a, b in zip(played(one, 9), played(two, 9), strict=True):
        np.testing.assert_array_equal(a.observation, b.observation)
    assert a.observation[0] != a.observation[1]
    two.seed_again()
    two.restore(unpack(pack(one.state())))
    np.testing.assert_array_equal(*(e.step(np.zeros(2, int)).observation for e in (one, two)))


def test_an_array_that_the_next_step_overwrites_is_named():
    shared = np.zeros((2, 3), np.float32)

    def spoil(t, fields):
        shared[:] = t / 100
        fields["observation"] = shared

    with pytest.raises(ValueError, match="observation of step 0 was overwritten by step 1"):
        check_environment(Broken(spoil), steps=9)


def test_a_reset_that_does_not_restart_is_named():
    environment = Broken()
    environment.reset = lambda: environment.step(0)
    environment._t = -1
    with pytest.raises(ValueError, match="step_type of environment 0 at step 3 must be 0"):
        check_environment(environment, steps=2)


@pytest.mark.parametrize(
    ("kind", "spec", "sentence"),
    [
        ("actions", specs.Array((2,), np.float32), "an int32 .*, got Array"),
        ("actions", specs.DiscreteArray(2, np.int64), "an int32 DiscreteArray, .*, got Discr"),
        ("actions", specs.BoundedArray((2,), np.float64, 0, 1), ".* float32 .*, got Bounded"),
        ("actions", specs.BoundedArray((2,), np.float32, [0, -np.inf], 1), ".*finite bounds"),
        ("observations", specs.Array((3,), np.float64), r"float32, or uint8 .*, got float64 \[3\]"),
        ("observations", specs.Array((8, 4), np.uint8), r"float32, or .*, got uint8 \[8, 4\]"),
    ],
)
def test_each_broken_spec_is_named(kind, spec, sentence):
    with pytest.raises(ValueError, match=rf"^spec\.{kind} must (be|have) {sentence}"):
        check_environment(Broken(**{kind: spec}))


def test_the_seed_chooses_actions_within_their_bounds():
    bounds = specs.BoundedArray((2,), np.float32, [-1.0, 0.0], [1.0, 5.0])
    runs = []
    for seed in (0, 0, 1):
        environment = Broken(observations=specs.Array((4, 5, 3), np.uint8), actions=bounds)
        check_environment(environment, steps=50, seed=seed)
        runs.append(np.stack(environment.actions))
    np.testing.assert_array_equal(runs[0], runs[1])
    assert (runs[0] != runs[2]).any()
    assert (runs[0].shape, runs[0].dtype) == ((50, 2, 2), np.float32)
    assert ((runs[0] >= bounds.minimum) & (runs[0] <= bounds.maximum)).all()
    assert runs[0][..., 1].max() > 4
    environment = Broken()
    check_environment(environment, steps=30)
    assert set(np.unique(environment.actions)) == {0, 1}
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        check_environment(environment, steps=0)
