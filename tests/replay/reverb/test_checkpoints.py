"""Reverb's checkpoints beside the snapshots, with a real server."""

import re

import numpy as np
import pytest
from run_files import flip

from retrax.replay.reverb import Checkpoints
from retrax.replay.reverb.library import reverb

pytestmark = pytest.mark.distributed


class Server:
    """A server on a run directory's live checkpoint."""

    def __init__(self, checkpoints):
        table = reverb.Table.queue("sequences", 100)
        checkpointer = reverb.checkpointers.DefaultCheckpointer(str(checkpoints.live))
        self._server = reverb.Server([table], checkpointer=checkpointer)
        self.client = self._server.localhost_client()

    @property
    def size(self):
        return self.client.server_info(5)["sequences"].current_size

    def insert(self, count):
        for _ in range(count):
            with self.client.trajectory_writer(1) as writer:
                writer.append([np.zeros(3)])
                writer.create_item("sequences", 1.0, [writer.history[0][:]])

    def stop(self):
        self._server.stop()


@pytest.fixture
def serve(tmp_path):
    servers = []

    def start():
        servers.append(Server(Checkpoints(tmp_path)))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def test_a_server_starts_with_the_checkpoint_of_the_snapshot(serve, tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.prepare(None)
    server = serve()
    for steps in (100, 200, 300):
        server.insert(2)
        server.client.checkpoint()
        checkpoints.keep(steps)
    checkpoints.prune([100, 200])
    server.insert(7)
    server.client.checkpoint()  # of a snapshot that was never completed
    checkpoints.check(200)
    checkpoints.prepare(200)
    assert serve().size == 4
    checkpoints.check(200)  # the server has left what is kept as it was
    with pytest.raises(ValueError, match="snapshot at 300 steps needs the Reverb checkpoint"):
        checkpoints.prepare(300)
    checkpoints.prepare(None)
    assert serve().size == 0


def test_a_flipped_bit_of_a_checkpoint_is_found(serve, tmp_path):
    checkpoints = Checkpoints(tmp_path)
    server = serve()
    server.insert(2)
    server.client.checkpoint()
    checkpoints.keep(100)
    files = [path for path in (tmp_path / "reverb" / "100").rglob("*") if path.is_file()]
    path = max(files, key=lambda path: path.stat().st_size)
    flip(path, 4 * path.stat().st_size)
    with pytest.raises(ValueError, match=re.escape(f"{path} is not what was written")):
        checkpoints.check(100)
