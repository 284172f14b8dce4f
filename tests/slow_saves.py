"""`average_agent`, in whose programs a snapshot takes seconds to write: `slow_saves:ENTRY`."""

import time

from average_agent import ENTRY  # noqa: F401 - the agent

from retrax.training.snapshots import Snapshots

_SECONDS = 3.0  # longer than a caller waits for an answer before it looks whether it must stop
_save = Snapshots.save


def _slowly(self, *arguments):
    time.sleep(_SECONDS)
    _save(self, *arguments)


Snapshots.save = _slowly
