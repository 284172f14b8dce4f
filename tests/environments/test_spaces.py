"""Spaces of Gymnasium and specs of dm_env: what arrives is compared with them, then converted."""

import contextlib
import fractions
import re
from collections import OrderedDict

import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces
from scripted import TWO, Scripted, ScriptedToo, is_spec, played, showing

from retrax.environments import check_environment, make
from retrax.environments.failures import RefusedError
from retrax.training.run_config import RunConfig

FLOATS = spaces.Box(-1, 1, (2,), np.float32)
IMAGE = spaces.Box(0, 255, (2, 3), np.uint8)
BITS = spaces.Box(0, 1, (2, 3), bool)
COUNTS = spaces.Box(-2, 6, (2,), np.int64)
NESTED = spaces.Dict({"arm": spaces.Tuple([FLOATS, spaces.Discrete(3)]), "goal": FLOATS})
PIXELS = specs.Array((2, 3), np.uint8)
VECTOR = specs.Array((3,), np.float64)
TWO_SPEC = specs.DiscreteArray(2)
MASKS = spaces.Dict(action_mask=spaces.Box(0, 1, (2,), np.int8), b=FLOATS)
PARTS = {"b": specs.Array((1, 2), np.float64), "a": specs.Array((), np.float32)}
ZEROS, EYE = np.zeros(2, np.float32), np.eye(2, 3)

MISFITS = [
    # Floats in an image, beyond and below pixels, rows in place of columns, and so on.
    (IMAGE, np.full((2, 3), 0.7), "", "is of type float64, which Box.*u.* do"),
    (IMAGE, np.array([[0, 1, 2], [3, 300, 5]]), "[1, 1]", "is 300, but"),
    (IMAGE, np.array([[0, 1, -1], [3, 3, 5]]), "[0, 2]", "is -1, but .* 0 to 255"),
    (IMAGE, np.zeros((3, 2), np.uint8), "", r"has shape \(3, 2\), but Box"),
    (BITS, np.full((2, 3), 255, np.uint8), "[0, 0]", "is 255, but .* 0 to 1$"),
    (BITS, np.zeros((2, 3)), "", "is of type float64"),
    (COUNTS, np.array([-2, 7]), "[1]", r"is 7, but Box\(-2, 6, .* -2 to 6$"),
    (spaces.Discrete(4, start=-1), 3, "", "is 3, but .* allows -1 to 2$"),
    (spaces.Discrete(4), 1.5, "", "is of type float64"),
    (spaces.Discrete(4), "1", "", "is of type str, which Discrete"),
    (FLOATS, None, "", r"has shape \(\), but"),
    (spaces.MultiDiscrete([3, 3], start=[0, 1]), np.array([2, 0]), "[1]", "is 0, but .* 1 to 3$"),
    (spaces.MultiBinary(3), np.array([1, 2, 0]), "[1]", "is 2, but .* allows 0 to 1$"),
    (FLOATS, [[1.0], [1.0, 2.0]], "", "is not an array, as Box.* requires$"),
    (FLOATS, np.ones(2, complex), "", "is of type complex128"),
    # Together these have six numbers.
    (spaces.Dict(a=FLOATS, b=COUNTS), {"a": np.zeros(3), "b": ZEROS}, "['a']", r"shape \(3,\)"),
    (NESTED, np.zeros(7), "", r"is of type ndarray, .* the keys \['arm', 'goal'\]$"),
    (NESTED, {"goal": ZEROS}, "", r"has the keys \['goal'\], but Dict.* 'goal'\]$"),
    (NESTED, {"goal": ZEROS, "arm": (ZEROS, 1), "x": 1}, "", r"has the keys \[.*, 'x'\]"),
    (NESTED, {"goal": ZEROS, "arm": (ZEROS,)}, "['arm']", "is a tuple of 1, but"),
    (NESTED, {"goal": ZEROS, "arm": 3}, "['arm']", "is a int, but .* has 2 entries$"),
    (NESTED, {"goal": ZEROS, "arm": [ZEROS, 3]}, "['arm'][1]", "is 3, but D"),
    (NESTED, {"goal": [0, np.nan], "arm": [ZEROS, 2]}, "['goal'][1]", "is nan; .* as a float32$"),
    (PIXELS, np.full((2, 3), 300), "[0, 0]", "is 300, but Array"),
    (PIXELS, np.full((2, 3), 0.5), "", "is of type float64"),
    (PARTS, {"b": np.ones((2, 1)), "a": 1.0}, "['b']", r"has shape \(2, 1\), but Array"),
    (PARTS, {"b": np.ones((1, 2))}, "", r"has the keys \['b'\], but {'b': "),
    (PARTS, {"b": [[0, np.inf]], "a": 1.0}, "['b'][0, 1]", "is inf; it must"),
    (MASKS, {"b": ZEROS, "action_mask": np.array([1, 2])}, "['action_mask'][1]", "is 2, but Box"),
]


