"""A learner in a thread of its own."""

import threading
import time

import pytest
from waiting import wait_for

from retrax.training.workers import LearningThread


class Learner:
    """Its updates are due when a test says so, and end when a test says so."""

    def __init__(self):
        self.due, self.updates, self.error = 0, 0, None
        self.running, self.may_end = threading.Event(), threading.Event()
        self.may_end.set()

    def step(self):
        if self.error is not None:
            raise self.error
        if not self.due:
            return False
        self.running.set()
        assert self.may_end.wait(10)
        self.running.clear()
        self.due -= 1
        self.updates += 1
        return True


@pytest.fixture
def learner():
    return Learner()


@pytest.fixture
def learning(learner):
    thread = LearningThread(learner)
    yield thread
    learner.may_end.set()
    thread.close()


def begin_updates(learner, learning, number):
    """The first of so many runs, and does not end before `may_end`."""
    learner.may_end.clear()
    learner.due = number
    wait_for(lambda: learning.wake() or learner.running.is_set())


def test_it_makes_all_updates_that_are_due(learner, learning):
    for number in (3, 4):
        learner.due = number
        wait_for(lambda: learning.wake() or not learner.due)
    assert learner.updates == 7


def test_acting_goes_on_while_an_update_runs(learner, learning):
    begin_updates(learner, learning, 2)
    learning.wake()  # waits for nothing
    assert learner.updates == 0
    learner.may_end.set()
    wait_for(lambda: learner.updates == 2)


def test_no_update_runs_in_a_pause(learner, learning):
    begin_updates(learner, learning, 3)

    def end_once_paused():
        wait_for(lambda: learning._is_paused)
        learner.may_end.set()

    ending = threading.Thread(target=end_once_paused)
    ending.start()
    with learning.paused():
        assert not learner.running.is_set()
        assert learner.updates == 1, "only the running one ends"
        learning.wake()
        time.sleep(0.05)
        assert learner.updates == 1
    ending.join()
    wait_for(lambda: learning.wake() or learner.updates == 3)


def test_its_errors_are_raised_where_steps_are_taken(learner, learning):
    learner.error = FloatingPointError("the learner diverged")
    with pytest.raises(FloatingPointError, match="diverged"):
        wait_for(learning.wake)
    with learning.paused():  # nothing to wait for
        pass
    with pytest.raises(FloatingPointError, match="diverged"):
        learning.wake()


def test_close_waits_for_the_running_update(learner):
    learning = LearningThread(learner)
    begin_updates(learner, learning, 5)
    threading.Timer(0.05, learner.may_end.set).start()
    learning.close()
    assert learner.updates == 1
    assert not any(thread.is_alive() for thread in learning._pool._threads)
