"""Ray on this machine, as long as the launcher lives: a process between the two.

It starts Ray, prints the address, and waits for the end of its standard input, whose other end the
launcher holds. Then it ends Ray and removes its folder of logs and sockets, even if the launcher
was killed: without it, some of Ray's processes would live on for a minute, and the folder for ever.
It is in a session of its own, so a terminal's signals do not reach Ray; and Ray forks, which a
process that has used JAX must not.

    python -m retrax.launchpad_programs.engines.ray_head FOLDER CPUS OBJECT_BYTES
"""

import contextlib
import os
import shutil
import sys
import time
import traceback

import psutil

_SECONDS = 10.0  # for processes that do not die, and for those that a dying one still starts


def main(folder: str, cpus: int, object_bytes: int) -> None:
    """Serves until the launcher ends."""
    try:
        import ray

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
        print(context.address_info["gcs_address"], flush=True)
        sys.stdin.read()
    finally:
        _remove(folder)


def users(folder: str) -> set[psutil.Process]:
    """The processes that this one has started, and others with the folder in their command line."""
    found = set(psutil.Process().children(recursive=True))
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and folder in " ".join(process.cmdline()):
                found.add(process)
    return found


def _remove(folder: str) -> None:
    """Ends Ray's processes, which takes seconds where Ray does it, and removes the folder."""
    deadline = time.monotonic() + _SECONDS
    while (found := users(folder)) and time.monotonic() < deadline:
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(found, timeout=1.0)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    except BaseException:
        traceback.print_exc()
    os._exit(0)  # Ray would wait for its processes
