"""Observations of Gymnasium and dm_env: what arrives is compared with its space, then converted."""

import fractions
import re

import dm_env
import gymnasium
import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces

from retrax.agents.conformance import check_agent_shapes
from retrax.agents.entry import find_agent
from retrax.environments import check_environment, make
from retrax.environments.failures import RefusedError
from retrax.training.run_config import RunConfig

FLOATS = spaces.Box(-1, 1, (2,), np.float32)
IMAGE = spaces.Box(0, 255, (2, 3), np.uint8)
BITS = spaces.Box(0, 1, (2, 3), bool)
COUNTS = spaces.Box(-2, 6, (2,), np.int64)
NESTED = spaces.Dict({"arm": spaces.Tuple([FLOATS, spaces.Discrete(3)]), "goal": FLOATS})
ZEROS = np.zeros(2, np.float32)


class Shows(gymnasium.Env):
    """Shows one observation at step 2 of an episode, and samples of its space at others."""

    action_space = spaces.Discrete(2)

    def __init__(self, space, shown):
        self.observation_space, self.shown, self.time = space, shown, 0

    def observe(self):
        if self.time == 2:
            return self.shown
        return self.observation_space.sample()

    def reset(self, *, seed=None, options=None):
        self.time = 0
        self.observation_space.seed(0)
        return self.observe(), {}

    def step(self, action):
        self.time += 1
        return self.observe(), 0.0, False, False, {}


def vector(space, shown):
    """Two environments: the second shows what a test gives it."""
    shows = iter([space.sample(), shown])
    return make(lambda: Shows(space, next(shows)), num_envs=2)


def play(environment, steps=2):
    """The last of some observations: of the second environment."""
    timestep = environment.reset()
    for _ in range(steps):
        actions = np.zeros((2, *environment.spec.actions.shape), environment.spec.actions.dtype)
        timestep = environment.step(actions)
    return timestep.observation[1]


MISFITS = {
    "floats in an image": (
        IMAGE,
        np.full((2, 3), 0.7),
        "",
        "is of type float64, which Box.*u.* do",
    ),
    "too large for a pixel": (IMAGE, np.array([[0, 1, 2], [3, 300, 5]]), "[1, 1]", "is 300, but"),
    "below a pixel": (IMAGE, np.array([[0, 1, -1], [3, 3, 5]]), "[0, 2]", "is -1, but .* 0 to 255"),
    "columns before rows": (IMAGE, np.zeros((3, 2), np.uint8), "", r"has shape \(3, 2\), but Box"),
    "pixels as bits": (BITS, np.full((2, 3), 255, np.uint8), "[0, 0]", "is 255, but .* 0 to 1$"),
    "floats as bits": (BITS, np.zeros((2, 3)), "", "is of type float64"),
    "out of its bounds": (COUNTS, np.array([-2, 7]), "[1]", r"is 7, but Box\(-2, 6, .* -2 to 6$"),
    "an early category": (spaces.Discrete(4), -1, "", r"is -1, but Discrete\(4\) has 0 to 3$"),
    "a late category": (spaces.Discrete(4, start=-1), 3, "", "is 3, but .* has -1 to 2$"),
    "half a category": (spaces.Discrete(4), 1.5, "", "is of type float64"),
    "a word": (spaces.Discrete(4), "1", "", "is of type str, which Discrete"),
    "nothing": (FLOATS, None, "", r"has shape \(\), but"),
    "one late category of two": (
        spaces.MultiDiscrete([3, 3], start=[0, 1]),
        np.array([2, 0]),
        "[1]",
        "is 0, but .* has 1 to 3$",
    ),
    "two": (spaces.MultiBinary(3), np.array([1, 2, 0]), "[1]", "is 2, but .* has 0 to 1$"),
    "lists of two lengths": (FLOATS, [[1.0], [1.0, 2.0]], "", "is no array, but Box.* is one$"),
    "complex numbers": (FLOATS, np.ones(2, complex), "", "is of type complex128"),
    "a part of another shape": (
        spaces.Dict(a=FLOATS, b=spaces.Box(-1, 1, (4,))),  # together they have six numbers
        {"a": np.zeros(4), "b": np.zeros(2)},
        "['a']",
        r"has shape \(4,\)",
    ),
    "no dictionary": (
        NESTED,
        np.zeros(7),
        "",
        r"is of type ndarray, .* the keys \['arm', 'goal'\]$",
    ),
    "a missing key": (
        NESTED,
        {"goal": ZEROS},
        "",
        r"has the keys \['goal'\], but Dict.* 'goal'\]$",
    ),
    "another key": (
        NESTED,
        {"goal": ZEROS, "arm": (ZEROS, 1), "leg": 1},
        "",
        r"has the keys \['goal', 'arm', 'leg'\]",
    ),
    "a shorter tuple": (
        NESTED,
        {"goal": ZEROS, "arm": (ZEROS,)},
        "['arm']",
        "is a tuple of 1, but",
    ),
    "no tuple": (NESTED, {"goal": ZEROS, "arm": 3}, "['arm']", "is a int, but .* has 2 entries$"),
    "a category within": (NESTED, {"goal": ZEROS, "arm": [ZEROS, 3]}, "['arm'][1]", "is 3, but D"),
    "an infinite number within": (
        NESTED,
        {"goal": np.array([0, np.nan]), "arm": [ZEROS, 2]},
        "['goal'][1]",
        "is nan; it must be finite as a float32$",
    ),
}


