"""Ray on this machine, as long as the launcher lives: a process between the two.

It starts Ray, prints the address, and waits for the end of its standard input, whose other end the
launcher holds. Then it ends Ray and removes its folder of logs and sockets, even if the launcher
was killed: without it, some of Ray's processes would live on for a minute, and the folder for ever.
It is in a session of its own, so a terminal's signals do not reach Ray; and Ray forks, which a
process that has used JAX must not.

    python -m retrax.launchpad_programs.ray_head FOLDER CPUS
"""

import contextlib
import os
import shutil
import signal
import sys
import time

_OBJECT_BYTES = 80 * 2**20  # Ray's least: our data does not travel through its objects
_LOOPBACK = "127.0.0.2"  # Ray replaces 127.0.0.1 by the address of an interface, where it can
_SECONDS = 10.0  # for processes that do not die, and for those that a dying one still starts


def main(folder: str, cpus: int) -> None:
    """Serves until the launcher ends."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # it would report to its makers
    # Priorities as under Launchpad: by default all of Ray's processes run at 15, and actors, which
    # add their own to that, nearly at the learner's.
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 (Ray's own spelling)
    try:
        import ray

        context = ray.init(
            "local",
            num_cpus=cpus,
            include_dashboard=False,
            object_store_memory=_OBJECT_BYTES,
            log_to_driver=False,
            logging_level="ERROR",
            _node_ip_address=_LOOPBACK,
            _temp_dir=folder,
        )
        print(context.address_info["gcs_address"], flush=True)
        sys.stdin.read()
        ray.shutdown()
    finally:
        _remove(folder)


def users(folder: str) -> list[int]:
    """Ids of the other processes that have a folder's name in their command line."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as file:
                if folder.encode() in file.read():
                    found.append(int(name))
    return found


def _remove(folder: str) -> None:
    deadline = time.monotonic() + _SECONDS
    while (found := users(folder)) and time.monotonic() < deadline:
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.1)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
