"""The table of a replay's Reverb server: its columns, the check that a server has it, and waits.

`T + 1` denotes the rows of a sequence, `B` a batch.
"""

import math
import time
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np

from ...datatypes import EnvironmentSpec, ReplayConfig, SequenceSpec
from ..interface import Stopped, WaitTimeout, never
from ..packing import SequencePacking
from ..windows import Windows
from .library import reverb, tensorflow

TABLE = "sequences"
_ANSWER_SECONDS = 1  # until a server describes its tables
_POLL_SECONDS = 0.5  # between attempts to connect
_BATCHES_AHEAD = 3  # drawn, but not yet learned from: two in the reader, one in the learner
_T = TypeVar("_T")


class Layout:
    """The columns of a table's items: the parts of a `SequencePacking`."""

    def __init__(
        self, environment_spec: EnvironmentSpec, sequence: SequenceSpec, config: ReplayConfig
    ):
        self.environment_spec, self.sequence, self.config = environment_spec, sequence, config
        self.packing = SequencePacking(environment_spec, sequence)

    def signature(self) -> tuple[tensorflow.TensorSpec, ...]:
        """Columns of an item, named with hashes of their layouts."""
        columns = zip(("rows", "first"), self.packing.shapes(1), self.packing.parts, strict=False)
        return tuple(
            tensorflow.TensorSpec(shape[1:], np.uint8, f"{name}_{part.layout}")
            for name, shape, part in columns
        )


class Server:
    """A table of the Reverb server at an address, "host:port", or of a client's server.

    Waits for it end when `stop()` is true (`Stopped`), or after `max_wait` seconds (`WaitTimeout`).
    """

    def __init__(
        self,
        address: str | reverb.Client,
        layout: Layout,
        *,
        stop: Callable[[], bool] = never,
        max_wait: float,
    ):
        self.client = reverb.Client(address) if isinstance(address, str) else address
        self.layout, self.max_wait, self._stop = layout, max_wait, stop

    def connect(self, make: Callable[[], _T]) -> _T:
        """Waits for the server and makes something of it.

        ValueError if it has no such table, or one with another layout.
        """

        def attempt() -> _T:
            served = self.client.server_info(timeout=_ANSWER_SECONDS)
            if TABLE not in served:
                raise ValueError(
                    f"The Reverb server at {self.client.server_address} has the tables "
                    f"{sorted(served)}, but the config asks for {TABLE}."
                )
            found, wanted = _columns(served[TABLE].signature), _columns(self.layout.signature())
            if found != wanted:
                raise ValueError(
                    f"Reverb's table {TABLE} has the columns {found}, but this run's rows make "
                    f"{wanted}: continue with the config, the environment and the version that "
                    "made the table."
                )
            return make()

        errors = (reverb.errors.ReverbError, RuntimeError)
        return self.retry(attempt, errors, "the replay's server", pause=_POLL_SECONDS)

    def retry(
        self,
        attempt: Callable[[], _T],
        errors: tuple[type[Exception], ...],
        what: str,
        *,
        pause: float = 0.0,
    ) -> _T:
        """Repeats an attempt, of about a second at most, until it raises none of these errors."""
        started = time.monotonic()
        while True:
            try:
                return attempt()
            except errors:
                if self._stop():
                    raise Stopped(f"Stopped while waiting for {what}.") from None
            waited = time.monotonic() - started
            if waited >= self.max_wait:
                raise self.timeout(what, waited)
            time.sleep(pause)

    def timeout(self, what: str, seconds: float) -> WaitTimeout:
        """An error that says what was waited for, and describes the table."""
        return WaitTimeout(f"Waited {seconds:.0f} s for {what}: {self.describe()}.")

    def describe(self) -> str:
        """One clause about the table: size, minimum, inserts and samples; never raises or hangs."""
        address = self.client.server_address
        try:
            info = self.client.server_info(timeout=_ANSWER_SECONDS).get(TABLE)
        except (reverb.errors.ReverbError, RuntimeError):
            return f"no Reverb server answers at {address}"
        if info is None:
            return f"the Reverb server at {address} has no table {TABLE}"
        limits = info.rate_limiter_info
        return (
            f"table {TABLE} at {address} holds {info.current_size} of at most {info.max_size} "
            f"items (minimum {limits.min_size_to_sample}), after "
            f"{limits.insert_stats.completed} inserts and {limits.sample_stats.completed} samples"
        )


def make_tables(layout: Layout, *, num_envs: int) -> list[reverb.Table]:
    """Makes the table of a replay server for the environments of all actors.

    Its rate limiter keeps the acting steps per update; it counts rows, and each episode has one row
    more than steps. ValueError if the capacity is too small for one sequence per environment.
    """
    sequence, config = layout.sequence, layout.config
    sampler = reverb.selectors.Uniform()
    if config.selector == "proportional":
        sampler = reverb.selectors.Prioritized(config.priority_exponent)
    rows = Windows.of(sequence, config, num_envs).num_rows
    return [
        reverb.Table(
            name=TABLE,
            sampler=sampler,
            remover=reverb.selectors.Fifo(),
            max_size=num_envs * rows // sequence.period,
            rate_limiter=_rate_limiter(sequence, config, num_envs),
            signature=layout.signature(),
        )
    ]


def _columns(signature: Any) -> str:
    return ", ".join(f"{spec.name} {spec.shape}" for spec in jax.tree.leaves(signature)) or "none"


def _rate_limiter(sequence: SequenceSpec, config: ReplayConfig, num_envs: int) -> Any:
    # The number of sequences in the table once the environments have made `min_rows` rows.
    rows = max(0, config.min_rows // num_envs - sequence.length)
    minimum = num_envs * (rows // sequence.period + 1)
    per_insert = config.batch_size * sequence.period / config.acting_steps_per_update
    # Tolerance: one insert of every environment, and the batches drawn ahead.
    room = max(1.0, per_insert) * num_envs + config.draw_size * _BATCHES_AHEAD
    return reverb.rate_limiters.SampleToInsertRatio(per_insert, minimum, float(math.ceil(room)))
