"""Bounds of config fields: declared beside the fields, checked at construction."""

import dataclasses
import importlib
import json
import math
import re
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from retrax.basics.validation import FieldType, Range, Sizes, check_field, check_fields, field_types
from retrax.datatypes import ReplayConfig, SequenceSpec

NAN, INFINITY = math.nan, math.inf
SIZES = Annotated[tuple[int, ...], Sizes()]


def number(*bounds, **kinds):
    return Annotated[float, Range(*bounds, **kinds)]


# Types; what is allowed, in words; values that are, and values that are not.
CASES = [
    (number(0.0), "a number >= 0.0", [0, 3.4e38, 10**38], [-1, NAN, INFINITY, None, "1", True]),
    (number(0.0, 1.0), "a number >= 0.0 and <= 1.0", [1, np.float32(0.5), np.int64(1)], [1.5]),
    (number(0.0, 1.0, above=True), "a number > 0.0 and <= 1.0", [0.5], [0.0, 2]),
    (number(0.0, 1.0, below=True), "a number >= 0.0 and < 1.0", [0.0], [1.0]),
    (number(0.0, above=True), "a number > 0.0", [1e-300], [0.0]),
    (number(high=1.0, below=True), "a number < 1.0", [0], [1.0]),
    (number(), "a number", [-float(np.finfo(np.float32).max)], [-INFINITY]),
    (float, "a number", [-3], [NAN, INFINITY, None, "1", False]),
    (
        Annotated[int, Range(1, 10)],
        "an integer >= 1 and <= 10",
        [1, 5, 10, np.int32(3)],
        [0, 11, 1.0, 2.5, True, None, "3", NAN],
    ),
    (Annotated[int, "a note", Range(1)], "an integer >= 1", [1], [0]),
    (
        SIZES,
        "a tuple of integers >= 1",
        [(), (3,), (1, 2, 3)],
        [(0,), (3, -1), (1.5,), ((1, 2),), [1], "12", 3, None, (True,)],
    ),
    (
        Annotated[tuple[tuple[int, ...], ...] | None, Sizes(each=3)],
        "a tuple of tuples of 3 integers >= 1 or None",
        [None, (), ((16, 8, 4), (32, 4, 2))],
        [(16, 8, 4), ((16, 8),), ((1, 0, 2),), ((1, 2, 3, 4),), ([1, 2, 3],)],
    ),
    (
        Annotated[tuple[int, ...], Sizes(2)],
        "a tuple of integers >= 1, at least 2 of them",
        [(1, 1)],
        [(1,)],
    ),
    (Literal["a", "b"], "one of a, b", ["b"], ["c", "", None, ["a"]]),
    (bool, "one of True, False", [False], ["True", None, 3, 1.5]),
    (Annotated[float | None, Range(0.0)], "a number >= 0.0 or None", [None, 1], [-1.0]),
    (number(0.0) | None, "a number >= 0.0 or None", [None, 1], [-1.0]),
    (str | None, "text or None", [None, "a"], [3]),
    (ReplayConfig, "a ReplayConfig", [ReplayConfig()], [2, None, {"capacity": 10}]),
    *((hint, None, [object()], []) for hint in (Any, int | str, dict[str, int])),
]


def settings(hint, value):
    """An instance of a dataclass `Settings` with one field, `value`, which is not checked yet."""
    return dataclasses.make_dataclass("Settings", [("value", hint)])(value)


def refusal(hint, value):
    with pytest.raises(ValueError, match=r"^Settings\.value must be .*\.$") as error:
        check_fields(settings(hint, value))
    return str(error.value).removeprefix("Settings.value must be ")


@pytest.mark.parametrize(("hint", "allowed", "right", "wrong"), CASES)
def test_values_are_accepted_or_refused_in_one_sentence(hint, allowed, right, wrong):
    for value in right:
        check_fields(settings(hint, value))
    for value in wrong:
        assert refusal(hint, value) == f"{allowed}, got {value!r}."


@pytest.mark.parametrize(
    ("hint", "value", "plain"),
    [
        (Annotated[int, Range(0)], np.int64(3), 3),
        (Annotated[int | None, Range(0)], np.uint8(3), 3),
        (number(0.0), np.float32(0.5), 0.5),
        (number(0.0), np.float64(0.5), 0.5),
        (number(0.0), np.int64(2), 2),
        (number(0.0), 2, 2),
        (bool, np.True_, True),
        (Literal["a", "b"], np.str_("b"), "b"),
        (Annotated[tuple[Any, ...], Sizes(each=2)], ((np.int32(8), 4),), ((8, 4),)),
    ],
)
def test_numbers_become_those_of_json(hint, value, plain):
    config = settings(hint, value)
    check_fields(config)
    assert repr(config.value) == repr(plain)
    assert type(config.value) is type(plain)
    json.dumps(dataclasses.asdict(config))


def test_text_is_text():
    assert refusal(str, check_fields).startswith("text, got <function check_fields")


@pytest.mark.parametrize("value", [1e300, -1e300, 2.0**128, 10**400, 3.5e38])
def test_floats_are_finite_as_float32(value):
    sentence = "a number that float32 can hold, of at most 3.4e+38 in size, got "
    assert refusal(float, value).startswith(sentence)
    assert refusal(number(), value).startswith(sentence)


def test_the_first_wrong_field_is_named():
    @dataclasses.dataclass
    class Two:
        first: Annotated[int, Range(1)] = 0
        second: Annotated[int, Range(1)] = 0
        __post_init__ = check_fields

    with pytest.raises(ValueError, match=r"^Two\.first must be an integer >= 1, got 0\.$"):
        Two()
    with pytest.raises(ValueError, match=r"^Two\.second must be"):
        Two(first=1)


def test_bounds_that_depend_on_other_fields_replace_the_declared_ones():
    config = settings(Annotated[int, Range(1)], 7)
    check_field(config, "value", Range(1, 7))
    sentence = "Settings.value must be an integer >= 1 and <= 6, got 7."
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        check_field(config, "value", Range(1, 6))


def test_field_types_are_resolved_once():
    assert field_types(ReplayConfig) is field_types(ReplayConfig)
    assert field_types(ReplayConfig)["capacity"] == FieldType(int, Range(1), False)


@pytest.mark.parametrize("agent", ["acer", "agent57", "d4pg", "reactor", None])
def test_every_number_of_a_config_is_checked(agent):
    """A value that no field accepts, in each field in turn."""
    config = importlib.import_module(f"retrax.agents.{agent}").Config if agent else ReplayConfig
    for name, (hint, bounds, _) in field_types(config).items():
        if hint in (int, float, bool) or bounds is not None:
            with pytest.raises(ValueError, match=rf"{config.__name__}\.{name} must be .*nan"):
                config(**{name: NAN})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"length": 1}, "SequenceSpec.length must be an integer >= 2, got 1."),
        ({"period": 0}, "SequenceSpec.period must be an integer >= 1, got 0."),
        ({"crosses_episodes": "no"}, "crosses_episodes must be one of True, False, got 'no'."),
        ({"first_row_extras": ("core",)}, r"first_row_extras names \['core'\], but extras"),
    ],
)
def test_wrong_sequences_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        SequenceSpec(**{"length": 2, **changes})
