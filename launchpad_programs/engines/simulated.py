"""A simulated engine: a program's own nodes on a virtual clock, in an order that a seed decides.

Nodes, peers and the replay are the other engines' own. Each of their threads is a thread here,
too, but only the one that has the baton runs (greenlets would be a compiled dependency). It gives
the baton away where it waits, and a seeded generator draws who is next. Time passes only while
nobody can run. A seed and a list of faults decide everything; benchmarks/simulate.py checks it.
"""

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import math
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np

from ...replay.interface import Clock, PeerLost
from ..config import ProgramConfig, restarted
from ..kinds import kind_of, nodes_of
from ..node import AHEAD, RemotePeer, RunningNode, Starting, make_node, make_peers

CALLS = ("lose", "forget", "repeat", "delay")  # the next call of a node, or its answer
HORIZON = 600.0  # virtual seconds, within which a program ends
_WAITING = ("add", "draw")  # methods whose callers do not wait
_CALL_SECONDS, _LATE_SECONDS, _MAKING_SECONDS = 0.02, 30.0, 1.0
_START_SECONDS, _SLOW = 1.0, 30.0


class Killed(BaseException):
    """Ends a thread of a process that was killed."""


class Hanging(BaseException):
    """The simulated program has not ended."""


class Fault(NamedTuple):
    """At a time in seconds, to a node; `kind` as in `Program`."""

    at: float
    kind: str
    node: str


@dataclasses.dataclass(eq=False)
class Process:
    """One life of a node; `number` counts all lives."""

    name: str
    number: int = 0
    how: str = ""  # it ended
    slow: float = 1.0
    node: Any = None  # once it is made
    stop: Any = None
    calls: "list[Call]" = dataclasses.field(default_factory=list)  # not answered


@dataclasses.dataclass(eq=False)
class Task:
    """A thread of a process, and what it waits for."""

    process: Process
    until: float = 0.0
    function: Callable[[], Any] = bool
    ready: Callable[[], bool] | None = None
    baton: Any = None  # of its thread, once it has begun


_IDLE = list[Any]()  # batons of threads without a task: starting threads is slow


def _serve(baton: Any) -> None:
    while True:
        baton.get()()


class Scheduler:
    """Virtual time, and who has the baton; `draw` is in [0, 1), `main` the thread that makes it."""

    def __init__(self, seed: int):
        numbers = np.random.default_rng(seed).random
        batches = iter(lambda: numbers(256).tolist(), None)  # cheaper than one by one
        self.now, self.draw = 0.0, itertools.chain.from_iterable(batches).__next__
        self.main = self.current = Task(Process("launcher/0"), baton=queue.SimpleQueue())
        self.tasks, self.hash = [self.current], hashlib.sha256()  # of all events
        self.events = self.lives = 0

    def note(self, text: str) -> None:
        """An event."""
        self.events += 1
        self.hash.update(f"{self.now:.6f} {self.current.process.name} {text}\n".encode())

    def wait(self, ready: Callable[[], bool] | None, seconds: float | None) -> None:
        """Gives the baton away until `ready()`, or for some seconds."""
        task = self.current
        if not task.process.how:
            task.ready, task.until = ready, math.inf if seconds is None else self.now + seconds
            if (chosen := self._next()) is not task:
                self._give(chosen)
                task.baton.get()
        if task.process.how:
            raise Killed
        if self.now > HORIZON:
            raise Hanging(f"The program has not ended after {HORIZON:.0f} s.")

    def spawn(self, process: Process, function: Callable[[], Any], delay: float = 0.0) -> Task:
        """A new thread of a process, which begins after some seconds."""
        self.tasks.append(Task(process, self.now + delay, function))
        return self.tasks[-1]

    def end(self) -> None:
        """Ends every thread but this one."""
        self.now = min(self.now, HORIZON)
        while len(self.tasks) > 1:
            for task in self.tasks[1:]:
                task.process.how = task.process.how or "ended"
            self.wait(None, 0.0)

    def _give(self, task: Task) -> None:
        self.current, work = task, None
        if task.baton is None:
            if not _IDLE:
                _IDLE.append(queue.SimpleQueue())
                threading.Thread(target=_serve, args=_IDLE[:], daemon=True).start()
            task.baton, work = _IDLE.pop(), functools.partial(self._run, task)
        task.baton.put(work)

    def _run(self, task: Task) -> None:
        try:
            with contextlib.suppress(Killed, Hanging):
                if not task.process.how:
                    task.function()
            _IDLE.append(task.baton)
        finally:  # after an error, which Python prints, too
            self.tasks.remove(task)
            self._give(self._next())

    def _next(self) -> Task:
        now, tasks = self.now, self.tasks
        ready = [x for x in tasks if x.until <= now or x.process.how or (x.ready and x.ready())]
        if not ready:
            self.now = now = min([task.until for task in tasks])
            if now > HORIZON:
                return self.main
            ready = [task for task in tasks if task.until <= now]
        return ready[int(self.draw() * len(ready))] if len(ready) > 1 else ready[0]


