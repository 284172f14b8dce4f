"""The table of a replay's Reverb server: its columns, and the check that a server has it.

`T + 1` denotes the rows of a sequence, `B` a batch.
"""

import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from ...datatypes import EnvironmentSpec, ReplayConfig, SequenceSpec
from ..packing import SequencePacking
from ..windows import Windows
from .library import reverb, tensorflow

TABLE = "sequences"
_ANSWER_SECONDS = 1  # until a server describes its tables
_BATCHES_AHEAD = 3  # drawn, but not yet learned from: two in the reader, one in the learner
_OPTIONS = ("max_size", "max_times_sampled", "sampler_options", "remover_options")
_LIMITS = ("samples_per_insert", "min_diff", "max_diff", "min_size_to_sample")


class Layout:
    """The columns of a table's items: the parts of a `SequencePacking`.

    Attributes:
      environment_spec: of one environment.
      sequence: how sequences are cut.
      config: of the replay.
      packing: of the rows.
    """

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

    def check_server(self, client: reverb.Client) -> None:
        """Refuses (ValueError) a server without the table or with another layout.

        Reverb raises DeadlineExceededError if no server answers.
        """
        served = client.server_info(timeout=_ANSWER_SECONDS)
        if TABLE not in served:
            raise ValueError(
                f"The Reverb server at {client.server_address} has the tables {sorted(served)}, "
                f"but the config asks for {TABLE}."
            )
        _check_signature(TABLE, served[TABLE].signature, self.signature())


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


def check_tables(wanted: Mapping[str, Any], served: Mapping[str, Any]) -> None:
    """Refuses (ValueError) a checkpoint of other tables, whose options would replace the config's.

    Both are `TableInfo`s by table: before it was given to a server, and as the server reports it.
    """
    if set(wanted) != set(served):
        raise ValueError(
            f"The Reverb checkpoint holds the tables {sorted(served)}, but the config asks for "
            f"{sorted(wanted)}."
        )
    for name, info in wanted.items():
        _check_signature(name, served[name].signature, info.signature)
        found = _options(served[name])
        for option, value in _options(info).items():
            if found[option] != value:
                raise ValueError(
                    f"The Reverb checkpoint's table {name} has {option} {found[option]}, but the "
                    f"config asks for {value}: resume with the config of the original run."
                )


def _options(info: Any) -> dict[str, str]:
    """Options of a table, in one line each."""
    values = {name: getattr(info, name) for name in _OPTIONS}
    values |= {name: getattr(info.rate_limiter_info, name) for name in _LIMITS}
    return {name: " ".join(str(value).split()) for name, value in values.items()}


def _check_signature(table: str, served: Any, wanted: Any) -> None:
    """Refuses a table with another signature than that of this run; the error names both."""

    def columns(signature: Any) -> str:
        specs = jax.tree.leaves(signature)
        return ", ".join(f"{spec.name} {spec.shape}" for spec in specs) or "none"

    found, expected = columns(served), columns(wanted)
    if found != expected:
        raise ValueError(
            f"Reverb's table {table} has the columns {found}, but this run's rows make {expected}: "
            "continue with the config, the environment and the version that made the table."
        )


def _rate_limiter(sequence: SequenceSpec, config: ReplayConfig, num_envs: int) -> Any:
    """Limits samples per insert to what corresponds to the acting steps per update."""
    # The number of sequences in the table once the environments have made `min_rows` rows.
    rows = max(0, config.min_rows // num_envs - sequence.length)
    minimum = num_envs * (rows // sequence.period + 1)
    per_insert = config.batch_size * sequence.period / config.acting_steps_per_update
    # Tolerance: one insert of every environment, and the batches drawn ahead.
    room = max(1.0, per_insert) * num_envs + config.draw_size * _BATCHES_AHEAD
    return reverb.rate_limiters.SampleToInsertRatio(per_insert, minimum, float(math.ceil(room)))
