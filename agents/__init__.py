"""Agents as pure functions: `Agent` is the contract, each agent has a package of its own."""

from .base import Agent, Decision, Update, update
from .entry import AgentEntry, agent_names, find_agent

__all__ = ["Agent", "AgentEntry", "Decision", "Update", "agent_names", "find_agent", "update"]