@pytest.mark.parametrize(("space", "shown", "where", "what"), MISFITS)
def test_what_does_not_fit_its_space_is_named(space, shown, where, what):
    with pytest.raises(RefusedError) as caught:
        played(showing(space, shown), 2)
    begin = f"the observation{where} of environment 1 at step 2 "
    assert str(caught.value).startswith(begin)
    assert "\n" not in str(caught.value)
    rest = str(caught.value).removeprefix(begin).removesuffix(".")
    assert re.search(what, rest), rest


# An OrderedDict keeps its own order in Gymnasium; a plain dict would be sorted there already.
NINE = np.float32(9) / np.float32(255)
ORDER = {"goal": FLOATS, "arm": spaces.Box(-1, 1, (2, 2)), "time": spaces.Box(0, 9, ())}
UNSIGNED = spaces.Box(0, 10, (2,), np.uint32)
PAIRS = spaces.Box(np.array([0, -5]), np.array([4, 3]), dtype=np.int16)
CHOICES = spaces.MultiDiscrete([[2], [3]], start=[[4], [0]])
TABLES = spaces.Tuple([CHOICES, spaces.MultiBinary([2, 2]), spaces.Box(0, 4, (2, 2), np.uint8)])


@pytest.mark.parametrize(
    ("space", "shown", "seen"),
    [
        (IMAGE, np.arange(6, dtype=np.uint8).reshape(2, 3), np.arange(6).reshape(2, 3, 1)),
        (IMAGE, [[0, 1, 2], [3, 4, 255]], np.array([[0, 1, 2], [3, 4, 255]])[..., None]),
        (spaces.Box(0, 255, (1, 2, 3), np.uint8), [EYE + 5 > 5], EYE[None]),
        (BITS, EYE.astype(np.int8), 255 * EYE[..., None]),
        (spaces.Box(0, 1, (2, 2, 3), bool), np.ones((2, 2, 3), bool), np.full((2, 2, 3), 255)),
        (PIXELS, EYE.astype(np.uint8), EYE[..., None]),
        (specs.Array((1, 2), np.uint16), [[257, 30_000]], [[[1], [117]]]),  # from 0 to 65,535
        (specs.Array((2, 3), bool), EYE > 0, 255 * EYE[..., None]),
        (specs.Array((1, 2, 3), bool), EYE[None] > 0, 255 * EYE[None]),
        (FLOATS, np.array([True, False]), [1, 0]),
        (FLOATS, [3, -4], [3, -4]),  # a bound of floats is no reason to end a run
        (spaces.Box(-1, 1, (2, 2), np.float64), np.eye(2), np.eye(2)),
        (spaces.Box(-1, 1, (), np.float32), 0.5, [0.5]),
        (specs.BoundedArray((2, 3), np.float32, 0, 9), EYE, EYE),
        (VECTOR, np.arange(3.0), [0, 1, 2]),
        (spaces.Box(0, 255, (3,), np.uint8), np.array([0, 255, 9], np.uint8), [0, 1, NINE]),
        (COUNTS, np.array([-2, 6], np.int8), [0, 1]),
        (COUNTS, np.array([-2, 4]), [0, 0.75]),
        (UNSIGNED, np.array([0, 5], np.uint32), [0, 0.5]),
        (specs.BoundedArray((2,), np.int32, -1, 3), np.array([1, 3], np.int32), [0.5, 1]),
        (spaces.Discrete(4), 2, [0, 0, 1, 0]),
        (spaces.Discrete(3), np.array(2, np.uint8), [0, 0, 1]),
        (spaces.Discrete(3, start=-1), -1, [1, 0, 0]),
        (spaces.Discrete(2), True, [0, 1]),
        (specs.DiscreteArray(3), 1, [0, 1, 0]),
        (spaces.MultiBinary(2), np.array([True, False]), [1, 0]),
        (spaces.MultiBinary(3), np.array([1, 0, 1], np.int8), [1, 0, 1]),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 2]), [0, 1, 0, 0, 1]),
        (spaces.Tuple((TWO, spaces.Box(-9, 9, (1,)))), (1, [7.0]), [0, 1, 7]),
        (spaces.Dict({"x": BITS, "v": FLOATS}), {"x": EYE > 0, "v": [3, 4]}, [3, 4, *EYE.flat]),
        (
            spaces.Dict(OrderedDict(ORDER)),
            {"goal": [5, 6], "time": 7, "arm": [[1, 2], [3, 4]]},
            [5, 6, 1, 2, 3, 4, 7],
        ),
        (
            spaces.Dict(a=PAIRS, b=TABLES),
            {"a": [3, -3], "b": (np.array([[5], [2]]), EYE[:, :2] > 0, [[0, 1], [2, 4]])},
            [0.75, 0.25, 0, 1, 0, 0, 1, 1, 0, 0, 1, 0, 0.25, 0.5, 1],
        ),
        (PARTS, {"a": np.float32(1), "b": np.array([[2.0, 3.0]])}, [2, 3, 1]),
        (MASKS, {"b": [3, 4], "action_mask": np.array([True, False])}, [3, 4, 1, 0]),
        ({"x": PARTS, "y": TWO_SPEC}, {"x": {"a": 1, "b": EYE[:1, 1:]}, "y": 1}, [0, 0, 1, 0, 1]),
    ],
)
def test_observations_take_the_promised_form(space, shown, seen):
    environment = showing(space, shown)
    spec, observation = environment.spec.observations, played(environment, 2)[-1].observation[1]
    np.testing.assert_array_equal(observation, seen)
    assert spec.shape == np.shape(seen)
    image = not isinstance(space, spaces.Dict | spaces.Tuple | dict) and np.ndim(seen) == 3
    assert observation.dtype == spec.dtype == (np.uint8 if image else np.float32)


