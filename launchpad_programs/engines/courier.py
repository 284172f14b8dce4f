"""How Launchpad's nodes reach each other: calls over Courier, rows through Reverb."""

from collections.abc import Mapping, Sequence
from typing import Any

from courier.python.client import StatusNotOk

from ...datatypes import EnvironmentSpec, SequenceSpec
from ...replay.interface import Replay
from ...replay.reverb import Checkpoints, Layout, ReverbWriter, is_queued, make_replay
from ...training.stop import StopEvent
from ..config import ProgramConfig
from ..peers import Peers, title_of, until_answered

CALL_SECONDS = 1.0  # call timeout of Courier clients
_NO_ANSWER = ("DEADLINE_EXCEEDED", "UNAVAILABLE")


class CourierPeers(Peers):
    """`Peers` over Courier and Reverb; a peer has no `send`."""

    def __init__(self, config: ProgramConfig, clients: Mapping[str, Any], stop: StopEvent):
        """Takes the program, and clients with a short call timeout by the nodes' names."""
        super().__init__(config, stop, lambda name: _Repeating(clients[name], name, stop))
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
        )
        is_kept = has_checkpoints(self._config)
        return replay, Checkpoints(self._config.directory) if is_kept else None


def has_checkpoints(config: ProgramConfig) -> bool:
    """Whether Reverb keeps the sequences; if not, the learner or each worker does."""
    return not (is_queued(config.run.replay) or config.has_workers)


class _Repeating:
    """A Courier client whose calls are repeated until they are answered.

    A call over Courier cannot be interrupted, so each has a short timeout.
    """

    def __init__(self, client: Any, name: str, stop: StopEvent):
        self._client, self._title, self._stop = client, title_of(name), stop

    def call(self, method: str, *arguments: Any) -> Any:
        def attempt() -> Any:
            try:
                return getattr(self._client, method)(*arguments)
            except StatusNotOk as error:
                if error.code.name in _NO_ANSWER:
                    raise TimeoutError from None
                raise RuntimeError(f"{self._title} refused a call: {error}") from None

        return until_answered(attempt, self._title, self._stop)
