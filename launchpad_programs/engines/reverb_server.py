"""The replay's node: a Reverb server that ends as the other nodes do."""

from typing import Any

import launchpad as lp
from launchpad.address import get_port_from_address

from ...replay.reverb import Checkpoints, check_tables, make_tables
from ...replay.reverb.library import reverb
from ..config import ProgramConfig
from ..kinds import NodeKind
from .courier import Execution, bind_port

_ANSWER_SECONDS = 60  # until the server describes its tables; it may be reading a checkpoint


class ReplayServer(lp.ReverbNode):
    """A Reverb server."""

    def __init__(
        self, execution: Execution, config: ProgramConfig, kind: NodeKind, *, port: int | None
    ):
        """Takes execution and config of the program, its kind, and a port (a free one if None)."""
        super().__init__(self._make_tables, self._make_checkpointer)
        self._execution, self._config, self._kind, self._port = execution, config, kind, port

    def bind_addresses(self, **options: Any) -> None:
        """Chooses the port; called by Launchpad."""
        super().bind_addresses(**options)
        bind_port(self.reverb_address, self._port)

    def run(self) -> None:
        """Serves until the program ends."""
        with self._execution.node_context(self._kind):
            stop = self._execution.stop_event()
            tables = self._make_tables()
            wanted = {table.info.name: table.info for table in tables}
            port = get_port_from_address(self.reverb_address.resolve())
            # Kept: without a reference to the server its port closes.
            self._server = reverb.Server(tables, port=port, checkpointer=self._make_checkpointer())
            check_tables(wanted, self._server.localhost_client().server_info(_ANSWER_SECONDS))
            while not stop.wait(1.0):
                pass

    def _make_tables(self) -> list[Any]:
        config = self._config
        sequence = config.make_agent(config.spec).sequence
        return make_tables(
            config.spec, sequence, config.run.replay, num_environments=config.run.num_envs
        )

    def _make_checkpointer(self) -> Any:
        """A server without a checkpointer leaves a folder in /tmp behind."""
        live = Checkpoints(self._config.directory).live
        return reverb.checkpointers.DefaultCheckpointer(str(live))
