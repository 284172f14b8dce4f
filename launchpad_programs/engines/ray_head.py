"""Ray on this machine, as long as the launcher lives: a process between the two.

It starts Ray, and waits for the end of its standard input, whose other end the launcher holds, or
of one of Ray's processes. Then it ends Ray and removes its folder, even if the launcher was killed.
It is in a session of its own, where a terminal's signals do not reach Ray; and Ray forks, which a
process that has used JAX must not. The open pipe REPORT gets the address, or why there is none, in
a sentence with spaces: whatever Python imports may print to standard output.

    python -m retrax.launchpad_programs.engines.ray_head FOLDER CPUS OBJECT_BYTES REPORT
"""

import contextlib
import functools
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil

_SECONDS = 10.0  # for processes that do not die, and for those that a dying one still starts
_START_SECONDS = 120.0  # until Ray's processes know each other; Ray itself waits for 30
_TRIES = 2
_WATCH_SECONDS = 0.1


def main(folder: str, cpus: int, object_bytes: int, report: int) -> None:
    """Serves until the launcher or Ray ends."""
    threading.Thread(target=_end_with_launcher, args=(folder,), daemon=True).start()
    with os.fdopen(report, "w") as pipe:
        pipe.write(_start(folder, cpus, object_bytes))
    import ray

    # Of what dies, the launcher says one sentence.
    ray._private.worker.print_to_stdstream = lambda *lines, **options: None
    node = ray._private.worker._global_node
    while node is not None and not node.dead_processes():
        time.sleep(_WATCH_SECONDS)
    _end(folder)


def users(folder: str) -> set[psutil.Process]:
    """The processes that this one has started, and others with the folder in their command line."""
    found = set(psutil.Process().children(recursive=True))
    for process in psutil.process_iter(["cmdline"]):
        if process.pid != os.getpid() and folder in " ".join(process.info["cmdline"] or ()):
            found.add(process)
    return found


def _start(folder: str, cpus: int, object_bytes: int) -> str:
    """Starts Ray; returns its address, or why it does not start."""
    import ray

    services = ray._private.services
    services.get_node = functools.partial(_patiently, services.get_node)
    reason = ""
    for _ in range(_TRIES):
        try:
            context = ray.init(
                "local",
                num_cpus=cpus,
                include_dashboard=False,
                object_store_memory=object_bytes,
                log_to_driver=False,
                logging_level="ERROR",
                _node_ip_address="127.0.0.1",
                _temp_dir=folder,
            )
            return str(context.address_info["gcs_address"])
        except Exception as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
            ray.shutdown()
            _kill(folder)
    return reason


def _patiently(get_node: Callable[..., Any], *arguments: Any) -> Any:
    """`get_node(*arguments)` when Ray's processes know each other, unless one of them dies."""
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            return get_node(*arguments)
        except RuntimeError:
            states = [process.status() for process in psutil.Process().children()]
            if psutil.STATUS_ZOMBIE in states or time.monotonic() > deadline:
                raise
        time.sleep(_WATCH_SECONDS)


def _end_with_launcher(folder: str) -> None:
    sys.stdin.read()
    _end(folder)


def _kill(folder: str) -> None:
    """Ends Ray's processes, which takes seconds where Ray does it."""
    deadline = time.monotonic() + _SECONDS
    while (found := users(folder)) and time.monotonic() < deadline:
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(found, timeout=1.0)


def _end(folder: str) -> None:
    """Ends Ray, its folder and this process."""
    _kill(folder)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)  # Ray would wait for its processes


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