class _Event:
    """As `threading.Event`."""

    def __init__(self, scheduler: Scheduler):
        self._scheduler, self._is_set = scheduler, False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._is_set:
            self._scheduler.wait(self.is_set, timeout)
        return self._is_set


class _Condition:
    """As `threading.Condition`."""

    def __init__(self, scheduler: Scheduler):
        self._scheduler, self._notified = scheduler, 0
        self._owners: list[Task] = []  # the same one, as often as it has entered

    def __enter__(self) -> None:
        task = self._scheduler.current
        while self._owners and self._owners[0] is not task:
            self._scheduler.wait(lambda: not self._owners, None)
        self._owners.append(task)

    def __exit__(self, *error: object) -> None:
        self._owners.pop()

    def notify_all(self) -> None:
        self._notified += 1

    def wait_for(self, predicate: Callable[[], bool], timeout: float) -> bool:
        until = self._scheduler.now + timeout
        while not (result := predicate()) and self._scheduler.now < until:
            self._wait(until - self._scheduler.now)
        return result

    def _wait(self, seconds: float) -> None:
        owners, self._owners, seen = self._owners, [], self._notified
        try:
            self._scheduler.wait(lambda: self._notified > seen, seconds)
            self.__enter__()
        finally:
            self._owners = owners


class _Thread:
    """As `threading.Thread`, of the process that starts it."""

    def __init__(self, scheduler: Scheduler, target: Callable[[], Any], **_: Any):
        self._scheduler, self._target = scheduler, target

    def start(self) -> None:
        self._task = self._scheduler.spawn(self._scheduler.current.process, self._target)

    def join(self, timeout: float | None = None) -> None:
        self._scheduler.wait(lambda: self._task not in self._scheduler.tasks, timeout)


