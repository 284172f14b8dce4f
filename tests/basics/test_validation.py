"""Bounds of config fields: declared beside the fields, checked at construction."""

import dataclasses
import importlib
import json
import math
import re
from typing import Annotated, Any, Literal, Optional

import numpy as np
import pytest

from retrax.basics.validation import FieldType, Range, Sizes, check_field, check_fields, field_types
from retrax.datatypes import ReplayConfig, SequenceSpec


def settings(hint, value):
    """An instance of a dataclass `Settings` with one field, `value`, which is not checked yet."""
    return dataclasses.make_dataclass("Settings", [("value", hint)])(value)


def refusal(hint, value):
    with pytest.raises(ValueError, match=r"^Settings\.value must be .*\.$") as error:
        check_fields(settings(hint, value))
    return str(error.value).removeprefix("Settings.value must be ")


@pytest.mark.parametrize(
    ("value", "bounds"),
    [
        (0, Range(0.0)),
        (3.4e38, Range(0.0)),
        (1, Range(0, 1)),
        (0.5, Range(0, 1, above=True)),
        (1.0, Range(0, 1, above=True)),
        (0.0, Range(0, 1, below=True)),
        (1e-300, Range(0.0, above=True)),
        (-float(np.finfo(np.float32).max), Range()),
        (np.float32(0.5), Range(0, 1)),
        (np.int64(1), Range(0, 1)),
        (10**38, Range(0.0)),
    ],
)
def test_accepts_numbers_within_bounds(value, bounds):
    check_fields(settings(Annotated[float, bounds], value))


