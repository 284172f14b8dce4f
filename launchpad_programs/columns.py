"""Columns of metrics.csv that only programs have."""

from ..runtime.run_directory import RunConfig

_EVALUATED = {  # columns of metrics.csv: the nodes, and the value of their newest reports
    "evaluator_return": ("evaluator/", "return"),
    "evaluator_length": ("evaluator/", "length"),
}
_COLUMNS = {
    **_EVALUATED,
    "parameter_staleness": ("actor/", "staleness"),
    "learner_idle_share": ("learner/", "idle_share"),
    "replay_rows": ("learner/", "replay_rows"),
    "replay_sequences": ("learner/", "replay_sequences"),
}
_COLUMNS_OF_WORKERS = {
    **_EVALUATED,
    "server_idle_share": ("parameter_server/", "idle_share"),
    "worker_waiting_share": ("worker/", "waiting_share"),
    "replay_rows": ("worker/", "replay_rows"),
    "replay_sequences": ("worker/", "replay_sequences"),
}

RESTARTS = "node_restarts"


def program_columns(run: RunConfig) -> list[str]:
    """Columns of metrics.csv that only programs have."""
    label = "worker" if run.workers.num_workers else "actor"
    actors = [
        f"{label}_{index}_episode_{name}"
        for index in range(run.num_actors)
        for name in ("return", *run.entry.episode_metrics)
    ]
    modes = [f"evaluator_return_{name}" for name in run.entry.evaluation_modes]
    return [*actors, *modes, *newest_values(run), RESTARTS]


def newest_values(run: RunConfig) -> dict[str, tuple[str, str]]:
    """Columns that are means over nodes of values of their newest reports.

    Returns:
      From column to the beginning of the nodes' names, and the value.
    """
    return _COLUMNS_OF_WORKERS if run.workers.num_workers else _COLUMNS