@pytest.mark.parametrize(
    "space",
    [spaces.Dict(), spaces.Tuple([]), spaces.Box(0, 1, (0,)), {}, specs.Array((0, 2), float)],
)
def test_a_space_without_numbers_is_refused(space):
    with pytest.raises(ValueError, match=r"observation.* no numbers: there is nothing to learn\.$"):
        showing(space, None)


BOUNDED = specs.BoundedArray((2,), np.float64, 0, 1)


@pytest.mark.parametrize(
    ("space", "shown", "where", "what"),
    [
        (FLOATS, np.array([0, 1.5], np.float32), "", "is array([0. , 1.5], dtype=float32) (float3"),
        (FLOATS, np.zeros(2), "", "is array([0., 0.]) (float64), which is not in Box(-1.0, 1.0, "),
        (NESTED, {"goal": ZEROS - 2, "arm": (ZEROS, 1)}, "['goal']", "is array([-2., -2.]"),
        (NESTED, {"goal": ZEROS, "arm": (ZEROS + 2, 1)}, "['arm'][0]", "is array([2., 2.]"),
        (IMAGE, np.zeros((2, 3), np.int64), "", "is array([[0, 0, 0], [0, 0, 0]]) (int64)"),
        (BOUNDED, np.array([0, 1.5]), "", "is array([0. , 1.5]) (float64), which is not in Bound"),
        (BOUNDED, ZEROS, "", "is array([0., 0.], dtype=float32)"),
    ],
)
def test_check_environment_asks_the_space_itself(space, shown, where, what):
    environment = showing(space, shown)
    played(environment, 2)  # a run goes on
    with pytest.raises(RefusedError) as caught:
        check_environment(environment, steps=3)
    begin = f"the observation{where} of environment 1 at step 2 {what}"
    assert str(caught.value).startswith(begin), str(caught.value)
    played(environment, 2)


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
    space, shown = spaces.Box(*bounds, dtype=dtype), np.array(shown, dtype)
    environment = make(lambda: Scripted(space=space, see=lambda t: shown))
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
    (0, 255, np.uint8),
    (10, 250, np.uint8),
    (0, 65_535, np.uint16),  # depth
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
    space = specs.BoundedArray((4, 5, 3), dtype, *limits)
    if library == "gymnasium":
        space = spaces.Box(*limits, dtype=dtype)
    environment = showing(space, shown)
    seen = played(environment, 2)[-1].observation[1]
    np.testing.assert_array_equal(seen, pixels(low, high, shown))
    assert environment.spec.observations.shape == (4, 5, 3)
    scaled = dtype is not bool and (np.any(low != 0) or np.any(high != 255))
    note = f"values from {np.min(low)} to {np.max(high)}, which become 0 to 255." if scaled else ""
    assert environment.spec.note.endswith(note)
    assert bool(environment.spec.note) == scaled


