"""Node lifecycle: start, stop event, exit with the launcher; calls between nodes.

In `local_mp` every node is a process, which Launchpad stops by SIGTERM; in `local_mt` all nodes are
threads of one process. Under Ray every node is alone in an actor of Ray, which is a process.
"""

import contextlib
import ctypes
import dataclasses
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import launchpad as lp
from courier.python.client import StatusNotOk
from launchpad.address import AbstractAddressBuilder
from launchpad.launch import worker_manager

from ..replay.waiting import Stopped
from ..runtime.stop import StopEvent

CALL_SECONDS = 1.0  # call timeout of Courier clients
_MAX_SILENCE = 120.0  # seconds without an answer
_NO_ANSWER = ("DEADLINE_EXCEEDED", "UNAVAILABLE")
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
# Labels of the nodes that save snapshots at their end.
SAVING = ("learner", "parameter_server", "worker")
# Seconds between SIGTERM and the end of a node, which then kills itself. There may be a large
# replay to save.
_NOTICE_SECONDS = dict.fromkeys(SAVING, 600)
_OTHER_NOTICE_SECONDS = 10
# The learner comes first where cores are few; nobody waits for the evaluator.
_NICE = {"actor": 10, "evaluator": 19}


@dataclasses.dataclass(frozen=True)
class Processes:
    """Nodes are processes, started by the process `launcher`."""

    launcher: int

    def stop_event(self, label: str) -> StopEvent:
        """The stop event of the node in whose thread this is called."""
        del label
        event: threading.Event = lp.stop_event()
        return event

    @contextlib.contextmanager
    def node_context(self, label: str) -> Iterator[None]:
        """Sets up a node's process, which exits at the end of the block."""
        _exit_with(self.launcher)
        # A terminal sends these to all processes; the launcher alone handles them.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.nice(_NICE.get(label, 0))
        notice = _NOTICE_SECONDS.get(label, _OTHER_NOTICE_SECONDS)
        worker_manager.get_worker_manager()._termination_notice_secs = notice
        try:
            yield
        except BaseException:
            traceback.print_exc()
            _exit(1)
        _exit(0)


class Threads:
    """Nodes are threads, with one stop event for each label, which the launcher sets."""

    def __init__(self) -> None:
        self._events: dict[str, threading.Event] = {}

    def stop_event(self, label: str) -> threading.Event:
        """The stop event of all nodes with this label."""
        return self._events.setdefault(label, threading.Event())

    @contextlib.contextmanager
    def node_context(self, label: str) -> Iterator[None]:
        """Nothing to set up."""
        del label
        yield


_stop_in_actor = threading.Event()  # of the node for which Ray started this process


class RayActors:
    """Each node is in a process that Ray started, and that the launcher's calls stop."""

    def stop_event(self, label: str) -> threading.Event:
        """The stop event of the one node in this process."""
        del label
        return _stop_in_actor

    @contextlib.contextmanager
    def node_context(self, label: str) -> Iterator[None]:
        """Sets up the node's process, which Ray ends with the launcher."""
        for thread in os.listdir("/proc/self/task"):  # Ray's threads are there already
            with contextlib.suppress(ProcessLookupError):  # it may end
                nice = os.getpriority(os.PRIO_PROCESS, int(thread)) + _NICE.get(label, 0)
                os.setpriority(os.PRIO_PROCESS, int(thread), nice)
        yield


Execution = Processes | Threads | RayActors


class Node(lp.CourierNode):
    """A node made by a factory; others call its public methods over Courier."""

    def __init__(
        self,
        execution: Execution,
        label: str,
        factory: Callable[..., Any],
        *,
        serves: bool = True,
        port: int | None = None,
        **arguments: Any,
    ):
        """Takes what the node is made from.

        Args:
          execution: of the program.
          label: the node's group.
          factory: called in the node with the arguments (handles become clients) and `stop`.
          serves: whether other nodes call it.
          port: to listen on; a free one if None.
          **arguments: of the factory.
        """
        super().__init__(_WithStop(execution, label, factory), **arguments)
        self._execution, self._label, self._port = execution, label, port
        self._serves = serves

    def bind_addresses(self, **options: Any) -> None:
        """Chooses the port; called by Launchpad."""
        super().bind_addresses(**options)
        bind_port(self.courier_address, self._port)

    def run(self) -> None:
        """Runs the node to its end."""
        with self._execution.node_context(self._label):
            if self._serves:
                super().run()
            else:
                lp.PyClassNode.run(self)


@dataclasses.dataclass(frozen=True)
class _FixedAddress(AbstractAddressBuilder):
    host: str
    port: int

    def build(self) -> str:
        return f"{self.host}:{self.port}"


def bind_port(address: Any, port: int | None, host: str = "localhost") -> None:
    """Binds an address of Launchpad to a port; None leaves it as it is."""
    if port is not None:
        address.bind(_FixedAddress(host, port))


@dataclasses.dataclass(frozen=True)
class _WithStop:
    """Calls a node's factory with the node's stop event, which only its own thread can get."""

    execution: Execution
    label: str
    factory: Callable[..., Any]

    def __call__(self, **arguments: Any) -> Any:
        return self.factory(stop=self.execution.stop_event(self.label), **arguments)


def retry_until_stopped(
    method: Callable[..., Any], name: str, stop: StopEvent, *, max_wait: float = _MAX_SILENCE
) -> Callable[..., Any]:
    """A Courier method that is called again until it answers; calling it twice must do no harm.

    A call over Courier cannot be interrupted, so each call has a short timeout.

    Args:
      method: of a Courier client.
      name: of the other node, for the message.
      stop: when to give up.
      max_wait: seconds without an answer after which it is an error.

    Returns:
      A function that raises `Stopped` if the program ends before there is an answer, TimeoutError
      if there is none for too long, RuntimeError with the other's traceback if the method raised.
    """

    def call(*arguments: Any) -> Any:
        started = time.monotonic()
        while True:
            try:
                return method(*arguments)
            except StatusNotOk as error:
                if error.code.name not in _NO_ANSWER:
                    raise RuntimeError(f"{name} refused a call: {error}") from None
            if stop.is_set():
                raise Stopped(f"{name} gave no answer before the program ended.")
            waited = time.monotonic() - started
            if waited >= max_wait:
                raise TimeoutError(f"{name} gave no answer for {waited:.0f} s.")

    return call


def _exit_with(launcher: int) -> None:
    """Requests SIGTERM for when the launcher dies; exits at once if it has died already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != launcher:
        _exit(1)


def _exit(status: int) -> None:
    """Exits without waiting for threads that are blocked in C++."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
