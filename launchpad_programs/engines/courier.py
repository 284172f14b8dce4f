"""How Launchpad's nodes reach each other: calls over Courier, rows through Reverb."""

import concurrent.futures
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from courier.python.client import StatusNotOk

from ...datatypes import EnvironmentSpec, SequenceSpec
from ...replay.interface import PeerLost, Replay
from ...replay.reverb import Checkpoints, Layout, ReverbWriter, is_queued, make_replay
from ...training.stop import StopEvent
from ..config import ProgramConfig
from ..kinds import kind_of
from ..peers import SAVE_SECONDS, Peers, RemotePeer

_CONNECT_SECONDS = 1.0
_NO_ANSWER = ("DEADLINE_EXCEEDED", "UNAVAILABLE")


class CourierPeers(Peers):
    """`Peers` over Courier and Reverb."""

    def __init__(self, config: ProgramConfig, clients: Mapping[str, Any], stop: StopEvent):
        super().__init__(config, stop, lambda name: CourierPeer(clients[name], name, stop))
        self._clients = clients

    def writer(
        self, spec: EnvironmentSpec, sequence: SequenceSpec, environments: Sequence[int]
    ) -> ReverbWriter:
        """As `Peers.writer`."""
        return ReverbWriter(
            self._clients["replay/0"],
            Layout(spec, sequence, self._config.run.replay),
            environments=environments,
            stop=self._stop.is_set,
            max_wait=SAVE_SECONDS,
        )

    def replay(
        self, spec: EnvironmentSpec, sequence: SequenceSpec
    ) -> tuple[Replay, Checkpoints | None]:
        """As `Peers.replay`."""
        run = self._config.run
        replay = make_replay(
            self._clients["replay/0"].server_address,
            Layout(spec, sequence, run.replay),
            num_envs=run.num_envs,
            seed=run.seed,
            max_wait=SAVE_SECONDS,
        )
        is_kept = has_checkpoints(self._config)
        return replay, Checkpoints(self._config.directory) if is_kept else None


def has_checkpoints(config: ProgramConfig) -> bool:
    """Whether Reverb keeps the sequences; if not, the learner or each worker does."""
    return not (is_queued(config.run.replay) or config.has_workers)


class CourierPeer(RemotePeer):
    """A node with a server of Courier, whose client may wait as long as a save takes."""

    def __init__(self, client: Any, name: str, stop: StopEvent):
        super().__init__(name, stop, ends_last=kind_of(name).ends_last)
        self._client = client

    def send(self, method: str, *arguments: Any) -> "CourierAnswer":
        """As `Peer.send`."""
        return CourierAnswer(self, getattr(self._client.futures, method)(*arguments))

    def is_there(self) -> bool:
        """Whether the node's port is open: Courier does not say that a server has died."""
        host, _, port = self._client.address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
        except TimeoutError:  # it is too busy
            return True
        except OSError:
            return False
        return True


class CourierAnswer:
    """The answer to a call over Courier; a `replay.peer.Answer`."""

    def __init__(self, peer: CourierPeer, future: "Future[Any]"):
        self._peer, self._future = peer, future

    def result(self, timeout: float) -> Any:
        """As `Answer.result`."""
        title = self._peer.title
        try:
            return self._future.result(timeout)
        except concurrent.futures.TimeoutError:
            if self._peer.is_there():
                raise TimeoutError(f"{title} gave no answer for {timeout} s.") from None
        except StatusNotOk as error:
            if error.code.name not in _NO_ANSWER:
                raise RuntimeError(f"{title} refused a call: {error}") from None
        self._future.cancel()
        raise PeerLost(f"{title} is not there.")
