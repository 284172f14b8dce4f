"""Options of runs whose workers compute gradients for a parameter server."""

import dataclasses
from typing import Annotated, Any

from ..._validation import Range, check_fields


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """Workers around a parameter server, as Reactor's (3.5) and ACER's actor-learners (4)."""

    num_workers: Annotated[int, Range(0)] = 0
    """Workers, each with environments, a replay and an update schedule of its own; 0: the run has
    another topology."""

    max_staleness: Annotated[int | None, Range(0)] = None
    """Versions by which a gradient's parameters may be older than the server's; a gradient of older
    ones is dropped. None drops none."""

    gradients_per_fetch: Annotated[int, Range(1)] = 1
    """Gradients that a worker sends between two fetches of parameters."""

    compress_gradients: bool = False
    """Whether gradients travel as bfloat16 instead of float32."""

    decoupled: bool = False
    """Whether a worker acts and learns in two threads, as Reactor's (3.5), instead of in turn.
    Acting waits while a call of updates is due behind the running one and the next."""

    def __post_init__(self) -> None:
        check_fields(self)

    def check_run(self, run: Any) -> None:
        """Refuses a run whose other fields do not fit.

        Args:
          run: the `RunConfig`.

        Raises:
          ValueError: one sentence about what is wrong.
        """
        if not self.num_workers:
            return
        if run.num_actors != self.num_workers:
            raise ValueError(
                f"RunConfig.num_actors must be num_workers {self.num_workers}, since every worker "
                f"acts, got {run.num_actors}."
            )
        if run.actor_update_period is not None:
            raise ValueError(
                "RunConfig.actor_update_period must be None with workers, which act with what they "
                f"learn with, got {run.actor_update_period}."
            )
        if run.learner_devices > 1:
            raise ValueError(
                "RunConfig.learner_devices must be 1 with workers, whose gradients are computed on "
                f"one device each, got {run.learner_devices}."
            )


NO_WORKERS = WorkerOptions()
