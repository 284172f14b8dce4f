"""What a run on a device does not have."""

from typing import Any


def check_device_run(run: Any) -> None:
    """Refuses a `RunConfig` that is on a device and has what only processes have.

    Raises:
      ValueError: names the field and its only value.
    """
    allowed = {"num_actors": 1, "learner_devices": 1, "actor_update_period": None}
    found = {name: getattr(run, name) for name in allowed}
    allowed["workers.num_workers"], found["workers.num_workers"] = 0, run.workers.num_workers
    for name, value in found.items():
        if run.on_device and value != allowed[name]:
            raise ValueError(
                f"RunConfig.{name} must be {allowed[name]} if on_device is True, got {value}."
            )
