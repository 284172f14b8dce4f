"""Who can connect. Only the standard library is needed, but Linux is."""

import json
import pathlib
import socket
import subprocess
import sys

import pytest
from listening import listening_ports

from retrax.launchpad_programs.engines import isolation

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")

ALONE = """
import json, socket, sys
sys.path.insert(0, sys.argv[1])
import isolation
refused = isolation.isolate()
server = socket.create_server(("", 0))
port = server.getsockname()[1]
socket.create_connection(("localhost", port), timeout=5).close()
try:
    socket.create_connection(("192.0.2.1", 9), timeout=1)
    outside = "reached"
except OSError as error:
    outside = error.strerror
print(json.dumps([refused, port, outside]), flush=True)
input()
"""


def test_an_isolated_process_talks_to_itself_alone():
    """To ask whether a process would be isolated changes nothing in this one."""
    command = [sys.executable, "-c", ALONE, pathlib.Path(isolation.__file__).parent]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    before = pathlib.Path("/proc/self/ns/net").readlink()
    with subprocess.Popen(command, **pipes) as process:
        refused, port, outside = json.loads(process.stdout.readline())
        if not refused:
            assert outside == "Network is unreachable"
            assert port in listening_ports(process.pid)
            assert port not in listening_ports()
            with pytest.raises(OSError, match="refused"):
                socket.create_connection(("localhost", port), timeout=5)
        process.communicate("\n")
    if refused:
        pytest.skip(f"this kernel allows no namespace: {refused}")
    assert isolation.probe() == ""
    assert pathlib.Path("/proc/self/ns/net").readlink() == before
