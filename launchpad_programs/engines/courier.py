"""How Launchpad's nodes reach each other: calls over Courier, rows through Reverb."""

import concurrent.futures
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from courier.python.client import StatusNotOk

from ...datatypes import EnvironmentSpec, SequenceSpec
from ...replay.interface import PeerLost, Replay, Writer
from ...replay.reverb import Checkpoints, Layout, ReverbReplay, ReverbWriter
from ...replay.selectors import has_tables
from ...training.stop import StopEvent
from ..config import ProgramConfig
from ..kinds import kind_of
from ..peers import SAVE_SECONDS, Peers, RemotePeer

_AHEAD = 2  # requests of draws
_CONNECT_SECONDS = 1.0
_NO_ANSWER = ("DEADLINE_EXCEEDED", "UNAVAILABLE")


class CourierPeers(Peers):
    """`Peers` over Courier; over Reverb where the replay has tables."""

    def __init__(self, config: ProgramConfig, clients: Mapping[str, Any], stop: StopEvent):
        super().__init__(
            config, stop, lambda name: CourierPeer(clients[name], name, stop), ahead=_AHEAD
        )
        self._clients = clients

    def writer(
        self, spec: EnvironmentSpec, sequence: SequenceSpec, environments: Sequence[int]
    ) -> Writer:
        """As `Peers.writer`."""
        config, stop = self._config.run.replay, self._stop.is_set
        if not has_tables(config):
            return super().writer(spec, sequence, environments)
        client, layout = self._clients["replay/0"], Layout(spec, sequence, config)
        return ReverbWriter(
            client, layout, environments=environments, stop=stop, max_wait=SAVE_SECONDS
        )

    def replay(self, spec: EnvironmentSpec, sequence: SequenceSpec) -> tuple[Replay, Any]:
        """As `Peers.replay`."""
        run, client = self._config.run, self._clients["replay/0"]
        if not has_tables(run.replay):
            return super().replay(spec, sequence)
        layout = Layout(spec, sequence, run.replay)
        address, num_envs = client.server_address, run.num_envs
        replay = ReverbReplay(address, layout, num_envs=num_envs, max_wait=SAVE_SECONDS)
        return replay, Checkpoints(self._config.directory)


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
            if not timeout or self._peer.is_there():  # a look must cost nothing
                raise TimeoutError(f"{title} gave no answer for {timeout} s.") from None
        except StatusNotOk as error:
            if error.code.name not in _NO_ANSWER:
                raise RuntimeError(f"{title} refused a call: {error}") from None
        self._future.cancel()
        raise PeerLost(f"{title} is not there.")
