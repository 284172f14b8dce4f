"""The launcher's side of a program's life: watches the nodes, and ends them in the right order."""

import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import launchpad as lp
from launchpad.launch.run_locally import launch_local_output_to_files
from launchpad.nodes.python.local_multi_processing import PythonProcess

from .lifecycle import Threads

_POLL_SECONDS = 0.1
_STOP_SECONDS = 3.0  # for nodes that have nothing to save
_ENDED_EARLY = "was killed by SIGTERM"
_LAST = ("counter", "replay")  # labels that the others need to the end


class Worker(Protocol):
    """A running node."""

    name: str

    def ended(self) -> str:
        """How it ended in a few words, "" while it runs, "done" if all was well."""
        ...

    def ask(self) -> None:
        """Asks it to stop."""
        ...

    def kill(self) -> None:
        """Ends it."""
        ...

    def traceback(self) -> str:
        """What it said when it failed."""
        ...


class Ending(NamedTuple):
    """How a program ended.

    Attributes:
      failed: the node that failed and how, "" if none did.
      traceback: of the failed node.
      complete: whether the learner ended by itself, and so has saved its snapshot.
    """

    failed: str
    traceback: str
    complete: bool


class ProcessWorker:
    """A node in a process of its own."""

    def __init__(self, name: str, process: "subprocess.Popen[bytes]", log: Path):
        self.name, self._process, self._log = name, process, log
        self.pid = process.pid

    def ended(self) -> str:
        """See `Worker`."""
        code = self._process.poll()
        if code is None:
            return ""
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"failed with exit code {code}" if code else "done"

    def ask(self) -> None:
        """See `Worker`."""
        self._process.terminate()

    def kill(self) -> None:
        """See `Worker`."""
        self._process.kill()

    def traceback(self) -> str:
        """See `Worker`."""
        text = self._log.read_text(errors="replace") if self._log.is_file() else ""
        start = text.rfind("Traceback (most recent call last)")
        return text[start:] if start >= 0 else "".join(text.splitlines(True)[-10:])


class ThreadWorker:
    """A node in a thread of this process."""

    def __init__(self, name: str, worker: Any, stop: threading.Event):
        self.name, self._worker, self._stop = name, worker, stop

    def ended(self) -> str:
        """See `Worker`."""
        if self._worker.thread.is_alive():
            return ""
        error = self._worker.future.exception()
        return f"failed with {type(error).__name__}" if error else "done"

    def ask(self) -> None:
        """See `Worker`."""
        self._stop.set()

    def kill(self) -> None:
        """Threads cannot be ended: the process is."""
        sys.stderr.write(f"retrax: the thread of {self.name} does not end; ending the process.\n")
        sys.stderr.flush()
        os._exit(1)

    def traceback(self) -> str:
        """See `Worker`."""
        error = self._worker.future.exception()
        return "".join(traceback.format_exception(error))


def start_processes(
    program: lp.Program, environments: Mapping[str, Mapping[str, str]], logs: Path
) -> list[ProcessWorker]:
    """Starts every node as a process whose output goes to `logs/LABEL/NUMBER`.

    Args:
      program: its nodes were made for this process as the launcher.
      environments: variables for the processes of each label.
      logs: a directory.
    """
    launch_local_output_to_files._LOGGING_DIR = str(logs)  # else read once, when it is imported
    with _temporary_files(logs / "jobs"):
        manager = _launch(
            program,
            "local_mp",
            terminal="output_to_files",
            local_resources={label: PythonProcess(env=env) for label, env in environments.items()},
        )
    workers = _take_over(manager)
    return [ProcessWorker(name, process, logs / name) for name, process in workers.items()]


def start_threads(program: lp.Program, threads: Threads) -> list[ThreadWorker]:
    """Starts every node as a thread of this process."""
    workers = _take_over(_launch(program, "local_mt"))
    return [
        ThreadWorker(name, worker, threads.stop_event(name.partition("/")[0]))
        for name, worker in workers.items()
    ]


@contextlib.contextmanager
def signals() -> Iterator[threading.Event]:
    """Turns the first Ctrl-C (or SIGTERM, SIGHUP) into an event; a second one interrupts."""
    asked = threading.Event()

    def ask(number: int, frame: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def supervise(
    workers: Sequence[Worker],
    *,
    finished: Callable[[], bool],
    asked: threading.Event,
    save_seconds: float,
) -> Ending:
    """Waits for the end, and brings it about: all nodes have ended when this returns.

    Args:
      workers: the nodes.
      finished: whether the run has reached its last step; called often.
      asked: whether a person wants to stop.
      save_seconds: how long the learner may take for its snapshot.
    """
    try:
        failed = _wait(workers, finished, asked)
        tail = failed.traceback() if failed else ""
        how = f"{failed.name} {_how(failed)}" if failed else ""
        first = [worker for worker in workers if worker.name.partition("/")[0] not in _LAST]
        learners = [worker for worker in first if worker.name.startswith("learner")]
        others = [worker for worker in first if worker not in learners]
        for worker in first:
            worker.ask()
        _join(others, _STOP_SECONDS)
        _join(learners, save_seconds)
        complete = all(worker.ended() == "done" for worker in learners)
        # A process that is told to end while it still imports has nothing to save, and just ends.
        if not failed and any(worker.ended() not in ("done", _ENDED_EARLY) for worker in learners):
            how = f"{learners[0].name} {_how(learners[0])}"
            tail = learners[0].traceback()
    finally:
        for worker in workers:
            worker.ask()
        _join(workers, _STOP_SECONDS)
    return Ending(how, tail, complete)


def _wait(
    workers: Sequence[Worker], finished: Callable[[], bool], asked: threading.Event
) -> Worker | None:
    """The node that failed; None if the run is finished or a person asked to stop."""
    while not asked.wait(_POLL_SECONDS) and not finished():
        ended = [worker for worker in workers if worker.ended()]
        if ended:
            if asked.wait(_POLL_SECONDS):  # the signal went to all of the terminal's processes
                return None
            return ended[0]
    return None


def _how(worker: Worker) -> str:
    how = worker.ended()
    return "ended too early" if how == "done" else how


def _join(workers: Sequence[Worker], seconds: float) -> None:
    """Waits for nodes to end, and kills those that do not."""
    deadline = time.monotonic() + seconds
    while any(not worker.ended() for worker in workers) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS / 2)
    for worker in workers:
        if not worker.ended():
            worker.kill()


@contextlib.contextmanager
def _temporary_files(folder: Path) -> Iterator[None]:
    """Keeps Launchpad's pickled nodes here: a launcher that is killed leaves them behind."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before


def _launch(program: lp.Program, launch_type: str, **options: Any) -> Any:
    from absl import flags

    if not flags.FLAGS.is_parsed():
        flags.FLAGS(["retrax"])  # Launchpad would parse our command line
    # Our own handlers stay: Launchpad's kill everything, this process too, after ten seconds.
    kept = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)}
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints where each log goes
            return lp.launch(program, launch_type, **options)
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def _take_over(manager: Any) -> dict[str, Any]:
    """Takes the workers out of Launchpad's manager, which would wait for them at exit."""
    workers = {}
    for title, group in manager._active_workers.items():
        for number, worker in enumerate(group):
            name = title if "/" in title else f"{title}/{number}"
            workers[name] = worker
    manager._active_workers.clear()
    return workers
