"""Signals become an event; a second one interrupts."""

import concurrent.futures
import os
import signal

import pytest

from retrax.training.process import stop_on_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_sets_the_event_and_the_second_interrupts(number):
    before = signal.getsignal(number)
    with stop_on_signals() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_other_threads_have_no_signals():
    def run():
        with stop_on_signals() as stop:
            return stop.is_set()

    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        assert not threads.submit(run).result()
