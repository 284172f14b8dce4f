"""The replay's node: a `ReplayNode` whose states lie beside the learner's snapshots."""

from collections.abc import Iterable
from pathlib import Path

from ..basics.files import check_sealed
from ..replay.local import LocalReplay
from ..replay.node import ReplayNode
from ..training.learner import Snapshot
from ..training.snapshots import Snapshots
from .config import ProgramConfig
from .node import Node, Peers

FOLDER = "replay"  # of the run directory


class KeptReplayNode(ReplayNode, Node):
    """Keeps its state for every snapshot; restores it, or the newest if it is restarted."""

    def __init__(self, config: ProgramConfig, local: LocalReplay, peers: Peers):
        lead, restarts = config.max_lead, config.restarts
        ReplayNode.__init__(self, local, max_lead=lead, restarts=restarts, clock=peers.clock)
        Node.__init__(self, peers)
        self._snapshots = Snapshots(config.directory / FOLDER)
        self._snapshots.directory.parent.mkdir(exist_ok=True)
        if not config.restarts:  # states of later steps, or of an earlier run
            self._snapshots.remove_newer(-1 if config.resumed_at is None else config.resumed_at)
        steps = self._snapshots.steps()
        if steps and (config.restarts or steps[-1] == config.resumed_at):
            self.restore(self._snapshots.read(self._snapshots.newest_whole(), replay=None).replay)

    def keep(self, steps: int) -> None:
        """Saves the state for the snapshot at `steps`, unless there are no rows."""
        with self.changed:
            if self.local.status().num_rows:
                self._snapshots.save(steps, Snapshot((), self.state(), {"steps": steps}))

    def prune(self, kept: Iterable[int]) -> None:
        """Removes the states of all snapshots but those at `kept`."""
        self._snapshots.remove_others(kept)


def make_replay(config: ProgramConfig, index: int, peers: Peers) -> KeptReplayNode:
    """The replay, which calls nobody."""
    run, sequence = config.run, config.make_agent(config.spec).sequence
    options = {"num_envs": run.num_envs, "seed": run.seed}
    return KeptReplayNode(config, LocalReplay(config.spec, sequence, run.replay, **options), peers)


def kept_file(directory: Path, steps: int) -> Path:
    """The file of a replay's node for the snapshot at `steps`."""
    return Snapshots(directory / FOLDER).path(steps)


def check_kept(directory: Path, steps: int) -> None:
    """Compares the state for the snapshot at `steps`, if there is one, with its checksum."""
    if (path := kept_file(directory, steps)).is_file():
        check_sealed(path)
