"""Waits of tests, which end."""

import time


def wait_for(condition, seconds=60.0):
    """Waits until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
