"""Ports of this machine, for nodes that Ray starts again on the same one."""

import socket
import time

_SECONDS = 10.0  # until the port of a process that was killed is free again


def wait_until_free(port: int) -> None:
    """Waits until nothing listens on a port.

    Reverb would share the port of a dying process, silently.

    Raises:
      OSError: something still does after ten seconds.
    """
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("", port))
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def free_port() -> int:
    """A port on which nothing listens now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port
