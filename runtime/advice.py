"""An agent's advice, given once."""

from collections.abc import Mapping
from typing import Any

from ..agents.entry import AgentEntry


class Advice:
    """The first sentence of `AgentEntry.advice` in a run."""

    def __init__(self, entry: AgentEntry, agent_config: Any):
        """Takes the entry and the agent's config."""
        self._advise, self._config = entry.advice, agent_config

    def first(self, metrics: Mapping[str, float]) -> str | None:
        """The sentence, if these metrics are the first that give one; None ever after.

        Args:
          metrics: means over the updates since the last call.
        """
        sentence = self._advise(self._config, metrics) if self._advise else None
        if sentence:
            self._advise = None
        return sentence
