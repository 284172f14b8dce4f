"""The parameter server's node: a learner's node whose updates are the gradients of workers."""

from ..training.parameters import ParameterServer, packing_of
from ..training.stop import StopEvent
from ..training.workers import WorkerFactory
from .config import ProgramConfig
from .learner import LearnerNode
from .peers import Peers


def make_parameter_server(
    config: ProgramConfig, index: int, peers: Peers, *, stop: StopEvent
) -> LearnerNode:
    """The parameter server, restored if the run is resumed."""
    agent = config.make_agent(config.spec)
    factory = WorkerFactory(config.run, agent, config.spec)
    parameters = ParameterServer(packing_of(agent))
    server = factory.server(parameters)
    return LearnerNode(
        config,
        server,
        parameters,
        peers,
        label="parameter_server",
        metric_names=factory.metric_names,
        serves={
            "apply": server.apply,
            "fetch": server.get,
            "restored": lambda: server.restored,
        },
        stop=stop,
    )
