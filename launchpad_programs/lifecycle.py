"""How a node lives: it starts under its launcher's eyes, and ends when told to, or with it.

In `local_mp` every node is a process of its own, which Launchpad tells to stop by SIGTERM; in
`local_mt` all are threads of one process. What is done here once, no node has to care about.
"""

import contextlib
import ctypes
import dataclasses
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import launchpad as lp
from launchpad.address import AbstractAddressBuilder
from launchpad.launch import worker_manager

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
# Seconds in which a node has to end after SIGTERM; then it kills itself. The learner may have a
# large replay to save.
_NOTICE_SECONDS = {"learner": 600}
_OTHER_NOTICE_SECONDS = 10
_NICE = {"actor": 10, "evaluator": 10}  # where cores are few, the learner comes first


class StopEvent(Protocol):
    """What a node's loop watches."""

    def is_set(self) -> bool:
        """Whether the node is to end."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Sleeps, but no longer than until the node is to end; returns whether it is."""
        ...


@dataclasses.dataclass(frozen=True)
class Processes:
    """Where nodes are processes, started by `launcher`."""

    launcher: int

    def stop_event(self, label: str) -> StopEvent:
        """The stop event of the node in whose thread this is called."""
        del label
        event: threading.Event = lp.stop_event()
        return event

    @contextlib.contextmanager
    def life(self, label: str) -> Iterator[None]:
        """Begins a node's process; the process ends with the block."""
        _die_with(self.launcher)
        # These go to all processes of a terminal; only the launcher answers them.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.nice(_NICE.get(label, 0))
        notice = _NOTICE_SECONDS.get(label, _OTHER_NOTICE_SECONDS)
        worker_manager.get_worker_manager()._termination_notice_secs = notice
        try:
            yield
        except BaseException:
            traceback.print_exc()
            _leave(1)
        _leave(0)


class Threads:
    """Where nodes are threads: an event for each label, which the launcher sets."""

    def __init__(self) -> None:
        self._events: dict[str, threading.Event] = {}

    def stop_event(self, label: str) -> threading.Event:
        """The stop event of all nodes with this label."""
        return self._events.setdefault(label, threading.Event())

    @contextlib.contextmanager
    def life(self, label: str) -> Iterator[None]:
        """Nothing to begin, and nothing to end."""
        del label
        yield


Lives = Processes | Threads


class Node(lp.CourierNode):
    """A node whose class stands in nodes.py; others call it over Courier."""

    def __init__(
        self,
        lives: Lives,
        label: str,
        factory: Callable[..., Any],
        *,
        serves: bool = True,
        port: int | None = None,
        **arguments: Any,
    ):
        """Takes what the node is made from.

        Args:
          lives: of the launch.
          label: the node's group.
          factory: takes the arguments (handles become clients) and `stop`.
          serves: whether others call it; if not, it listens nowhere.
          port: to listen on; a free one if None.
          **arguments: of the factory.
        """
        super().__init__(_Stoppable(lives, label, factory), **arguments)
        self._lives, self._label, self._port = lives, label, port
        self._serves = serves

    def bind_addresses(self, **options: Any) -> None:
        """Called by Launchpad: chooses the port."""
        super().bind_addresses(**options)
        choose_port(self.courier_address, self._port)

    def run(self) -> None:
        """Runs the node to its end."""
        with self._lives.life(self._label):
            if self._serves:
                super().run()
            else:
                lp.PyClassNode.run(self)


@dataclasses.dataclass(frozen=True)
class FixedPort(AbstractAddressBuilder):
    """The address of a port that was asked for."""

    port: int

    def build(self) -> str:
        """For Launchpad."""
        return f"localhost:{self.port}"


def choose_port(address: Any, port: int | None) -> None:
    """Binds an address to a port, if one was asked for."""
    if port is not None:
        address.bind(FixedPort(port))


@dataclasses.dataclass(frozen=True)
class _Stoppable:
    """Calls a node's factory with the node's stop event, which only its own thread can get."""

    lives: Lives
    label: str
    factory: Callable[..., Any]

    def __call__(self, **arguments: Any) -> Any:
        return self.factory(stop=self.lives.stop_event(self.label), **arguments)


def _die_with(launcher: int) -> None:
    """Asks for SIGTERM when the launcher dies, however it does; ends at once if it has already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != launcher:
        _leave(1)


def _leave(status: int) -> None:
    """Ends the process without waiting for threads that are blocked in C++."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