class _Executor:
    """Work is done at once, by the thread that submits it: one of the orders that may occur."""

    def submit(self, work: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(work(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self) -> None:
        pass


@dataclasses.dataclass(eq=False)
class Call:
    """A call of a process, which `work` makes at the time `due`; answered or not."""

    process: Process
    due: float
    work: Callable[[], None] | None = None
    value: Any = None
    error: Exception | None = None
    done: bool = False

    def end(self, value: Any = None, error: Exception | None = None) -> None:
        """Answers it, unless it has an answer."""
        if not self.done:
            self.value, self.error, self.done = value, error, True


class Peer(RemotePeer):
    """A node of the simulation, as another one calls it."""

    def __init__(self, name: str, program: "Program", process: Process, clock: Clock):
        super().__init__(name, process.stop, clock)
        self._program = program

    def _send(self, method: str, *arguments: Any) -> Call:
        return self._program.call(self, method, arguments)

    def _read(self, sent: Call, timeout: float) -> Any:
        if not sent.done and timeout:
            self._wait(sent, timeout)
        if not sent.done:
            raise TimeoutError(f"{self.title} gave no answer for {timeout} s.")
        if sent.error is not None:
            raise sent.error
        return sent.value

    def _wait(self, sent: Call, timeout: float) -> None:
        """Waits for an answer, and makes the call with this thread if it has none of its own."""
        scheduler, due = self._program.scheduler, sent.due if sent.work else math.inf
        try:
            scheduler.wait(lambda: sent.done, min(timeout, due - scheduler.now))
        except Killed:  # the call may be on its way
            if sent.work and scheduler.draw() < 0.5:
                scheduler.spawn(sent.process, sent.work, max(0.0, sent.due - scheduler.now))
            raise
        if sent.work and not sent.done and scheduler.now >= sent.due:
            task, (work, sent.work) = scheduler.current, (sent.work, None)
            mine, task.process = task.process, sent.process
            try:
                with contextlib.suppress(Killed):
                    work()
            finally:
                task.process = mine
            if mine.how:
                raise Killed


class Program:
    """The processes of a program's nodes, and the faults that strike them.

    A node is killed or slow ("kill", "slow"), all that act are killed ("host"), the launcher gets a
    signal ("stop"). `CALLS` happen to the next call of a node; other kinds wait for `take`.

    Attributes: the newest `processes` of the nodes; the launcher's `stop` event, and when it was
    set, `stopped_at`; sentences about nodes that failed, `errors`.
    """

    def __init__(self, scheduler: Scheduler, faults: Sequence[Fault], *, max_restarts: int):
        """A node that dies is started again, up to so many times."""
        self.scheduler, self._max_restarts = scheduler, max_restarts
        self.processes, self.restarts = dict[str, Process](), dict[str, int]()
        self.stop, self.stopped_at = _Event(scheduler), math.inf
        self.errors, self._waiting = list[str](), list[Fault]()  # for calls and writes
        self._network = Process("network/0")
        scheduler.spawn(self._network, lambda: self._strike(faults))

    def start(self, config: ProgramConfig) -> list[RunningNode]:
        """As an `Engine`."""
        self.config = config
        return [self._running(name) for name in nodes_of(config)]

    def clock(self, process: Process) -> Clock:
        """Of a process."""
        scheduler = self.scheduler
        return Clock(
            monotonic=lambda: scheduler.now,
            process_time=lambda: scheduler.now,
            time_ns=lambda: int(1e9 * scheduler.now) + process.number,
            sleep=lambda seconds: scheduler.wait(None, seconds * process.slow),
            event=functools.partial(_Event, scheduler),
            condition=functools.partial(_Condition, scheduler),
            thread=functools.partial(_Thread, scheduler),
            executor=lambda *_, **__: _Executor(),
        )

    def made(self, process: Process, node: Any) -> None:
        """A node was made: others may call it."""
        process.node = node

    def end(self, process: Process, how: str) -> None:
        """Ends a process, and with it the calls that it has not answered."""
        if not process.how:
            self.scheduler.note(f"{process.name} {how.partition('(')[0]}")  # without paths
            process.how = how
            for call in process.calls:
                call.end(error=PeerLost(f"{process.name} died before it answered."))

    def call(self, peer: Peer, method: str, arguments: Sequence[Any]) -> Call:
        """A call of a node: in a thread of its own, if its caller does not wait for the answer."""
        scheduler, process = self.scheduler, self.processes[peer.name]
        fault = self.take(peer.name, CALLS)
        scheduler.note(f"calls {peer.name} {method} {fault}")
        lost = PeerLost(f"{peer.title} cannot be reached.")
        delay = 1e-3 + _CALL_SECONDS * scheduler.draw() ** 4 + _LATE_SECONDS * (fault == "delay")
        call = Call(process, scheduler.now + delay)

        def work() -> None:
            if process.node is None:
                scheduler.wait(lambda: process.node is not None, _MAKING_SECONDS)
            if process.node is None:
                call.end(error=Starting(f"{peer.title} is starting."))
                return
            try:
                value = getattr(process.node, method)(*arguments)
            except Exception as error:
                call.end(error=RuntimeError(f"{peer.title} refused a call: {error!r}"))
                return
            call.end(value, lost if fault == "forget" else None)

        if process.how or fault == "lose":
            call.process, call.work = self._network, lambda: call.end(error=lost)
        else:
            process.calls = [each for each in process.calls if not each.done] + [call]
            call.work = work
            if fault == "repeat":
                scheduler.spawn(process, work, 2 * delay)
        if method in _WAITING:
            scheduler.spawn(call.process, call.work, delay)
            call.work = None
        return call

    def take(self, name: str, kinds: Sequence[str]) -> str:
        """The kind of a fault that waits for a node, which has happened then."""
        found = [each for each in self._waiting if each.node == name and each.kind in kinds]
        if not found:
            return ""
        self._waiting.remove(found[0])
        return found[0].kind

    def _strike(self, faults: Sequence[Fault]) -> None:
        for fault in faults:
            self.scheduler.wait(None, max(0.0, fault.at - self.scheduler.now))
            self.scheduler.note(f"{fault.kind} {fault.node}")
            names = [name for name in self.processes if kind_of(name).acts]
            struck = names if fault.kind == "host" else [fault.node]
            if fault.kind in ("kill", "host"):
                for name in struck:
                    self.end(self.processes[name], "was killed")
            elif fault.kind == "slow":
                self.processes[fault.node].slow = _SLOW
            elif fault.kind == "stop":
                self.stop.set()
                self.stopped_at = min(self.stopped_at, self.scheduler.now)
            else:
                self._waiting.append(fault)

    def _running(self, name: str) -> RunningNode:
        processes = self.processes
        self._start(name, self.config)

        def revive() -> bool:
            if (restarts := self.restarts.get(name, 0) + 1) <= self._max_restarts:
                self.restarts[name] = restarts
                self._start(name, restarted(self.config, self.restarts, name))
            return restarts <= self._max_restarts

        return RunningNode(
            name,
            ended=lambda: processes[name].how,
            stop=lambda: processes[name].stop.set(),
            kill=lambda: self.end(processes[name], "was killed"),
            traceback=lambda: "",
            revive=revive,
        )

    def _start(self, name: str, config: ProgramConfig) -> None:
        scheduler = self.scheduler
        scheduler.lives += 1
        process = Process(name, scheduler.lives, stop=_Event(scheduler))
        self.processes[name], clock = process, self.clock(process)

        def peer(other: str) -> Peer:
            return Peer(other, self, process, clock)

        peers = make_peers(config, process.stop, peer, AHEAD, clock)

        def run() -> None:
            try:
                node = make_node(name, config, peers)
                self.made(process, node)
                node.run()
                self.end(process, "done")
            except Exception as error:
                self.errors.append(f"{process.name} failed with {error!r}")
                self.end(process, f"failed with {error!r}")

        scheduler.spawn(process, run, _START_SECONDS * scheduler.draw())