@pytest.mark.parametrize(
    ("shape", "turned"),
    [(shape, True) for shape in [(3, 16, 16), (4, 84, 84), (1, 28, 20), (12, 48, 64)]]
    + [(shape, False) for shape in [(84, 84, 3), (8, 8, 111), (10, 10, 4), (3, 12, 20), (9, 84)]],
)
def test_images_with_their_channels_first_are_turned_and_that_is_said(shape, turned):
    shown = np.random.default_rng(0).integers(256, size=shape, dtype=np.uint8)
    environment = showing(spaces.Box(0, 255, shape, np.uint8), shown)
    seen = played(environment, 2)[-1].observation[1]
    note = environment.spec.note
    if not turned:
        np.testing.assert_array_equal(seen, shown.reshape((*shape, 1)[:3]))
        assert note == ""
        return
    np.testing.assert_array_equal(seen, shown.transpose(1, 2, 0))
    sentence = f"The environment's images have their channels first, {shape}, and are transposed"
    assert note == f"{sentence} to {seen.shape}."
    config = RunConfig(agent="acer", environment="x")
    assert config.entry.describe_preset("x", environment.spec).endswith(f". {note}")


# What is refused

MASK = r"action_mask must be \[A\] bools, or integers 0 and 1, for A discrete actions, got .* with"
SEEN = "the observation space .* is not supported: it must be Discrete, .* only with bounds"
TAKEN = "the action space .* is not supported: it must be Discrete, .* with finite bounds"
LARGE = spaces.Dict({"camera": spaces.Box(0, 255, (84, 84, 3), np.uint8), "n": TWO})


@pytest.mark.parametrize(
    ("kind", "space", "message"),
    [
        ("space", spaces.Box(0, np.iinfo(np.int64).max, (3,), np.int64), SEEN),
        ("space", spaces.Box(np.iinfo(np.int32).min, 0, (3,), np.int32), SEEN),
        ("space", spaces.Box(0, 2**32 - 1, (2, 2), np.uint32), SEEN),
        ("space", spaces.Text(3), SEEN),
        ("space", spaces.Tuple((TWO, spaces.Sequence(TWO))), SEEN),
        ("space", LARGE, "has 21170 numbers, but at most 4096 can be flattened"),
        ("space", specs.StringArray(()), SEEN),
        ("space", specs.Array((2,), np.int32), SEEN),
        ("space", specs.Array((2, 2), np.uint32), SEEN),
        ("space", [VECTOR], SEEN),
        ("space", spaces.Dict(a=FLOATS, action_mask=spaces.MultiBinary(3)), MASK),
        ("space", spaces.Dict(a=FLOATS, action_mask=spaces.Box(0, 1, (2,))), MASK),
        ("space", {"a": VECTOR, "action_mask": specs.DiscreteArray(2)}, MASK),
        ("actions", spaces.Box(-np.inf, np.inf, (2,), np.float32), TAKEN),
        ("actions", spaces.Box(-1e300, 1e300, (2,), np.float64), TAKEN),  # infinite as float32
        ("actions", spaces.Tuple((TWO, TWO)), TAKEN),
        ("actions", spaces.MultiBinary(13), "has 8192 combinations; at most 4096"),
        ("actions", spaces.MultiDiscrete([99, 99]), "has 9801 combinations; at most 4096"),
        ("actions", spaces.Box(-1, 1, (0,)), "actions have no numbers"),
        ("actions", specs.Array((2,), np.float32), TAKEN),
        ("actions", specs.BoundedArray((), np.int32, 0, 3), TAKEN),
        ("actions", specs.BoundedArray((1,), np.float32, -np.inf, 1), TAKEN),
        ("actions", {"a": specs.BoundedArray((2,), np.float64, -1, 1)}, TAKEN),
        ("actions", specs.BoundedArray((0,), np.float64, 0, 0), "actions have no numbers"),
    ],
)
def test_other_spaces_are_refused(kind, space, message):
    maker = ScriptedToo if is_spec(space) else Scripted
    with pytest.raises(ValueError, match=message):
        make(lambda: maker(**{kind: space}))