@pytest.mark.parametrize("name", MISFITS)
def test_what_does_not_fit_its_space_is_named(name):
    space, shown, where, what = MISFITS[name]
    environment = vector(space, shown)
    with pytest.raises(RefusedError) as caught:
        play(environment)
    begin = f"the observation{where} of environment 1 at step 2 "
    assert str(caught.value).startswith(begin)
    assert "\n" not in str(caught.value)
    rest = str(caught.value).removeprefix(begin).removesuffix(".")
    assert re.search(what, rest), rest


@pytest.mark.parametrize(
    ("space", "shown", "seen"),
    [
        (IMAGE, np.arange(6).reshape(2, 3), np.arange(6).reshape(2, 3, 1)),
        (IMAGE, [[0, 1, 2], [3, 4, 255]], np.array([[0, 1, 2], [3, 4, 255]])[..., None]),
        (BITS, np.eye(2, 3, dtype=np.int8), 255 * np.eye(2, 3)[..., None]),
        (FLOATS, np.array([True, False]), [1, 0]),
        (FLOATS, [3, -4], [3, -4]),  # a bound of floats is no reason to end a run
        (COUNTS, np.array([-2, 6], np.int8), [0, 1]),
        (spaces.Discrete(3), np.array(2, np.uint8), [0, 0, 1]),
        (spaces.Discrete(2), True, [0, 1]),
        (spaces.MultiBinary(2), np.array([True, False]), [1, 0]),
    ],
)
def test_numbers_of_another_type_that_mean_the_same_are_taken(space, shown, seen):
    np.testing.assert_array_equal(play(vector(space, shown)), seen)


def flattened(space, value):
    """The definition, number by number."""
    if isinstance(space, spaces.Dict):
        return [x for key in space for x in flattened(space[key], value[key])]
    if isinstance(space, spaces.Tuple):
        return [x for pair in zip(space, value, strict=True) for x in flattened(*pair)]
    if isinstance(space, spaces.Discrete):
        return [float(i + int(space.start) == value) for i in range(int(space.n))]
    if isinstance(space, spaces.MultiDiscrete):
        each = zip(space.nvec.flat, space.start.flat, value.flat, strict=True)
        return [float(i + start == x) for n, start, x in each for i in range(n)]
    if isinstance(space, spaces.MultiBinary) or space.dtype.kind == "f":
        return [float(x) for x in value.flat]
    bounds = zip(space.low.flat, space.high.flat, value.flat, strict=True)
    return [float(int(x) - int(low)) / (int(high) - int(low)) for low, high, x in bounds]


