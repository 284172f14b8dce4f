"""Advice on the support of return distributions."""

import re

import pytest

from retrax.agents import acer, d4pg, reactor
from retrax.agents.support import advise_on_support

CONFIG = d4pg.Config(vmin=-300.0, vmax=0.5)


@pytest.mark.parametrize(
    ("metrics", "named"),
    [
        ({"clipped_below_vmin": 0.01, "clipped_above_vmax": 0.714}, "71% .* above vmax = 0.5 and"),
        ({"clipped_below_vmin": 0.061, "clipped_above_vmax": 0.0}, "6% .* below vmin = -300 and"),
    ],
)
def test_mass_outside_of_an_end_is_reported_with_what_to_set(metrics, named):
    assert re.match(named, advise_on_support(CONFIG, metrics))


@pytest.mark.parametrize("scaled", [False, True])
def test_the_advice_is_not_what_is_set_already(scaled):
    config = d4pg.Config(scale_rewards=scaled, vmin=-2.0, vmax=2.0)
    advice = advise_on_support(config, {"clipped_below_vmin": 0.18})
    assert "widen vmin and vmax" in advice
    assert ("scale_rewards" in advice) != scaled


@pytest.mark.parametrize(
    "metrics",
    [
        {"clipped_below_vmin": 0.049, "clipped_above_vmax": 0.049},
        {"mass_at_vmin": 0.5, "mass_at_vmax": 0.5},  # returns at the ends are not outside
        {"critic_loss": 3.0},
        {"clipped_below_vmin": float("nan"), "clipped_above_vmax": 0.0},
        {},
    ],
)
def test_a_support_that_fits_needs_no_advice(metrics):
    assert advise_on_support(CONFIG, metrics) is None


def test_agents_with_a_support_give_the_advice():
    assert reactor.AGENT.advice is advise_on_support
    assert d4pg.AGENT.advice is advise_on_support
    assert acer.AGENT.advice is None
