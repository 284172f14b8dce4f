"""An agent's advice, given once."""

import dataclasses

from retrax.agents import acer, d4pg
from retrax.runtime.advice import Advice


def test_advice_is_given_once():
    entry = dataclasses.replace(
        acer.AGENT, advice=lambda config, metrics: config if metrics["loss"] > 1 else None
    )
    advice = Advice(entry, "too large")
    assert advice.first({"loss": 1.0}) is None
    assert advice.first({"loss": 2.0}) == "too large"
    assert advice.first({"loss": 2.0}) is None


def test_an_agent_may_have_none():
    assert Advice(acer.AGENT, acer.Config()).first({"clipped_below_vmin": 1.0}) is None
    assert Advice(d4pg.AGENT, d4pg.Config()).first({"clipped_below_vmin": 1.0}) is not None