@pytest.mark.parametrize("seed", range(3))
def test_flattened_observations_against_their_definition(seed):
    space = spaces.Dict(
        {
            "numbers": spaces.Box(np.array([0, -5]), np.array([3, 70]), dtype=np.int16),
            "pixels": spaces.Box(0, 9, (2, 2), np.uint8),
            "parts": spaces.Tuple(
                [
                    spaces.Discrete(4, start=-2),
                    spaces.Dict(a=spaces.MultiDiscrete([[2], [3]], start=[[4], [0]])),
                    spaces.MultiBinary([2, 2]),
                    spaces.Box(-9, 9, (2, 3)),
                ]
            ),
        },
        seed=seed,
    )
    shown = space.sample()
    np.testing.assert_array_equal(play(vector(space, shown)), np.float32(flattened(space, shown)))


@pytest.mark.parametrize(
    "space",
    [spaces.Dict({}), spaces.Tuple([]), spaces.Box(0, 1, (0,)), spaces.Box(0, 9, (0, 2), int)],
)
def test_a_space_without_numbers_is_refused(space):
    with pytest.raises(ValueError, match=r"observation.* no numbers: there is nothing to see\.$"):
        vector(space, None)


# dm_env


class Scripted(dm_env.Environment):
    """Shows one observation at step 2, and another one before: ones, if a test gives none."""

    def __init__(self, spec, shown, before=None):
        self.spec, self.shown, self.time = spec, shown, 0
        self.before = self.ones() if before is None else before

    def observation_spec(self):
        return self.spec

    def action_spec(self):
        return specs.DiscreteArray(2)

    def reset(self):
        self.time = 0
        return dm_env.restart(self.before)

    def step(self, action):
        self.time += 1
        return dm_env.transition(0.0, self.shown if self.time == 2 else self.before)

    def ones(self):
        spec = self.spec
        if isinstance(spec, dict):
            return {key: np.ones(part.shape, part.dtype) for key, part in spec.items()}
        return np.ones(spec.shape, spec.dtype)


PIXELS = specs.Array((2, 3), np.uint8)
PARTS = {"a": specs.Array((1, 2), np.float64), "b": specs.Array((), np.float32)}


@pytest.mark.parametrize(
    ("spec", "shown", "where", "what"),
    [
        (PIXELS, np.full((2, 3), 300), "[0, 0]", "is 300, but Array"),
        (PIXELS, np.full((2, 3), 0.5), "", "is of type float64"),
        (specs.Array((2, 3), bool), np.full((2, 3), 255), "[0, 0]", "is 255, but"),
        (PARTS, {"a": np.ones((2, 1)), "b": 1.0}, "['a']", "has shape (2, 1), but Array"),
        (PARTS, {"a": np.ones((1, 2))}, "", "has the keys ['a'], but {'a': "),
        (PARTS, {"a": [[0, np.inf]], "b": 1.0}, "['a'][0, 1]", "is inf; it must"),
    ],
)
def test_what_does_not_fit_its_spec_is_named(spec, shown, where, what):
    shows = iter([Scripted(spec, None).ones(), shown])
    environment = make(lambda: Scripted(spec, next(shows)), num_envs=2)
    with pytest.raises(RefusedError) as caught:
        play(environment)
    begin = f"the observation{where} of environment 1 at step 2 {what}"
    assert str(caught.value).startswith(begin), str(caught.value)


# By the library's own rules


