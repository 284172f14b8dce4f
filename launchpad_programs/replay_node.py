"""The replay's node: a Reverb server that ends as the other nodes do."""

from collections.abc import Callable
from typing import Any

import launchpad as lp
from launchpad.address import get_port_from_address

from ..replay.reverb_library import reverb
from .lifecycle import Lives, choose_port


class ReplayNode(lp.ReverbNode):
    """A Reverb server."""

    def __init__(
        self,
        lives: Lives,
        make_tables: Callable[[], list[reverb.Table]],
        make_checkpointer: Callable[[], Any] | None = None,
        *,
        port: int | None = None,
    ):
        """Takes what the server is made from.

        Args:
          lives: of the launch.
          make_tables: called in the node.
          make_checkpointer: called in the node.
          port: to listen on; a free one if None.
        """
        super().__init__(make_tables, make_checkpointer)
        self._lives, self._port = lives, port

    def bind_addresses(self, **options: Any) -> None:
        """Called by Launchpad: chooses the port."""
        super().bind_addresses(**options)
        choose_port(self.reverb_address, self._port)

    def run(self) -> None:
        """Serves until told to stop."""
        with self._lives.life("replay"):
            stop = self._lives.stop_event("replay")
            checkpointer = self._checkpoint_ctor() if self._checkpoint_ctor else None
            port = get_port_from_address(self.reverb_address.resolve())
            # Kept: with the server's last reference its port closes.
            self._server = reverb.Server(
                self._priority_tables_fn(), port=port, checkpointer=checkpointer
            )
            while not stop.wait(1.0):
                pass
