"""Servers that are missing, die or do not answer."""

import contextlib
import dataclasses
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from replay_rows import SPEC, sequence_spec, stream
from reverb_servers import (
    BIG,
    SECONDS,
    draw,
    free_address,
    make_writer,
    open_replay,
    serve,
    server,
    write_on,
)
from waiting import wait_for

from retrax.replay.interface import Stopped, WaitTimeout
from retrax.replay.reverb import Layout
from retrax.replay.reverb.library import reverb
from retrax.replay.reverb.replay import ServerCalls
from retrax.replay.reverb.tables import Server

pytestmark = pytest.mark.distributed

CONFIG = dataclasses.replace(BIG, selector="proportional", acting_steps_per_update=4)


def use(function, times):
    for _ in range(times):
        function()


def test_without_a_server_everything_ends_with_a_sentence():
    sequence, address = sequence_spec(), free_address()
    sentence = f"Waited . s for the replay's server: no Reverb server answers at {address}"
    started = time.monotonic()
    with open_replay(address, sequence, CONFIG, max_wait=0.5) as replay:
        with pytest.raises(WaitTimeout, match=sentence):
            make_writer(address, sequence, CONFIG, max_wait=0.5)
        with pytest.raises(Stopped, match="Stopped while waiting for the replay's server"):
            make_writer(address, sequence, CONFIG, stop=lambda: True)
        wait_for(lambda: not replay._reader._thread.is_alive())
        for _ in range(2):
            with pytest.raises(WaitTimeout, match=sentence):
                replay.sample(1.0)
    assert time.monotonic() - started < 10


SERVER = """
import dataclasses, sys, time
from replay_rows import SPEC, sequence_spec, stream
from reverb_servers import BIG, SPEC, Layout, make_tables, reverb
config = dataclasses.replace(BIG, acting_steps_per_update=4, selector="proportional")
tables = make_tables(Layout(SPEC, sequence_spec(), config), num_envs=1)
running = reverb.Server(tables, port=int(sys.argv[1]))
print("up", flush=True)
time.sleep(300)
"""


@contextlib.contextmanager
def server_process(address):
    """A server over gRPC: one in the same process is read without."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", SERVER, address.split(":")[1]],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout.readline() == b"up\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_nobody_waits_forever_for_a_server_that_died():
    sequence, address = sequence_spec(), free_address()
    with (
        server_process(address) as process,
        open_replay(address, sequence, CONFIG, max_wait=0.3) as replay,
    ):
        writer = make_writer(address, sequence, CONFIG, max_wait=0.3)
        write_on(writer, stream(16, 1))
        keys = draw(replay).keys
        process.send_signal(signal.SIGKILL)
        process.wait()
        started = time.monotonic()
        with pytest.raises(
            WaitTimeout,
            match="replay to accept the rows of environment 0: no Reverb server answers at",
        ):
            write_on(writer, stream(1000, 1))
        writer.close()
        for _ in range(10):
            if replay.sample(0.3) is None:
                break
        else:
            pytest.fail("a dead server drew batches")
        with pytest.raises(WaitTimeout, match="for priorities to be accepted"):
            use(lambda: replay.set_priorities(keys, np.ones(4)), 30)
        with pytest.raises(WaitTimeout, match=r"Reverb wrote no checkpoint: .* no Reverb server"):
            replay.state()
    assert time.monotonic() - started < 40


def test_a_description_names_a_missing_table():
    layout = Layout(SPEC, sequence_spec(), CONFIG)
    with serve([reverb.Table.queue("rows", 1)]) as address:
        text = Server(address, layout, max_wait=SECONDS).describe()
    assert text == f"the Reverb server at {address} has no table sequences"


@pytest.fixture
def calls():
    with server(sequence_spec(), CONFIG) as address:
        layout = Layout(SPEC, sequence_spec(), CONFIG)
        calls = ServerCalls(Server(address, layout, max_wait=0.5))
        yield calls
        calls.close()


def test_calls_are_made_in_order(calls):
    made = []
    for number in range(5):
        calls.submit(lambda number=number: made.append(number), "nothing")
    assert calls.result(lambda: list(made), "the list") == [0, 1, 2, 3, 4]


def test_a_call_that_fails_with_its_server_is_made_once_more(calls):
    made = []

    def call(error):
        made.append(error)
        if len(made) % 2:
            raise error

    calls.submit(lambda: call(RuntimeError("Connection reset by peer")), "nothing")
    assert calls.result(lambda: len(made), "the number") == 2
    error = ZeroDivisionError("on purpose")
    for later in (lambda: call(error), made.clear):
        with pytest.raises(ZeroDivisionError, match="on purpose"):
            calls.result(later, "nothing")
    assert len(made) == 3


def test_a_call_without_an_answer_times_out(calls):
    answer = threading.Event()
    with pytest.raises(WaitTimeout, match=r"Waited 0 s for an answer: table .* holds 0"):
        calls.result(answer.wait, "an answer")
    answer.set()