@pytest.mark.parametrize(
    ("space", "shown", "where", "what"),
    [
        (
            FLOATS,
            np.array([0, 1.5], np.float32),
            "",
            "is array([0. , 1.5], dtype=float32) (float32)",
        ),
        (FLOATS, np.zeros(2), "", "is array([0., 0.]) (float64), which is not in Box(-1.0, 1.0, "),
        (NESTED, {"goal": ZEROS - 2, "arm": (ZEROS, 1)}, "['goal']", "is array([-2., -2.]"),
        (NESTED, {"goal": ZEROS, "arm": (ZEROS + 2, 1)}, "['arm'][0]", "is array([2., 2.]"),
        (IMAGE, np.zeros((2, 3), np.int64), "", "is array([[0, 0, 0], [0, 0, 0]]) (int64)"),
    ],
)
def test_check_environment_asks_the_space_itself(space, shown, where, what):
    environment = vector(space, shown)
    play(environment)  # a run goes on
    with pytest.raises(RefusedError) as caught:
        check_environment(environment, steps=3)
    begin = f"the observation{where} of environment 1 at step 2 {what}"
    assert str(caught.value).startswith(begin), str(caught.value)
    play(environment)


def test_check_environment_asks_the_spec_itself():
    bounded = specs.BoundedArray((2,), np.float64, 0, 1)
    shows = iter([np.ones(2), np.array([0, 1.5])])
    environment = make(lambda: Scripted(bounded, next(shows)), num_envs=2)
    with pytest.raises(
        RefusedError, match=r"^the observation of environment 1 at step 2 is arr.*1\.5"
    ):
        check_environment(environment, steps=3)


# Integers far from 0


@pytest.mark.parametrize(
    ("low", "high", "dtype", "shown", "seen"),
    [
        (1_700_000_000, 1_700_000_100, np.int64, [1_700_000_010, 1_700_000_060], [0.1, 0.6]),
        (-(2**62), -(2**62) + 8, np.int64, [-(2**62), -(2**62) + 2], [0, 0.25]),
        (2**63, 2**63 + 4, np.uint64, [2**63 + 1, 2**63 + 4], [0.25, 1]),
        (-(2**63) + 1, 2**63 - 2, np.int64, [-(2**63) + 1, 2**61], [0, 0.625]),
        (-128, 127, np.int8, [-128, 127], [0, 1]),
    ],
)
def test_integers_are_scaled_before_they_are_rounded(low, high, dtype, shown, seen):
    bounds = (np.full(2, bound, dtype) for bound in (low, high))
    space = spaces.Box(*bounds, dtype=dtype)
    environment = make(lambda: Shows(space, np.array(shown, dtype)))
    environment._environments[0].observe = lambda: np.array(shown, dtype)
    np.testing.assert_allclose(environment.reset().observation[0], seen, rtol=1e-7, atol=1e-9)


# Images


def pixels(low, high, shown):
    """The definition: from the bounds to 0 to 255, each pixel by itself, in exact numbers."""
    ends = np.broadcast_to(low, shown.shape).flat, np.broadcast_to(high, shown.shape).flat
    exact = [
        round(fractions.Fraction(255 * (int(x) - int(a)), max(int(b) - int(a), 1)))
        for a, b, x in zip(*ends, shown.flat, strict=True)
    ]
    return np.array(exact).reshape(shown.shape)


BOUNDS = [
    (0, 1, np.uint8),  # a board
    (0, 2, np.uint8),
    (0, 255, np.uint8),
    (10, 250, np.uint8),
    (0, 65_535, np.uint16),  # depth
    (0, 10_000, np.uint16),
    (5, 510, np.uint32),
    (2**40, 2**40 + 2, np.uint64),
    (np.array([0, 2, 7]), np.array([10, 5, 7]), np.uint8),  # each channel has its own
    (False, True, bool),
]


