"""Running nodes, as their launcher sees them: processes, or threads of this process."""

import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import launchpad as lp
from absl import flags
from launchpad.launch.run_locally import launch_local_output_to_files
from launchpad.nodes.python.local_multi_processing import PythonProcess

from .process import Threads

_LOG_LINES = 10  # shown of a node that left no traceback


class ProcessWorker:
    """A node in a process of its own."""

    def __init__(self, name: str, process: "subprocess.Popen[bytes]", log: Path):
        self.name, self._process, self._log = name, process, log

    def ended(self) -> str:
        """How it ended: "done" if without an error, "" while it runs."""
        code = self._process.poll()
        if code is None:
            return ""
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"failed with exit code {code}" if code else "done"

    def revive(self) -> bool:
        """Whether the node was started again; Launchpad's never are."""
        return False

    def stop(self) -> None:
        """Sends SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        """Sends SIGKILL."""
        self._process.kill()

    def traceback(self) -> str:
        """The newest traceback in the node's log, or the end of it."""
        text = self._log.read_text(errors="replace") if self._log.is_file() else ""
        start = text.rfind("Traceback (most recent call last)")
        return text[start:] if start >= 0 else "".join(text.splitlines(True)[-_LOG_LINES:])


class ThreadWorker:
    """A node in a thread of this process."""

    def __init__(self, name: str, worker: Any, stop: threading.Event):
        self.name, self._worker, self._stop = name, worker, stop

    def ended(self) -> str:
        """As `ProcessWorker.ended`."""
        if self._worker.thread.is_alive():
            return ""
        error = self._worker.future.exception()
        return f"failed with {type(error).__name__}" if error else "done"

    def revive(self) -> bool:
        """As `ProcessWorker.revive`."""
        return False

    def stop(self) -> None:
        """Sets its stop event."""
        self._stop.set()

    def kill(self) -> None:
        """Ends this process: a thread cannot be ended."""
        sys.stderr.write(f"retrax: the thread of {self.name} does not end; ending the process.\n")
        sys.stderr.flush()
        os._exit(1)

    def traceback(self) -> str:
        """Of the node's exception."""
        return "".join(traceback.format_exception(self._worker.future.exception()))


class Worker(Protocol):
    """A running node, as its launcher sees it."""

    name: str

    def ended(self) -> str:
        """How it ended: "done" if without an error, "" while it runs."""
        ...

    def revive(self) -> bool:
        """Starts a node again that has ended too early; whether it did."""
        ...

    def stop(self) -> None:
        """Requests its end."""
        ...

    def kill(self) -> None:
        """Ends it."""
        ...

    def traceback(self) -> str:
        """Of its error, or the end of its output."""
        ...


def start_processes(
    program: lp.Program, env: Mapping[str, Mapping[str, str]], logs: Path
) -> list[ProcessWorker]:
    """Starts every node as a process, with the variables `env[label]` and output `logs/LABEL/N`."""
    launch_local_output_to_files._LOGGING_DIR = str(logs)  # else read once, on import
    with _temporary_files(logs / "jobs"):
        manager = _launch(
            program,
            "local_mp",
            terminal="output_to_files",
            local_resources={
                label: PythonProcess(env=variables) for label, variables in env.items()
            },
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
def _temporary_files(folder: Path) -> Iterator[None]:
    """Keeps Launchpad's pickled nodes here: a launcher that is killed leaves them behind.

    Only their owner may read and write them: to unpickle them is to execute them.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before
        for path in folder.rglob("*"):
            path.chmod(0o700 if path.is_dir() else 0o600)


def _launch(program: lp.Program, launch_type: str, **options: Any) -> Any:
    if not flags.FLAGS.is_parsed():
        flags.FLAGS(["retrax"])  # Launchpad would parse our command line
    # Our own handlers stay: Launchpad's kill everything, this process too, after ten seconds.
    kept = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)}
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints the path of each log
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
