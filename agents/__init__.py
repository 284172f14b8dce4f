"""Agents as pure functions: `Agent` is the interface, each agent has a package of its own."""

from .base import Agent, Decision, Update

__all__ = ["Agent", "Decision", "Update"]