@pytest.mark.parametrize(("low", "high", "dtype"), BOUNDS)
@pytest.mark.parametrize("library", ["gymnasium", "dm_env"])
def test_images_are_scaled_from_the_bounds_of_their_space(library, low, high, dtype):
    generator = np.random.default_rng(0)
    limits = [np.broadcast_to(x, (4, 5, 3)).astype(dtype) for x in (low, high)]
    shown = generator.integers(*limits, endpoint=True, dtype=dtype)
    if library == "gymnasium":
        environment = vector(spaces.Box(*limits, dtype=dtype), shown)
    else:
        spec = specs.BoundedArray((4, 5, 3), dtype, *limits)
        environment = make(lambda: Scripted(spec, shown, before=limits[0]), num_envs=2)
    np.testing.assert_array_equal(play(environment), pixels(low, high, shown))
    assert environment.spec.observations.shape == (4, 5, 3)
    scaled = dtype is not bool and (np.any(low != 0) or np.any(high != 255))
    note = f"values from {np.min(low)} to {np.max(high)}, which become 0 to 255." if scaled else ""
    assert environment.spec.note.endswith(note)
    assert bool(environment.spec.note) == scaled


def test_pixels_without_bounds_have_those_of_their_type():
    depth = np.array([[0, 257], [65_535, 30_000]], np.uint16)
    environment = make(lambda: Scripted(specs.Array((2, 2), np.uint16), depth), num_envs=2)
    np.testing.assert_array_equal(play(environment)[..., 0], pixels(0, 65_535, depth))
    with pytest.raises(ValueError, match=r"spec .*uint32.* is not supported: .* only with bounds"):
        make(lambda: Scripted(specs.Array((2, 2), np.uint32), None))
    space = spaces.Box(0, 2**32 - 1, (2, 2), np.uint32)
    with pytest.raises(
        ValueError, match=r"is not supported: it must be a Box .of integers only wi"
    ):
        vector(space, None)


@pytest.mark.parametrize("shape", [(3, 16, 16), (4, 84, 84), (1, 28, 20), (12, 48, 64)])
def test_images_with_their_channels_first_are_turned_and_that_is_said(shape):
    shown = np.random.default_rng(0).integers(256, size=shape, dtype=np.uint8)
    environment = vector(spaces.Box(0, 255, shape, np.uint8), shown)
    c, h, w = shape
    seen = play(environment)
    assert seen.shape == (h, w, c)
    assert all(
        seen[i, j, k] == shown[k, i, j] for i in range(h) for j in (0, w - 1) for k in range(c)
    )
    sentence = f"The environment's images have their channels first, {shape}, and are turned to "
    assert environment.spec.note == f"{sentence}{(h, w, c)}."
    config = RunConfig(agent="acer", environment="x")
    line = config.entry.describe_preset("x", environment.spec)
    assert line.endswith(f". {environment.spec.note}")


@pytest.mark.parametrize(
    "shape", [(84, 84, 3), (8, 8, 111), (10, 10, 4), (3, 12, 20), (4, 12, 5), (9, 84)]
)
def test_other_images_stay_as_they_are(shape):
    shown = np.random.default_rng(0).integers(256, size=shape, dtype=np.uint8)
    environment = vector(spaces.Box(0, 255, shape, np.uint8), shown)
    np.testing.assert_array_equal(play(environment), shown.reshape((*shape, 1)[:3]))
    assert environment.spec.note == ""


# Rewards and ends


class Ends(gymnasium.Env):
    """Returns what a test gives it as reward, terminated and truncated."""

    observation_space, action_space = FLOATS, spaces.Discrete(2)

    def __init__(self, *returned):
        self.returned = returned

    def reset(self, *, seed=None, options=None):
        return ZEROS, {}

    def step(self, action):
        return ZEROS, *self.returned, {}


def step_of(*returned):
    each = iter([(0.0, False, False), returned])
    environment = make(lambda: Ends(*next(each)), num_envs=2)
    environment.reset()
    timestep = environment.step(np.zeros(2, np.int32))
    return tuple(float(x[1]) for x in timestep[:3])


MID, LAST = float(dm_env.StepType.MID), float(dm_env.StepType.LAST)


