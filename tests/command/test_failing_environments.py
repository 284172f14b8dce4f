"""Commands with environments whose own code fails: one sentence, and no run that seems finished."""

import pytest

from retrax.training import process
from retrax.training.assembly import open_snapshots

MODULE = """
import os
import pathlib
import signal
import sys
import time
import gymnasium
from retrax.environments.pure import PureVector
from retrax.environments.pure_tasks import PureCatch
from stepping import Counting

class Constructor(Counting):
    def __init__(self):
        raise RuntimeError("no licence")

class Reset(Counting):
    def reset(self, *, seed=None, options=None):
        raise RuntimeError("no maze")

class Exit(Counting):
    place, steps = 30, 0

    def step(self, action):
        self.steps += 1
        if self.steps == self.place:
            self.fail()
        return super().step(action)

    def fail(self):
        sys.exit(0)

class Once(Exit):
    place = 27

    def fail(self):
        if not pathlib.Path("mended").exists():
            raise RuntimeError("no power")

class Hang(Once):
    def fail(self):
        for _ in range(2):  # Ctrl-C, twice
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.6)

class Interrupted(Once):
    def fail(self):
        raise KeyboardInterrupt

class Viewer(Counting):
    length = 5

    def close(self):
        raise RuntimeError("no display")

class Spaceless(gymnasium.Env):
    pass

class VectorReset(PureVector):
    def __init__(self, *, num_envs, seed):
        super().__init__(PureCatch(), num_envs=num_envs, seed=seed)

    def reset(self):
        raise AttributeError("no board")

class VectorExit(VectorReset):
    reset = PureVector.reset
    steps = 0

    def step(self, actions):
        self.steps += 1
        if self.steps == 30:
            sys.exit(0)
        return super().step(actions)

class VectorViewer(VectorReset):
    reset = PureVector.reset

    def close(self):
        sys.exit(3)
"""


PROCESSES = """
import functools
import os
import signal
import gymnasium
from stepping import Counting

class Worker(Counting):
    steps = 0

    def __init__(self, number, how):
        self.number, self.how = number, how

    def step(self, action):
        self.steps += 1
        if self.steps == 27 and self.number < 2:
            if self.how == "SIGINT" and self.number == 0:  # reaches both
                os.kill(os.getppid(), signal.SIGINT)
            if self.how in ("SIGINT", "KeyboardInterrupt"):
                raise KeyboardInterrupt
            if self.how != "exit" or self.number == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            if self.how == "exit":
                os._exit(3)
        return super().step(action)

def vector(num_envs, seed, how):
    makers = [functools.partial(Worker, number, how) for number in range(num_envs)]
    return gymnasium.vector.AsyncVectorEnv(makers, context="spawn")
"""


@pytest.fixture
def here(own_modules):
    """The current directory, with modules of environments that fail."""
    (own_modules / "failing_envs.py").write_text(MODULE)
    (own_modules / "failing_processes.py").write_text(PROCESSES)
    return own_modules


def train(retrax, tiny, name, module="failing_envs"):
    words = [f"{module}:{name}" if word == "catch" else word for word in tiny]
    return retrax(*words, "--run-directory", "run")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("Constructor", "failing_envs:Constructor cannot be made: RuntimeError: no licence."),
        ("Reset", "environment 0 failed in reset(), at step 0: RuntimeError: no maze."),
        ("Spaceless", "the spaces of environment 0 cannot be read: AttributeError: "),
        ("VectorReset", "the environments cannot be reset: AttributeError: no board."),
    ],
)
def test_before_anything_is_written(here, refused, tiny, name, sentence):
    assert train(refused, tiny, name).startswith(f"retrax: {sentence}")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("Exit", "environment 0 failed at step 30: it called sys.exit(0) (traceback in "),
        ("VectorExit", "steps: the environment or the agent called sys.exit(0) (traceback in "),
    ],
)
def test_sys_exit_in_a_step_is_a_failure(here, retrax, tiny, name, sentence):
    status, _, err = train(retrax, tiny, name)
    assert (status, sentence in err) == (1, True)
    assert "Traceback" not in err
    assert "Traceback" in (here / "run" / "log.txt").read_text()


def test_a_failure_in_an_environment_leaves_a_snapshot(here, retrax, tiny):
    status, _, err = train(retrax, tiny, "Once")
    assert status == 1
    assert "environment 0 failed at step 27: RuntimeError: no power (traceback in" in err
    assert err.endswith(f"; retrax train --resume {here / 'run'} continues at 104 steps.\n")
    newest = max(int(path.stem) for path in (here / "run" / "snapshots").iterdir())
    assert (here / "run" / "metrics.csv").read_text().splitlines()[-1].startswith("104,")
    assert newest == 104
    (here / "mended").write_text("")
    assert retrax("train", "--resume", "run")[0] == 0


@pytest.mark.timeout(60)
@pytest.mark.filterwarnings("ignore:.*(Worker-|last exception|Traceback)")
@pytest.mark.parametrize("how", ["exit", "SIGKILL", "SIGINT", "KeyboardInterrupt", ""])
def test_processes_of_environments_that_die_end_a_run(here, retrax, tiny, how):
    """A signal that reaches them and this process asks for a stop; their end is a failure."""
    name, module = f"vector,how={how}", "failing_processes"
    if not how:
        name, module, how = "Interrupted", "failing_envs", "KeyboardInterrupt"
    status, _, err = train(retrax, tiny, name, module)
    assert max(int(path.stem) for path in (here / "run" / "snapshots").iterdir()) == 104
    if how in ("exit", "SIGKILL"):
        assert status == 1
        assert "the vector failed in step(), at step 27: " in err
    else:
        assert status == 0, err
        assert "Stopped at 104 steps" in err


def test_a_step_that_does_not_end_is_left_at_the_second_interrupt(here, retrax, tiny, monkeypatch):
    monkeypatch.setattr(process, "_POLL_SECONDS", 0.05)
    monkeypatch.setattr(process, "_PATIENCE_SECONDS", 0.05)
    status, _, err = train(retrax, tiny, "Hang")
    assert status == 130
    assert err.count("waiting for the environments' step after 104 steps. A second Ctrl-C") == 1
    assert err.endswith("retrax: Interrupted.\n")
    snapshots, notes = open_snapshots(here / "run")
    assert (snapshots.newest_whole(), notes) == (80, [])


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("Viewer", "environment 0 could not be closed: RuntimeError: no display."),
        ("VectorViewer", "the environment could not be closed: it called sys.exit(3)."),
    ],
)
def test_a_run_is_not_lost_because_an_environment_cannot_be_closed(
    here, retrax, tiny, name, sentence
):
    status, _, err = train(retrax, [*tiny, "--evaluate-every", "100"], name)
    assert (status, "Traceback" in err) == (0, False)
    log = (here / "run" / "log.txt").read_text()
    evaluation, *_, finished = [log.index(x) for x in ("Evaluation at 200 steps", "Finished at")]
    assert sentence in log[:evaluation]
    assert sentence in log[finished:]
    status, out, err = retrax("evaluate", "run", "--episodes", 2)
    assert (status, out[:12]) == (0, "mean return ")
