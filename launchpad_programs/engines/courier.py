"""How Launchpad's nodes reach each other: calls over Courier, rows through Reverb."""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from courier.python.client import StatusNotOk

from ...datatypes import EnvironmentSpec, SequenceSpec
from ...replay.interface import Replay
from ...replay.reverb import Checkpoints, ReverbWriter, make_replay
from ...replay.waiting import Stopped
from ...runtime.stop import StopEvent
from ..config import ProgramConfig
from ..kinds import kind_of
from ..peers import Caller

CALL_SECONDS = 1.0  # call timeout of Courier clients
_MAX_SILENCE = 120.0  # seconds without an answer
_NO_ANSWER = ("DEADLINE_EXCEEDED", "UNAVAILABLE")


class CourierPeers:
    """`Peers` over Courier and Reverb."""

    def __init__(self, config: ProgramConfig, clients: Mapping[str, Any], stop: StopEvent):
        """Takes the program, and clients with a short call timeout by the nodes' names."""
        self._config, self._clients, self._stop = config, clients, stop

    def peer(self, name: str) -> Caller:
        """As of `Peers`."""
        return _Repeating(self._clients[name], name, self._stop)

    def once(self, name: str) -> Caller:
        """As of `Peers`."""
        return _Once(self._clients[name])

    def writer(
        self, spec: EnvironmentSpec, sequence: SequenceSpec, environments: Sequence[int]
    ) -> ReverbWriter:
        """As of `Peers`."""
        return ReverbWriter(
            self._clients["replay/0"],
            spec,
            sequence,
            self._config.run.replay,
            environments=environments,
            stop=self._stop.is_set,
        )

    def replay(
        self, spec: EnvironmentSpec, sequence: SequenceSpec
    ) -> tuple[Replay, Checkpoints | None]:
        """As of `Peers`."""
        run = self._config.run
        replay = make_replay(
            self._clients["replay/0"].server_address,
            spec,
            sequence,
            run.replay,
            num_environments=run.num_envs,
            seed=run.seed,
        )
        return replay, Checkpoints(self._config.directory) if has_checkpoints(
            self._config
        ) else None


def has_checkpoints(config: ProgramConfig) -> bool:
    """Whether Reverb keeps the sequences; if not, the learner or each worker does."""
    return config.run.replay.selector != "contextual" and not config.has_workers


class _Once:
    """A Courier client, called by the name of a method."""

    def __init__(self, client: Any):
        self._client = client

    def call(self, method: str, *arguments: Any) -> Any:
        return getattr(self._client, method)(*arguments)


class _Repeating:
    """A Courier client whose calls are repeated until they are answered."""

    def __init__(self, client: Any, name: str, stop: StopEvent):
        self._once = _Once(client)
        self._title, self._stop = f"The {kind_of(name).label.replace('_', ' ')}", stop

    def call(self, method: str, *arguments: Any) -> Any:
        attempt = functools.partial(self._once.call, method, *arguments)
        return retry_until_stopped(attempt, self._title, self._stop)


def retry_until_stopped(
    attempt: Callable[[], Any], name: str, stop: StopEvent, *, max_wait: float = _MAX_SILENCE
) -> Any:
    """The answer to a call over Courier, which is made again until there is one.

    A call over Courier cannot be interrupted, so each has a short timeout.

    Args:
      attempt: makes the call; twice must do no harm.
      name: of the other node, for the message.
      stop: when to give up.
      max_wait: seconds without an answer after which it is an error.

    Raises:
      Stopped: the program ended before there was an answer.
      TimeoutError: there was none for too long.
      RuntimeError: the method failed; with the other node's traceback.
    """
    started = time.monotonic()
    while True:
        try:
            return attempt()
        except StatusNotOk as error:
            if error.code.name not in _NO_ANSWER:
                raise RuntimeError(f"{name} refused a call: {error}") from None
        if stop.is_set():
            raise Stopped(f"{name} gave no answer before the program ended.")
        waited = time.monotonic() - started
        if waited >= max_wait:
            raise TimeoutError(f"{name} gave no answer for {waited:.0f} s.")
