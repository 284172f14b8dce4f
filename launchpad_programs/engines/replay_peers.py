"""How nodes reach the replay where it is a `ReplayNode`, whatever carries the calls."""

import abc
from collections.abc import Sequence

from ...datatypes import EnvironmentSpec, SequenceSpec
from ...replay.node_writer import NodeWriter
from ...replay.peer import Peer
from ...replay.remote import RemoteReplay
from ...runtime.stop import StopEvent
from ..config import ProgramConfig


class ReplayPeers(abc.ABC):
    """The half of `Peers` that concerns the replay."""

    def __init__(self, config: ProgramConfig, stop: StopEvent, *, ahead: int):
        """Takes the program, the stop event of the node, and draws that are requested ahead."""
        self._config, self._stop, self._ahead = config, stop, ahead

    @abc.abstractmethod
    def peer(self, name: str) -> Peer:
        """See `Peers`."""

    def writer(
        self, spec: EnvironmentSpec, sequence: SequenceSpec, environments: Sequence[int]
    ) -> NodeWriter:
        """See `Peers`."""
        peer, stop = self.peer("replay/0"), self._stop.is_set
        return NodeWriter(peer, spec, sequence, environments=environments, stop=stop)

    def replay(
        self, spec: EnvironmentSpec, sequence: SequenceSpec
    ) -> tuple[RemoteReplay, RemoteReplay]:
        """See `Peers`: the node keeps its own states."""
        replay = RemoteReplay(
            self.peer("replay/0"),
            spec,
            sequence,
            self._config.run.replay,
            num_environments=self._config.run.num_envs,
            ahead=self._ahead,
        )
        return replay, replay