@pytest.mark.parametrize(
    ("reward", "number"),
    [
        (np.array([1.5]), 1.5),
        (np.array([[2]], np.int8), 2),
        (np.float16(0.5), 0.5),
        (np.array(3.0, np.float32), 3),
        ([4], 4),
        (7, 7),
        (True, 1),
        (np.True_, 1),
    ],
)
def test_a_reward_is_one_number_in_whatever_form(reward, number):
    assert step_of(reward, False, False) == (MID, number, 1)


@pytest.mark.parametrize(
    "reward", [None, "1", np.zeros(2), np.zeros(0), [[1.0], [1.0, 2.0]], 1j, 10**400, object()]
)
def test_a_reward_that_is_not_one_number_is_named(reward):
    sentence = r"^the reward of environment 1 at step 1 is .*; it must be one number\.$"
    with pytest.raises(RefusedError, match=sentence):
        step_of(reward, False, False)


@pytest.mark.parametrize("true", [True, np.True_, 1, np.array(1), np.array([True])])
def test_ends_are_true_or_false_in_whatever_form(true):
    false = type(true)(0) if not isinstance(true, np.ndarray) else true * False
    assert step_of(0.0, true, false) == (LAST, 0, 0)
    assert step_of(0.0, false, true) == (LAST, 0, 1)
    assert step_of(0.0, false, false) == (MID, 0, 1)


@pytest.mark.parametrize("end", ["False", np.nan, None, 0.0, 2, np.array([True, True]), [], "x"])
@pytest.mark.parametrize("name", ["terminated", "truncated"])
def test_ends_that_are_neither_true_nor_false_are_named(name, end):
    ends = {"terminated": False, "truncated": False} | {name: end}
    sentence = rf"^the {name} of environment 1 at step 1 is .*; it must be True or False\.$"
    with pytest.raises(RefusedError, match=sentence):
        step_of(0.0, *ends.values())


# Shapes of actions


class Asked(Ends):
    def __init__(self, space):
        super().__init__(0.0, False, False)
        self.action_space, self.asked = space, []

    def step(self, action):
        self.asked.append(action)
        return super().step(action)


class AskedToo(Scripted):
    def __init__(self, spec):
        super().__init__(specs.Array((), np.float64), np.zeros(()))
        self.actions, self.asked = spec, []

    def action_spec(self):
        return self.actions

    def step(self, action):
        self.asked.append(action)
        return super().step(action)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (2, 3)])
@pytest.mark.parametrize("library", ["gymnasium", "dm_env"])
def test_actions_of_any_shape_are_vectors_for_agents(library, shape):
    low = -1.0 - np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    if library == "gymnasium":
        environment = make(lambda: Asked(spaces.Box(low, np.ones(shape, np.float32))), num_envs=2)
    else:
        bounded = specs.BoundedArray(shape, np.float64, low, 1.0)
        environment = make(lambda: AskedToo(bounded), num_envs=2)
    assert environment.spec.actions.shape == (low.size,)
    np.testing.assert_array_equal(environment.spec.actions.minimum, low.ravel())
    environment.reset()
    actions = np.linspace(-9, 0.5, 2 * low.size, dtype=np.float32).reshape(2, -1)
    environment.step(actions)
    for e, inner in enumerate(environment._environments):
        (asked,) = inner.asked
        np.testing.assert_array_equal(asked, np.maximum(actions[e].reshape(shape), low))
        assert np.shape(asked) == shape


@pytest.mark.parametrize("agent", ["acer", "d4pg"])
def test_scalar_observations_and_actions_can_be_learned(agent):
    environment = make(lambda: AskedToo(specs.BoundedArray((), np.float32, -1.0, 1.0)))
    spec, entry = environment.spec, find_agent(agent)
    config = entry.presets[entry.preset_of("x", spec)]()
    check_agent_shapes(entry.make_agent(spec, config), spec, entry=entry)
