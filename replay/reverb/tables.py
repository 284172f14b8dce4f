"""The tables of a replay's Reverb server."""

import math
from typing import Any

from ...datatypes import EnvironmentSpec, ReplayConfig, SequenceSpec
from ..rings import rows_per_environment
from .layout import QUEUE, SEQUENCES, Layout
from .library import reverb

_BATCHES_AHEAD = 3  # drawn, but not yet learned from: two in the reader, one in the learner


def make_tables(
    environment_spec: EnvironmentSpec,
    sequence: SequenceSpec,
    config: ReplayConfig,
    *,
    num_environments: int,
) -> list[reverb.Table]:
    """Makes the table of a replay server.

    Where the learner keeps the rows (`is_queued`), it is a queue of chunks of them, so short that
    actors wait as soon as the learner takes no more. Otherwise it is a table of sequences whose
    rate limiter keeps the acting steps per update; it counts rows, and each episode has one row
    more than steps.

    Args:
      environment_spec: of one environment.
      sequence: length, period and extras of the sequences.
      config: capacity, selection, batch size, ratio.
      num_environments: environments of all actors together.

    Raises:
      ValueError: the capacity is too small for one sequence per environment.
    """
    layout = Layout(environment_spec, sequence, config)
    signature = layout.signature()
    if layout.queued:
        return [reverb.Table.queue(QUEUE, num_environments, signature=signature)]
    rows = rows_per_environment(sequence, config, num_environments)
    return [
        reverb.Table(
            name=SEQUENCES,
            sampler=_sampler(config),
            remover=reverb.selectors.Fifo(),
            max_size=num_environments * rows // sequence.period,
            rate_limiter=_rate_limiter(sequence, config, num_environments),
            signature=signature,
        )
    ]


def _sampler(config: ReplayConfig) -> Any:
    if config.selector == "uniform":
        return reverb.selectors.Uniform()
    return reverb.selectors.Prioritized(config.priority_exponent)


def _rate_limiter(sequence: SequenceSpec, config: ReplayConfig, num_environments: int) -> Any:
    """Limits samples per insert to what corresponds to the acting steps per update."""
    # The number of sequences in the table once the environments have made `min_rows` rows.
    rows = max(0, config.min_rows // num_environments - sequence.length)
    minimum = num_environments * (rows // sequence.period + 1)
    per_insert = config.batch_size * sequence.period / config.acting_steps_per_update
    # Tolerance: one insert of every environment, and the batches drawn ahead.
    room = max(1.0, per_insert) * num_environments + config.draw_size * _BATCHES_AHEAD
    return reverb.rate_limiters.SampleToInsertRatio(per_insert, minimum, float(math.ceil(room)))
