"""The parameter server's node: a learner's node whose updates are the gradients of workers."""

import time
from typing import Any

from ..replay.interface import ReplayStatus
from ..runtime.metrics import MetricsAccumulator, episode_columns
from ..runtime.parameters import ParameterServer, packing_of
from ..runtime.snapshots import Snapshot
from ..runtime.stop import StopEvent
from ..runtime.workers.assembly import WorkerParts
from ..runtime.workers.server import Call, GradientServer, Receipt
from .columns import program_columns
from .config import ProgramConfig
from .counter import CounterClient
from .learner import LearnerNode


class AppliedGradients:
    """A gradient server with the interface of a `runtime.Learner`, and of a replay's status.

    Attributes:
      server: the gradient server.
      metrics: none; the workers report them.
    """

    def __init__(self, server: GradientServer, parameters: ParameterServer):
        """Takes the server, and where acting parameters are published for evaluators."""
        self.server, self._parameters = server, parameters
        self.metrics = MetricsAccumulator()
        self._started, self._seen = time.monotonic(), -1

    @property
    def state(self) -> Any:
        """The learner state."""
        return self.server.state

    @property
    def updates(self) -> int:
        """Gradients applied."""
        return self.server.version

    @property
    def idle_seconds(self) -> float:
        """Time since the start in which no gradient was applied."""
        return time.monotonic() - self._started - self.server.busy_seconds

    def compile(self) -> None:
        """Compiles `apply`."""
        self.server.compile()
        self._started = time.monotonic()

    def publish(self) -> None:
        """Publishes the newest acting parameters."""
        self.server.publish(self._parameters)

    def step(self, timeout: float) -> bool:
        """Waits for a gradient, and publishes parameters if they are wanted."""
        is_newer = self.server.wait(self._seen, timeout)
        self._seen = self.server.version
        if self._parameters.wanted and self._parameters.version < self._seen:
            self.publish()
        return is_newer

    def snapshot(self) -> Snapshot:
        """The learner state and `updates`."""
        return self.server.snapshot()

    def restore(self, snapshot: Snapshot) -> None:
        """Restores a snapshot."""
        self.server.restore(snapshot)

    def status(self) -> ReplayStatus:
        """Nothing: the workers have the replays."""
        return ReplayStatus(0, 0, None, None, 1.0)

    def close(self) -> None:
        """Nothing to close."""


class ParameterServerNode(LearnerNode):
    """Applies gradients, publishes, reports, and saves snapshots."""

    name = "parameter_server/0"

    def __init__(
        self, config: ProgramConfig, applied: AppliedGradients, *rest: Any, **options: Any
    ):
        """Takes the server; the other arguments are those of `LearnerNode` after its replay."""
        self._server = applied.server
        super().__init__(config, applied, applied, *rest, **options)

    def apply(self, worker: int, call: Call, version: int, gradients: bytes) -> Receipt:
        """`GradientServer.apply`, which the workers call."""
        return self._server.apply(worker, call, version, gradients)

    def fetch(self, known_version: int) -> tuple[int, bytes | None]:
        """`GradientServer.get`, which the workers call."""
        return self._server.get(known_version)


def make_parameter_server(
    config: ProgramConfig, *, counter: Any, stop: StopEvent
) -> ParameterServerNode:
    """The parameter server, restored if the run is resumed; called in its node with a client."""
    run, agent = config.run, config.make_agent(config.spec)
    parts = WorkerParts(run, agent, config.spec)
    parameters = ParameterServer(packing_of(agent))
    return ParameterServerNode(
        config,
        AppliedGradients(parts.server(), parameters),
        parameters,
        CounterClient(counter, stop, process=config.restarts),
        names=[*episode_columns(run.entry), *parts.metric_names, *program_columns(run)],
        stop=stop,
    )