@pytest.mark.parametrize("end", [(0.0, True, False), (0.0, False, True), (0.0, False, False)])
def test_a_mask_has_a_legal_action_until_a_termination(end):
    shown = [{"b": ZEROS, "action_mask": np.array(mask)} for mask in ([0, 1], [0, 0])]
    environment = make(lambda: Scripted([end], MASKS, shown.__getitem__))
    environment.reset()
    stuck = pytest.raises(RefusedError, match="of environment 0 at step 1 has no legal action")
    with contextlib.nullcontext() if end[1] else stuck:
        environment.step(np.array([1]))


# Actions


def asked(space, actions):
    """What an environment is asked to do."""
    environment = make(lambda: (ScriptedToo if is_spec(space) else Scripted)(actions=space))
    environment.reset()
    for action in actions:
        environment.step(np.array([action]))
    return environment.spec.actions, environment._environments[0].asked


@pytest.mark.parametrize(
    ("space", "wanted"),
    [
        (spaces.Discrete(3, start=5), [5, 6, 7]),
        (specs.DiscreteArray(3, np.int64), [0, 1, 2]),
        (
            spaces.MultiDiscrete([2, 3], start=[1, 0]),
            [[1, 0], [1, 1], [1, 2], [2, 0], [2, 1], [2, 2]],
        ),
        (spaces.MultiBinary(2), [[0, 0], [0, 1], [1, 0], [1, 1]]),
        (spaces.MultiDiscrete([[2], [2]]), [[[0], [0]], [[0], [1]], [[1], [0]], [[1], [1]]]),
    ],
)
def test_each_combination_of_actions_has_a_number(space, wanted):
    spec, found = asked(space, range(len(wanted)))
    assert (spec.num_values, spec.dtype) == (len(wanted), np.int32)
    np.testing.assert_array_equal(found, wanted)
    assert all(np.asarray(each).dtype == space.dtype for each in found)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (2, 3)])
@pytest.mark.parametrize("library", ["gymnasium", "dm_env"])
def test_continuous_actions_are_vectors_for_agents_and_clipped(library, shape):
    low = -1.0 - np.arange(np.prod(shape, dtype=int), dtype=np.float64).reshape(shape)
    high = np.full(shape, 0.1)
    space = specs.BoundedArray(shape, np.float64, low, high)
    if library == "gymnasium":
        space = spaces.Box(low, high, dtype=np.float64)
    action, largest = np.linspace(-9, 0.5, low.size, dtype=np.float32), high.astype(np.float32)
    spec, (first, second) = asked(space, [action, largest.ravel()])
    assert (spec.shape, spec.dtype) == ((low.size,), np.float32)
    np.testing.assert_allclose([spec.minimum, spec.maximum], [low.ravel(), high.ravel()], rtol=1e-6)
    np.testing.assert_array_equal(first, np.clip(action.reshape(shape).astype(float), low, high))
    assert (np.shape(first), np.asarray(first).dtype) == (shape, np.float64)
    assert (second <= high).all()  # 0.1 as a float32 is above 0.1
