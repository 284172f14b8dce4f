"""The parameter server's node: a learner's node whose updates are the gradients of workers."""

from typing import Any

from ..runtime.metrics import episode_columns
from ..runtime.parameters import ParameterServer, packing_of
from ..runtime.stop import StopEvent
from ..runtime.workers.assembly import WorkerParts
from ..runtime.workers.server import Call, GradientServer, Receipt
from .config import ProgramConfig
from .kinds import program_columns
from .learner import LearnerNode
from .peers import Peers


class ParameterServerNode(LearnerNode):
    """Applies gradients, publishes, reports, and saves snapshots."""

    name = "parameter_server/0"

    def __init__(self, config: ProgramConfig, server: GradientServer, *rest: Any, **options: Any):
        """Takes the server; the other arguments are those of `LearnerNode` after its replay."""
        self._server = server
        super().__init__(config, server, None, *rest, **options)

    def apply(self, worker: int, call: Call, version: int, gradients: bytes) -> Receipt:
        """`GradientServer.apply`, which the workers call."""
        return self._server.apply(worker, call, version, gradients)

    def fetch(self, known_version: int) -> tuple[int, bytes | None]:
        """`GradientServer.get`, which the workers call."""
        return self._server.get(known_version)

    def restored(self) -> int:
        """`GradientServer.restored`, which the workers call."""
        return self._server.restored


def make_parameter_server(
    config: ProgramConfig, index: int, peers: Peers, *, stop: StopEvent
) -> ParameterServerNode:
    """The parameter server, restored if the run is resumed."""
    run, agent = config.run, config.make_agent(config.spec)
    parts = WorkerParts(run, agent, config.spec)
    parameters = ParameterServer(packing_of(agent))
    return ParameterServerNode(
        config,
        parts.server(parameters),
        parameters,
        peers.peer("counter/0"),
        names=[*episode_columns(run.entry), *parts.metric_names, *program_columns(run)],
        stop=stop,
    )
