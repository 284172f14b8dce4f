"""How configs refuse wrong values."""

import dataclasses
import math
import re
from typing import Any

import pytest

from retrax._validation import check_integer, check_one_of, check_range, check_sizes


@dataclasses.dataclass
class Settings:
    value: Any


@pytest.mark.parametrize(
    ("value", "low", "high", "above"),
    [
        (0, 0.0, math.inf, False),
        (1e300, 0.0, math.inf, False),
        (1, 0, 1, False),
        (0.5, 0, 1, True),
        (1.0, 0, 1, True),
        (1e-300, 0.0, math.inf, True),
        (-1e300, -math.inf, math.inf, False),
    ],
)
def test_takes_numbers_in_range(value, low, high, above):
    check_range(Settings(value), "value", low, high, above=above)


@pytest.mark.parametrize(
    ("value", "arguments", "sentence"),
    [
        (-1, {"low": 0}, "Settings.value must be a number >= 0, got -1."),
        (0.0, {"low": 0.0, "above": True}, "Settings.value must be a number > 0.0, got 0.0."),
        (1.5, {"low": 0, "high": 1}, "Settings.value must be a number >= 0 and <= 1, got 1.5."),
        (
            2,
            {"low": 0, "high": 1, "above": True},
            "Settings.value must be a number > 0 and <= 1, got 2.",
        ),
        (math.nan, {"low": 0}, "Settings.value must be a number >= 0, got nan."),
        (math.inf, {"low": 0}, "Settings.value must be a number >= 0, got inf."),
        (
            1.0,
            {"low": 0, "high": 1, "below": True},
            "Settings.value must be a number >= 0 and < 1, got 1.0.",
        ),
        (None, {"low": 0}, "Settings.value must be a number >= 0, got None."),
        ("1", {"low": 0}, "Settings.value must be a number >= 0, got '1'."),
        (True, {"low": 0}, "Settings.value must be a number >= 0, got True."),
        (-math.inf, {"low": -math.inf}, "Settings.value must be a number, got -inf."),
    ],
)
def test_refuses_other_numbers_in_one_sentence(value, arguments, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        check_range(Settings(value), "value", **arguments)


@pytest.mark.parametrize("value", [1, 5, 10**12])
def test_takes_integers(value):
    check_integer(Settings(value), "value", 1)


@pytest.mark.parametrize("value", [0, 1.0, 2.5, True, None, "3", math.nan])
def test_refuses_what_is_not_an_integer_in_range(value):
    sentence = f"Settings.value must be an integer >= 1 and <= 10, got {value!r}."
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        check_integer(Settings(value), "value", 1, 10)


@pytest.mark.parametrize("value", [(), (3,), (1, 2, 3), ((16, 8, 4), (32, 4, 2))])
def test_takes_sizes(value):
    check_sizes(Settings(value), "value")


@pytest.mark.parametrize("value", [(0,), (3, -1), (1.5,), ((1, 0),), "12", None, (True,)])
def test_refuses_other_sizes(value):
    sentence = f"Settings.value must be a tuple of integers >= 1, got {value!r}."
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        check_sizes(Settings(value), "value")


def test_takes_an_allowed_value():
    check_one_of(Settings("b"), "value", ("a", "b"))


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("c", "Settings.value must be one of a, b, got 'c'."),
        ("", "Settings.value must be one of a, b, got ''."),
        (None, "Settings.value must be one of a, b, got None."),
        (["a"], "Settings.value must be one of a, b, got ['a']."),
    ],
)
def test_refuses_what_is_not_allowed(value, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        check_one_of(Settings(value), "value", ("a", "b"))
