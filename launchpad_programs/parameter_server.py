"""The parameter server's node: a learner's node whose updates are the gradients of workers."""

from ..training.parameters import ParameterServer, packing_of
from ..training.stop import StopEvent
from ..training.workers.assembly import WorkerFactory
from ..training.workers.server import Call, Receipt
from .config import ProgramConfig
from .learner import LearnerNode
from .peers import Peers


class ParameterServerNode(LearnerNode):
    """Applies gradients, publishes, reports, and saves snapshots."""

    label = "parameter_server"

    def apply(self, worker: int, call: Call, version: int, gradients: bytes) -> Receipt:
        """`GradientServer.apply`, which the workers call."""
        receipt: Receipt = self._learner.apply(worker, call, version, gradients)
        return receipt

    def fetch(self, known_version: int) -> tuple[int, bytes | None]:
        """`GradientServer.get`, which the workers call."""
        found: tuple[int, bytes | None] = self._learner.get(known_version)
        return found

    def restored(self) -> int:
        """`GradientServer.restored`, which the workers call."""
        return int(self._learner.restored)


def make_parameter_server(
    config: ProgramConfig, index: int, peers: Peers, *, stop: StopEvent
) -> ParameterServerNode:
    """The parameter server, restored if the run is resumed."""
    agent = config.make_agent(config.spec)
    factory = WorkerFactory(config.run, agent, config.spec)
    parameters = ParameterServer(packing_of(agent))
    server = factory.server(parameters)
    return ParameterServerNode(
        config, server, parameters, peers, metric_names=factory.metric_names, stop=stop
    )
