"""Parameters between a learner and its actors, without Courier."""

import threading
import time
import types

import jax
import numpy as np
import pytest
from waiting import wait_for

from retrax.replay.interface import Stopped, WaitTimeout
from retrax.training.learner import ParameterClient, ParameterServer, packing_of

PARAMS = {"w": np.arange(3, dtype=np.float32)}


def packing_like(params):
    """That of an agent with these acting parameters."""
    agent = types.SimpleNamespace(init=lambda key: params, acting_params=lambda state: state)
    return packing_of(agent)


PACKING = packing_like(PARAMS)


def test_a_version_is_packed_once_and_sent_to_those_who_lack_it():
    server = ParameterServer(PACKING, max_wait=0.0)
    assert server.get(-1) == (-1, None)
    server.publish(3, jax.device_put(PARAMS), 2.0)
    version, blob = server.get(-1)
    assert version == server.version == 3
    for older in (0, 7):  # or newer than that of a learner that went back to a snapshot
        assert server.get(older) == (3, blob)
    assert server.get(3) == (3, None)
    found = PACKING.unpack(blob)
    np.testing.assert_array_equal(found["params"]["w"], PARAMS["w"])
    assert found["new_priority"] == 2.0


def test_publishing_can_be_spared_while_nobody_asks():
    server = ParameterServer(PACKING, max_wait=0.0)
    assert server.wanted
    server.publish(0, PARAMS)
    assert not server.wanted
    server.get(0)
    assert server.wanted


def test_a_call_waits_a_moment_for_a_newer_version():
    server = ParameterServer(PACKING, max_wait=10.0)
    server.publish(0, PARAMS)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(server.get(0)), daemon=True)
    thread.start()
    wait_for(lambda: server.wanted)
    server.publish(1, PARAMS)
    thread.join(5)
    assert answers[0][0] == 1


@pytest.mark.parametrize("threaded", [True, False])
def test_an_actor_fetches_every_few_steps_and_knows_how_old_its_parameters_were(threaded):
    server = ParameterServer(PACKING, max_wait=0.0)
    client = ParameterClient(server.get, PACKING, update_period=3, threaded=threaded)
    assert client.params is None
    server.publish(5, PARAMS, 4.0)
    client.wait()
    assert (client.version, client.staleness, client.new_priority) == (5, 0, 4.0)
    server.publish(9, {"w": PARAMS["w"] + 1})
    for _ in range(2):
        client.step()
    assert client.version == 5
    client.step()
    wait_for(lambda: client.step() or client.version == 9)
    assert client.staleness == 4
    np.testing.assert_array_equal(client.params["w"], PARAMS["w"] + 1)
    client.close()


def test_an_actor_goes_on_with_old_parameters_while_the_learner_is_away():
    server, away = ParameterServer(PACKING, max_wait=0.0), threading.Event()
    before = {*threading.enumerate()}

    def get(version):
        if away.is_set():
            raise RuntimeError("the line is dead")
        return server.get(version)

    server.publish(1, PARAMS)
    client = ParameterClient(get, PACKING, update_period=1)
    client.wait()
    away.set()
    wait_for(lambda: client.step() or client.failures >= 3)
    assert client.version == 1
    assert client.params is not None
    server.publish(2, PARAMS)
    away.clear()
    wait_for(lambda: client.step() or client.version == 2)
    assert client.failures == 0
    client.close()
    wait_for(lambda: not {*threading.enumerate()} - before)


def test_a_call_that_hangs_does_not_hold_the_actor():
    release = threading.Event()
    client = ParameterClient(
        lambda version: release.wait(10) and (0, None), PACKING, update_period=1
    )
    started = time.monotonic()
    for _ in range(100):
        client.step()
    client.close()
    assert time.monotonic() - started < 2
    release.set()


@pytest.mark.parametrize("threaded", [True, False])
def test_waiting_for_the_first_parameters_ends(threaded):
    def fail(version):
        raise RuntimeError("nobody is there")

    server = ParameterServer(PACKING, max_wait=0.0)

    def wait(get, **options):
        options |= {"update_period": 1, "threaded": threaded}
        ParameterClient(get, PACKING, **options).wait(max_wait=0.3)

    calls = r"first parameters: \d+ calls failed, the last one with: nobody is there\."
    with pytest.raises(WaitTimeout, match=calls):
        wait(fail)
    with pytest.raises(WaitTimeout, match=r"with: the learner has not compiled yet\."):
        wait(server.get)
    with pytest.raises(Stopped, match="first parameters"):
        wait(server.get, stop=lambda: True)


@pytest.mark.parametrize(
    "other",
    [{"w": np.zeros(4, np.float32)}, {"w": np.zeros(3, np.int32)}, {"v": PARAMS["w"]}],
)
def test_parameters_of_another_layout_are_refused(other):
    blob = packing_like(other).pack({"new_priority": np.float64(1.0), "params": other})
    with pytest.raises(ValueError, match="both sides need the same agent and config"):
        PACKING.unpack(blob)
    whole = PACKING.pack({"new_priority": np.float64(1.0), "params": PARAMS})
    with pytest.raises(ValueError, match="both sides need the same agent and config"):
        PACKING.unpack(whole[:-1])
