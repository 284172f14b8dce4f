"""The replay's node: a Reverb server that ends as the other nodes do."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import launchpad as lp
from launchpad.address import get_port_from_address

from ..replay.reverb_library import reverb
from .lifecycle import Lives, choose_port

_ANSWER_SECONDS = 60  # until a server tells about its tables; it may be reading a checkpoint
_FIXED = ("max_size", "max_times_sampled", "sampler_options", "remover_options", "signature")
_FIXED_LIMITS = ("samples_per_insert", "min_diff", "max_diff", "min_size_to_sample")


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
            tables = self._priority_tables_fn()
            wanted = {table.info.name: table.info for table in tables}
            # Kept: with the server's last reference its port closes.
            self._server = reverb.Server(tables, port=port, checkpointer=checkpointer)
            check_tables(wanted, self._server.localhost_client().server_info(_ANSWER_SECONDS))
            while not stop.wait(1.0):
                pass


def check_tables(wanted: Mapping[str, Any], served: Mapping[str, Any]) -> None:
    """Refuses a checkpoint of other tables: its options replace the config's without a word.

    Args:
      wanted: `TableInfo` of each table, before there was a server.
      served: as the server tells.

    Raises:
      ValueError: names the first table that differs, and in what.
    """
    if set(wanted) != set(served):
        raise ValueError(
            f"The Reverb checkpoint holds the tables {sorted(served)}, but the config asks for "
            f"{sorted(wanted)}."
        )
    for name, info in wanted.items():
        for field, before, now in _options(info, served[name]):
            if before != now:
                raise ValueError(
                    f"The Reverb checkpoint's table {name} has {field} {now}, but the config asks "
                    f"for {before}: resume with the config that the run began with."
                )


def _options(wanted: Any, served: Any) -> Iterator[tuple[str, Any, Any]]:
    for field in _FIXED:
        yield field, *(_told(getattr(info, field)) for info in (wanted, served))
    for field in _FIXED_LIMITS:
        yield field, *(getattr(info.rate_limiter_info, field) for info in (wanted, served))


def _told(option: Any) -> Any:
    return option if isinstance(option, int) else " ".join(str(option).split())
