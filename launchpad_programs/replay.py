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


class KeptReplayNode(ReplayNode, Node):
    """Keeps its state for every snapshot of the learner, in `replay/` of the run directory.

    A restarted node restores its newest state, a node of a resumed run that of the snapshot.
    """

    def __init__(self, config: ProgramConfig, local: LocalReplay, peers: Peers):
        ReplayNode.__init__(self, local, max_lead=config.max_lead, restarts=config.restarts)
        Node.__init__(self, peers)
        self._snapshots = _states(config.directory)
        self._snapshots.directory.parent.mkdir(exist_ok=True)
        if not config.restarts:  # states of later steps, or of an earlier run
            self._snapshots.remove_newer(-1 if config.resumed_at is None else config.resumed_at)
        if (steps := self._snapshots.steps()) and (
            config.restarts or steps[-1] == config.resumed_at
        ):
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
    run = config.run
    local = LocalReplay(
        config.spec,
        config.make_agent(config.spec).sequence,
        run.replay,
        num_envs=run.num_envs,
        seed=run.seed,
    )
    return KeptReplayNode(config, local, peers)


def is_kept(directory: Path, steps: int) -> bool:
    """Whether a replay's node kept its state for the snapshot at `steps`."""
    return _states(directory).path(steps).is_file()


def check_kept(directory: Path, steps: int) -> None:
    """Compares the state for the snapshot at `steps`, if there is one, with its checksum."""
    if is_kept(directory, steps):
        check_sealed(_states(directory).path(steps))


def _states(directory: Path) -> Snapshots:
    return Snapshots(directory / "replay")
