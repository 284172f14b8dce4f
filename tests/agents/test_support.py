"""Advice on the support of return distributions."""

import re

import pytest

from retrax.agents import acer, d4pg, reactor
from retrax.agents.support import advise_on_support

CONFIG = d4pg.Config(vmin=-300.0, vmax=0.5, num_atoms=100)


@pytest.mark.parametrize(
    ("metrics", "named"),
    [
        ({"mass_at_vmin": 0.01, "mass_at_vmax": 0.714}, "71% of the .* at vmax = 0.5"),
        ({"mass_at_vmin": 0.061, "mass_at_vmax": 0.0}, "6% of the .* at vmin = -300"),
    ],
)
def test_mass_at_an_end_is_told_with_what_to_set(metrics, named):
    assert re.match(named, advise_on_support(CONFIG, metrics))


@pytest.mark.parametrize(
    "metrics",
    [
        {"mass_at_vmin": 0.059, "mass_at_vmax": 0.059},
        {"critic_loss": 3.0},
        {"mass_at_vmin": float("nan"), "mass_at_vmax": 0.0},
        {},
    ],
)
def test_a_support_that_fits_needs_no_advice(metrics):
    assert advise_on_support(CONFIG, metrics) is None


def test_agents_with_a_support_give_the_advice():
    assert reactor.AGENT.advice is advise_on_support
    assert d4pg.AGENT.advice is advise_on_support
    assert acer.AGENT.advice is None
