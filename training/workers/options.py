"""Options of runs whose workers compute gradients for a parameter server."""

import dataclasses
from typing import Annotated, Any

from ...basics.validation import Range, check_fields


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """Workers around a parameter server, as Reactor's (3.5) and ACER's actor-learners (4)."""

    num_workers: Annotated[int, Range(0)] = 0
    """Workers, which act, store and compute gradients, around a server that applies them, as
    Reactor's (3.5) and ACER's (4); each has environments, a replay and an update schedule of its
    own. 0: actors, a replay and one learner."""

    max_staleness: Annotated[int | None, Range(0)] = None
    """Gradients of parameters that are more versions older than the server's are dropped; by
    default none is."""

    gradients_per_fetch: Annotated[int, Range(1)] = 1
    """Gradients that a worker sends between two fetches of parameters."""

    decoupled: bool = False
    """Each worker acts and learns in two threads, as Reactor's (3.5), instead of in turn. Acting
    waits while a call of updates is due behind the running one and the next."""

    def __post_init__(self) -> None:
        check_fields(self)
        for field in dataclasses.fields(self):
            if not self.num_workers and getattr(self, field.name) != field.default:
                raise ValueError(
                    f"WorkerOptions.{field.name} is of workers: give num_workers, got 0."
                )

    def check_run(self, run: Any) -> None:
        """Refuses a `RunConfig` whose other fields do not fit.

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
