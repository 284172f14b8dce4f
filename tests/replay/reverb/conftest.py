"""Waits of replay over Reverb in a tenth of their time."""

import pytest

pytest.importorskip("reverb", reason="needs the distributed tier (Python 3.10, Linux)")

from retrax.replay.reverb import reader, waiting, writer


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch):
    monkeypatch.setattr(reader, "_POLL_SECONDS", 0.05)
    monkeypatch.setattr(writer, "_POLL_MS", 50)
    monkeypatch.setattr(writer, "_CLOSE_SECONDS", 0.3)
    monkeypatch.setattr(waiting, "_ANSWER_SECONDS", 1)
