"""Agents as pure functions: `Agent` is the contract, each agent has a package of its own."""

from .base import Agent, Decision, Update, update

__all__ = ["Agent", "Decision", "Update", "update"]
