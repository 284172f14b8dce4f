"""Columns of metrics.csv that only programs have."""

from ..runtime.run_config import RunConfig
from .kinds import kinds_of

RESTARTS = "node_restarts"


def program_columns(run: RunConfig) -> list[str]:
    """Columns of metrics.csv that only programs have."""
    acting = next(kind.label for kind in kinds_of(run) if kind.acts)
    actors = [
        f"{acting}_{index}_episode_{name}"
        for index in range(run.num_actors)
        for name in ("return", *run.entry.episode_metrics)
    ]
    modes = [f"evaluator_return_{name}" for name in run.entry.evaluation_modes]
    return [*actors, *modes, *newest_values(run), RESTARTS]


def newest_values(run: RunConfig) -> dict[str, tuple[str, str]]:
    """Columns that are means over nodes of values of their newest reports.

    Returns:
      From column to the label of the nodes, and the value.
    """
    return {
        column: (kind.label, value)
        for kind in kinds_of(run)
        for column, value in kind.columns.items()
    }