@pytest.mark.parametrize(
    ("hint", "value", "plain"),
    [
        (Annotated[int, Range(0)], np.int64(3), 3),
        (Annotated[int | None, Range(0)], np.uint8(3), 3),
        (Annotated[float, Range(0.0)], np.float32(0.5), 0.5),
        (Annotated[float, Range(0.0)], np.float64(0.5), 0.5),
        (Annotated[float, Range(0.0)], np.int64(2), 2),
        (Annotated[float, Range(0.0)], 2, 2),
        (bool, np.True_, True),
        (Literal["a", "b"], np.str_("b"), "b"),
        (Annotated[tuple[Any, ...], Sizes()], ((np.int32(8), 4), np.int64(1)), ((8, 4), 1)),
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
    assert refusal(str | None, 3) == "text or None, got 3."


@pytest.mark.parametrize(
    ("value", "bounds", "sentence"),
    [
        (-1, Range(0.0), "a number >= 0.0, got -1."),
        (0.0, Range(0.0, above=True), "a number > 0.0, got 0.0."),
        (1.5, Range(0.0, 1.0), "a number >= 0.0 and <= 1.0, got 1.5."),
        (2, Range(0.0, 1.0, above=True), "a number > 0.0 and <= 1.0, got 2."),
        (1.0, Range(0.0, 1.0, below=True), "a number >= 0.0 and < 1.0, got 1.0."),
        (1.0, Range(high=1.0, below=True), "a number < 1.0, got 1.0."),
        (math.nan, Range(0.0), "a number >= 0.0, got nan."),
        (math.inf, Range(0.0), "a number >= 0.0, got inf."),
        (-math.inf, Range(), "a number, got -inf."),
        (None, Range(0.0), "a number >= 0.0, got None."),
        ("1", Range(0.0), "a number >= 0.0, got '1'."),
        (True, Range(0.0), "a number >= 0.0, got True."),
    ],
)
def test_refuses_other_numbers_in_one_sentence(value, bounds, sentence):
    assert refusal(Annotated[float, bounds], value) == sentence


@pytest.mark.parametrize("value", [1e300, -1e300, 2.0**128, 10**400, 3.5e38])
def test_floats_are_finite_as_float32(value):
    sentence = "a number that float32 can hold, of at most 3.4e+38 in size, got "
    assert refusal(float, value).startswith(sentence)
    assert refusal(Annotated[float, Range()], value).startswith(sentence)


@pytest.mark.parametrize("value", [math.nan, math.inf, None, "1", False])
def test_floats_without_bounds_are_finite_numbers(value):
    assert refusal(float, value) == f"a number, got {value!r}."
    check_fields(settings(float, -3))


@pytest.mark.parametrize("value", [1, 5, 10, np.int32(3)])
def test_accepts_integers_within_bounds(value):
    check_fields(settings(Annotated[int, Range(1, 10)], value))


@pytest.mark.parametrize("value", [0, 11, 1.0, 2.5, True, None, "3", math.nan])
def test_refuses_what_is_not_an_integer_within_bounds(value):
    assert refusal(Annotated[int, Range(1, 10)], value) == (
        f"an integer >= 1 and <= 10, got {value!r}."
    )


@pytest.mark.parametrize("value", [(), (3,), (1, 2, 3), ((16, 8, 4), (32, 4, 2))])
def test_accepts_sizes(value):
    check_fields(settings(Annotated[tuple[int, ...], Sizes()], value))


@pytest.mark.parametrize("value", [(0,), (3, -1), (1.5,), ((1, 0),), [1], "12", 3, None, (True,)])
def test_refuses_other_sizes(value):
    hint = Annotated[tuple[int, ...], Sizes()]
    assert refusal(hint, value) == f"a tuple of integers >= 1, got {value!r}."


def test_sizes_may_have_a_least_number_of_entries():
    hint = Annotated[tuple[int, ...], Sizes(2)]
    check_fields(settings(hint, (1, 1)))
    assert refusal(hint, (1,)) == "a tuple of integers >= 1, at least 2 of them, got (1,)."


@pytest.mark.parametrize("value", ["c", "", None, ["a"]])
def test_literals_bound_themselves(value):
    hint = Literal["a", "b"]
    check_fields(settings(hint, "b"))
    assert refusal(hint, value) == f"one of a, b, got {value!r}."


@pytest.mark.parametrize("value", ["True", None, 3, 1.5])
def test_bools_bound_themselves(value):
    check_fields(settings(bool, False))
    assert refusal(bool, value) == f"one of True, False, got {value!r}."


@pytest.mark.parametrize(
    "hint",
    [
        Annotated[float | None, Range(0.0)],
        Annotated[float, Range(0.0)] | None,
        Optional[Annotated[float, Range(0.0)]],  # noqa: UP045
    ],
)
def test_none_is_accepted_where_the_type_has_it(hint):
    check_fields(settings(hint, None))
    check_fields(settings(hint, 1))
    assert refusal(hint, -1.0) == "a number >= 0.0 or None, got -1.0."


@pytest.mark.parametrize("hint", [Any, int | str, dict[str, int], ReplayConfig])
def test_other_types_are_not_checked(hint):
    check_fields(settings(hint, object()))


def test_other_markers_are_ignored():
    hint = Annotated[int, "a note", Range(1)]
    assert refusal(hint, 0) == "an integer >= 1, got 0."


def test_the_first_wrong_field_is_named():
    @dataclasses.dataclass
    class Two:
        first: Annotated[int, Range(1)] = 0
        second: Annotated[int, Range(1)] = 0

        def __post_init__(self):
            check_fields(self)

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


@pytest.mark.parametrize(
    "config_class",
    [
        ReplayConfig,
        *(
            importlib.import_module(f"retrax.agents.{agent}").Config
            for agent in ("acer", "agent57", "d4pg", "reactor")
        ),
    ],
)
def test_every_number_of_a_config_is_checked(config_class):
    """A value that no field accepts, in each field in turn."""
    for name, (hint, bounds, _) in field_types(config_class).items():
        if hint in (int, float, bool) or bounds is not None:
            with pytest.raises(ValueError, match=rf"{config_class.__name__}\.{name} must be .*nan"):
                config_class(**{name: math.nan})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"length": 1}, "SequenceSpec.length must be an integer >= 2, got 1."),
        ({"period": 0}, "SequenceSpec.period must be an integer >= 1, got 0."),
        ({"crosses_episodes": "no"}, "crosses_episodes must be one of True, False, got 'no'."),
        (
            {"first_row_extras": ("core",)},
            r"first_row_extras names \['core'\], but extras",
        ),
    ],
)
def test_wrong_sequences_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        SequenceSpec(**{"length": 2, **changes})
