"""Conformance tests for agents and environments of your own."""

from .agents.conformance import check_agent, check_agent_shapes
from .environments import check_environment

__all__ = ["check_agent", "check_agent_shapes", "check_environment"]
