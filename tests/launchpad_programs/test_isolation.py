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


@pytest.fixture
def alone():
    """A process that isolates itself, and the port on which it then listens."""
    command = [sys.executable, "-c", ALONE, pathlib.Path(isolation.__file__).parent]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        refused, port, outside = json.loads(process.stdout.readline())
        if refused:
            process.communicate("\n")
            pytest.skip(f"this kernel allows no namespace: {refused}")
        yield process, port, outside
        process.communicate("\n")


def test_an_isolated_process_talks_to_itself_alone(alone):
    process, port, outside = alone
    assert outside == "Network is unreachable"
    assert port in listening_ports(process.pid)
    assert port not in listening_ports()
    with socket.create_server(("localhost", 0)) as server:
        assert server.getsockname()[1] in listening_ports()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("localhost", port), timeout=5)


def test_asking_changes_nothing(alone):
    """The answer is that of a process which is isolated, and this one is not."""
    before = pathlib.Path("/proc/self/ns/net").readlink()
    assert isolation.probe() == ""
    assert pathlib.Path("/proc/self/ns/net").readlink() == before
    isolation.check_allowed("")
