"""Short waits of writers, and for the answers of servers that are gone.

The reader's passes keep their length: when an item arrives as one ends, Reverb seldom loses it.
"""

import pytest

pytest.importorskip("reverb", reason="needs the distributed tier (Python 3.10, Linux)")

from retrax.replay.reverb import tables, writer


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch):
    monkeypatch.setattr(writer, "_POLL_MS", 50)
    monkeypatch.setattr(writer, "_CLOSE_SECONDS", 0.3)
    monkeypatch.setattr(tables, "_POLL_SECONDS", 0.05)
