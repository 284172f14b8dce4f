"""Steps that are granted to actors before they take them."""

from collections.abc import Mapping
from typing import NamedTuple

_PORTIONS = 100  # at least so many grants in a run, so that no actor holds many steps
_PORTION, _PORTION_SECONDS = 50, 0.25  # a grant is for so many steps, or for so long


class Lease(NamedTuple):
    """Steps that an actor was granted, and has not reported yet.

    Attributes:
      restarts: of the actor before.
      number: of the call that was answered with the grant, -1 before the first.
      steps: the grant.
    """

    restarts: int = 0
    number: int = -1
    steps: int = 0


class Leases:
    """Grants the steps of a run, each once; what a dead process held is granted again."""

    def __init__(self, last_step: int, num_actors: int):
        """Nothing is granted yet.

        Args:
          last_step: of the run.
          num_actors: that share the steps.
        """
        self._last_step = last_step
        self._largest = max(last_step // (_PORTIONS * num_actors), 1)
        self._granted = 0
        self.held: dict[str, Lease] = {}

    def restore(self, steps: int, held: Mapping[str, Lease]) -> None:
        """Continues a run.

        Args:
          steps: taken and reported so far.
          held: what actors held then, by their names.
        """
        self.held = dict(held)
        self._granted = steps + sum(lease.steps for lease in held.values())

    def answered(self, name: str, restarts: int, number: int) -> int | None:
        """The grant of a call that was answered before, 0 of a dead process, None of a new one."""
        lease = self.held.get(name, Lease())
        if restarts < lease.restarts:
            return 0
        return lease.steps if (restarts, number) == lease[:2] else None

    def renew(
        self, name: str, restarts: int, number: int, taken: int, rate: float, *, is_open: bool
    ) -> int:
        """Grants steps to an actor.

        Args:
          name: of the actor.
          restarts: as in `Lease`; a newer process does not take the steps of the one before.
          number: of its call.
          taken: steps since its last call; an actor of several environments may take a few more
            than it was granted.
          rate: steps per second that it takes.
          is_open: whether steps may be granted now.
        """
        lease = self.held.get(name, Lease())
        if restarts > lease.restarts:
            self._granted -= lease.steps
            lease = Lease(restarts)
        self._granted += max(0, taken - lease.steps)
        left = max(0, self._last_step - self._granted) if is_open else 0
        grant = min(self._largest, max(_PORTION, int(rate * _PORTION_SECONDS)), left)
        self._granted += grant
        self.held[name] = Lease(restarts, number, grant)
        return grant
