"""The learner's side of a `ReplayNode`."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..datatypes import EnvironmentSpec, ReplayConfig, Sample, SequenceSpec
from .interface import Draw, ReplayStatus
from .local import LocalReplay
from .peer import Peer


class RemoteReplay:
    """A `Replay` in another node, with some draws requested ahead."""

    metric_names: tuple[str, ...] = LocalReplay.metric_names
    shapes: list[Sample]

    def __init__(
        self,
        peer: Peer,
        environment_spec: EnvironmentSpec,
        sequence: SequenceSpec,
        config: ReplayConfig,
        *,
        num_environments: int,
        ahead: int = 2,
    ):
        """Begins to draw; 0 ahead with a `DirectPeer` is equal to a `LocalReplay`."""
        raise NotImplementedError

    def sample(self, timeout: float = 0.0) -> Draw | None:
        """The next draw, if it arrives in time."""
        raise NotImplementedError

    def set_priorities(self, keys: Any, priorities: np.ndarray) -> None:
        """Sends priorities, in the order of the draws."""
        raise NotImplementedError

    def metrics(self, keys: Any) -> dict[str, float]:
        """As of `LocalReplay`."""
        raise NotImplementedError

    def status(self) -> ReplayStatus:
        """Asks the node."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """What the sequences are; the rows are in the node's own state (`keep`)."""
        raise NotImplementedError

    def restore(self, state: Mapping[str, Any], counters: Mapping[str, int]) -> None:
        """Checks the state; that of a `LocalReplay` is sent to the node if it is empty."""
        raise NotImplementedError

    def keep(self, steps: int) -> None:
        """Calls the node's `keep(used, steps)`: `used` is the last draw that was used."""
        raise NotImplementedError

    def prune(self, kept: list[int]) -> None:
        """Calls the node's `prune(kept)`."""
        raise NotImplementedError

    def close(self) -> None:
        """Leaves the node as it is."""
        raise NotImplementedError
