"""Nodes in actors of Ray: how often they are restarted, by hand, and one program of real processes.

A test that starts Ray holds a lock, so that no two of them run at a time.
"""

import contextlib
import errno
import fcntl
import functools
import ipaddress
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import types

import psutil
import pytest
from fresh_python import run_python

pytest.importorskip("ray", reason="needs Ray (the extra `cluster`)")

from benchmark_modules import FOLDER, load
from node_fakes import Clock
from waiting import wait_for

from retrax.evaluation.suites import read_rows
from retrax.launchpad_programs.engines import ray as ray_engine
from retrax.launchpad_programs.engines import ray_head, ray_session
from retrax.launchpad_programs.engines.ray import RayNode, RayProgram
from retrax.launchpad_programs.node import EngineLost

pytestmark = pytest.mark.distributed

TESTS = pathlib.Path(__file__).parents[1]

life_cycle = load("life_cycle")


class Program(RayProgram):
    """Stands for Ray: nodes whose processes end as they are told to."""

    def __init__(self, monkeypatch):
        self.max_failures, self.now, self.endings, self.newest = 2, 0.0, {}, 100
        self.started, self.killed, self.why_ray_ended = [], [], ""
        self._ended, self.config = lambda: self.why_ray_ended, types.SimpleNamespace(directory="")
        monkeypatch.setattr(ray_engine, "newest_snapshot", lambda directory: self.newest)
        monkeypatch.setattr(ray_engine.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(ray_engine, "_ending", lambda n: self.endings.get(n, ("", "")))
        monkeypatch.setattr(ray_engine.ray, "kill", lambda host: self.killed.append(host.number))
        monkeypatch.setattr(ray_engine.ray, "get", lambda place, timeout: "a host")

    def start(self, name, restarts):
        self.started.append((name, restarts))
        where = types.SimpleNamespace(remote=lambda: 0)
        return types.SimpleNamespace(where=where, number=restarts), restarts

    def node(self, label="actor"):
        return RayNode(f"{label}/1", self).running()

    def revives(self, node, number, how, traceback="", after=0.0):
        """Whether a node is started again whose process number `number` ends."""
        self.now += after
        self.endings[number] = (how, traceback)
        assert node.ended()
        return node.revive()


@pytest.fixture
def program(monkeypatch):
    return Program(monkeypatch)


def test_a_node_is_restarted_until_it_fails_too_often_in_a_row(program, caplog):
    node = program.node()
    assert node.ended() == ""
    program.endings[0] = ("failed with ValueError: first", "Traceback: first")
    assert node.ended() == "failed with ValueError: first"
    assert node.revive()
    assert node.ended() == ""
    assert (program.killed, program.started) == ([0], [("actor/1", 0), ("actor/1", 1)])
    assert "actor/1 failed with ValueError: first on a host: restart 1." in caplog.text
    assert program.revives(node, 1, "done")
    assert "actor/1 ended too early on a host: restart 2." in caplog.text
    assert not program.revives(node, 2, "failed with ValueError: third", "Traceback: third")
    assert node.ended().endswith("in a row; the first time, it failed with ValueError: first")
    assert node.traceback() == "Traceback: first"


def test_failures_are_not_in_a_row_when_the_node_ran_for_a_minute_between(program):
    program.max_failures, node = 1, program.node()
    for number in range(5):
        assert program.revives(node, number, "was killed", after=61.0)
    assert not program.revives(node, 5, "was killed", after=59.0)


def test_a_node_that_dies_of_each_save_fails_too_often(program, caplog):
    """It lives for minutes each time, but the newest snapshot stays the same."""
    node = program.node("learner")
    assert all(program.revives(node, number, "was killed", after=200.0) for number in range(2))
    program.newest = 200
    assert program.revives(node, 2, "was killed", after=200.0)
    assert "learner/1 was killed on a host: restart 3 from the snapshot at 200" in caplog.text
    silent = "failed with WaitTimeout: The replay gave no answer for 360{} s"
    assert program.revives(node, 3, silent.format(0), after=200.0)
    assert program.revives(node, 4, silent.format(1), after=200.0)
    assert not program.revives(node, 5, silent.format(0), after=200.0)
    assert node.ended().startswith("failed 3 times in a row; the first time, it failed with Wait")


@pytest.mark.parametrize(
    ("reason", "how"),
    [
        ("The actor is dead because its worker process has died. End of file.", "was killed"),
        ("The actor is dead because it was killed by `ray.kill`.", "was killed"),
        ("The actor is dead because its node has died.", "was lost with its host"),
        ("It is dead because its owner has died.", "was lost with Ray on this machine"),
        ("Not schedulable:\n\tno host.", "failed in Ray (Not schedulable: no host)"),
    ],
)
def test_the_end_of_a_process_has_the_reason_of_ray(monkeypatch, reason, how):
    monkeypatch.setattr(ray_engine.ray, "wait", lambda results, timeout: (results, []))

    def get(result):
        raise ray_engine.ray.exceptions.RayError(reason)

    monkeypatch.setattr(ray_engine.ray, "get", get)
    assert ray_engine._ending("result") == (how, reason)


@pytest.mark.parametrize(
    ("told", "error", "expected"),
    [
        ("one has died", AssertionError("a Ray that has ended is asked"), EngineLost),
        ("", OSError("one has died"), EngineLost),
        ("", OSError(errno.ENOSPC, "a file's: no space"), OSError),
    ],
)
def test_a_program_is_lost_with_ray(program, monkeypatch, told, error, expected):
    """Every call of Ray then says so; a node that has ended before is not asked."""
    ended, running = program.node(), program.node()
    program.endings[0] = ("done", "")
    assert ended.ended() == "done"

    def call(*arguments):
        raise error

    monkeypatch.setattr(ray_engine, "_ending", call)
    monkeypatch.setattr(ray_engine.ray, "kill", call)
    monkeypatch.setattr(program, "start", call)
    program.why_ray_ended = told
    sentence = "a file's" if expected is OSError else r"has ended on this machine \(one has died"
    for lost in (running.ended, running.kill, program.node):
        with pytest.raises(expected, match=sentence):
            lost()
    assert ended.ended() == "done"


def test_a_cluster_is_watched(monkeypatch):
    """One that does not answer for ten seconds is lost, or that does not know this host."""
    clock, resources = Clock(100.0), {"CPU": 1.0}
    monkeypatch.setattr(ray_session, "time", clock)
    monkeypatch.setattr(ray_session, "home_resources", lambda: resources)
    with socket.create_server(("127.0.0.1", 0)) as server:
        ended = ray_session.watch(f"127.0.0.1:{server.getsockname()[1]}")
        clock.now += 60.0
        assert ended() == ""
        resources.clear()
        assert ended() == "", "it looks every two seconds"
        clock.now += 2.5
        assert ended() == "this host is no longer part of its cluster"
    found = []
    for _ in range(5):
        clock.now += 2.5
        found.append(ended())
    assert found[:4] == [""] * 4
    assert "refused" in found[4]


class Starting:
    """Stands for a Ray that fails to start some times."""

    def __init__(self, monkeypatch, failures):
        self.failures, self.ended = failures, []
        services = types.SimpleNamespace(get_node=self.get_node)
        self._private = types.SimpleNamespace(services=services)
        monkeypatch.setitem(sys.modules, "ray", self)
        monkeypatch.setattr(ray_head, "_kill", self.ended.append)
        monkeypatch.setattr(ray_head, "time", Clock())
        monkeypatch.setattr(ray_head, "_WATCH_SECONDS", 1.0)

    def get_node(self, address):
        self.failures -= 1
        if self.failures >= 0:
            raise RuntimeError("no such node")
        return address

    def init(self, *arguments, **options):
        address = self._private.services.get_node("127.0.0.1:1")
        return types.SimpleNamespace(address_info={"gcs_address": address})

    def shutdown(self):
        self.ended.append("shut down")


@pytest.mark.parametrize(
    ("failures", "expected", "tries"),
    [
        (50, "127.0.0.1:1", 1),  # a busy machine: 50 seconds, where Ray gives up after 30
        (200, "127.0.0.1:1", 2),
        (1000, "RuntimeError: no such node", 3),
    ],
)
def test_ray_gets_time_to_start_and_is_started_twice(monkeypatch, failures, expected, tries):
    fake = Starting(monkeypatch, failures)
    assert ray_head._start("folder", 2, 1) == expected
    assert fake.ended == ["shut down", "folder"] * (tries - 1)


@pytest.fixture
def alone():
    """Holds the lock of the tests that start Ray."""
    with open(pathlib.Path(tempfile.gettempdir()) / "retrax-tests-with-ray", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture
def temporary(monkeypatch):
    """The temporary folder of programs, with a short name, as Ray's sockets need."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield pathlib.Path(folder)


@pytest.fixture
def launch(alone, temporary, tmp_path):
    """Launches programs on catch under Ray, and leaves nothing running."""
    programs, directory = [], tmp_path / "run"

    def start(*options, agent="average_agent:ENTRY", environment="catch", resume=False):
        new = ["--environment", environment, "--run-directory", directory]
        new += ["--num-envs", 2]  # so that they take exactly the steps of the run
        first = ["--resume", directory] if resume else new
        options = [*first, "--engine", "ray", *options]
        programs.append(life_cycle.Program(directory, *options, agent=agent, folder=TESTS))
        return programs[-1]

    yield start
    for program in programs:
        program.process.kill()
        program.process.communicate()
    wait_for(lambda: not list(temporary.iterdir()))


@pytest.mark.once
@pytest.mark.timeout(600)
def test_a_program_outlives_an_actor_and_an_interrupt(launch, temporary, tmp_path, monkeypatch):
    """Exact steps, exit status 0, only loopback, no orphan, nothing in the temporary folder.

    The last snapshots take seconds to write. What Python imports at its start prints, and warnings
    are errors.
    """
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("print('hello from site', flush=True)")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'site'}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    options = ["--num-actors", 2, "--steps", 1_000_000]  # more than are taken here
    program = launch(*options, agent="slow_saves:ENTRY")
    program.wait_for("learning")
    wait_for(lambda: lease_of(program, 1)[2] > 0, 120)
    wait_for(lambda: len(program.nodes()) == 6, 120)  # nobody else waits for all of them
    actors = [program.nodes()[f"actor/{index}"] for index in range(2)]
    for actor in actors:
        actor.suspend()
    launched = psutil.Process(program.process.pid).children(recursive=True)
    nodes = program.nodes()
    labels = sorted(name.partition("/")[0] for name in nodes)
    assert labels == ["actor", "actor", "counter", "evaluator", "learner", "replay"]
    assert nodes["actor/1"].environ()["JAX_PLATFORMS"] == "cpu"
    assert nodes["actor/1"].environ()["NPROC"] == "1"
    assert psutil.Process().nice() == nodes["learner/0"].nice() < nodes["actor/1"].nice()
    assert all(is_loopback(address) for node in launched for address in listens_on(node))
    actors[1].kill()
    wait_for(lambda: lease_of(program, 1)[0] == 1 and lease_of(program, 1)[2] > 0, 120)
    assert program.status()["restarts"] == {"actor/1": 1}
    program.process.send_signal(signal.SIGINT)
    actors[0].resume()
    output = program.end(60)
    assert "actor/1 was killed on 127.0.0.1: restart 1." in output
    assert not list(temporary.iterdir())
    _, left = psutil.wait_procs(launched, timeout=15)
    assert not left
    directory = program.directory
    assert json.loads((directory / "program.json").read_text()).keys().isdisjoint({"restarts"})
    assert re.search(r"Stopped at \d+ steps and \d+ updates", output)
    newest = max(int(path.stem) for path in (directory / "snapshots").iterdir())
    assert (directory / "replay" / "snapshots" / f"{newest}.npz").is_file()


def lease_of(program, index):
    """Restarts of an actor, the number of its newest report, and steps that it was granted."""
    return program.status()["leases"].get(f"actor/{index}", (0, 0, 0))


def listens_on(process):
    """Addresses on which a process listens, in its own network namespace."""
    with contextlib.suppress(psutil.Error):  # it may have ended
        return [
            ipaddress.ip_address(connection.laddr.ip)
            for connection in process.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        ]
    return []


def is_loopback(address):
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


SMALL = ["--agent.replay.min-rows", 200, "--agent.replay.batch-size", 4]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["raylet", "gcs_server"])
def test_a_program_ends_with_a_process_of_ray(launch, name):
    program = launch("--num-actors", 2, "--steps", 10**7, "--snapshot-every", 500)
    wait_for(lambda: any(program.directory.glob("snapshots/*.npz")), 240)
    launched = psutil.Process(program.process.pid).children(recursive=True)
    for process in launched:
        if process.name() == name:
            process.kill()
    output = program.end(60, status=1)
    assert re.search(r"was lost, since Ray has ended on this machine \(.*\)\.\nStopped", output)
    assert "Snapshot at" in output
    assert "Traceback" not in output
    assert not psutil.wait_procs(launched, timeout=10)[1]


@pytest.fixture
def cluster(launch, request):
    """Launches programs in a cluster of two hosts; a function that replaces the second one."""
    script = pathlib.Path(__file__).with_name("ray_cluster.py")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        command = [sys.executable, script, folder, str(getattr(request, "param", 0))]
        with subprocess.Popen(command, **pipes) as process:
            address = process.stdout.readline().strip()
            joined = ["--ray-address", address, "--listen-everywhere"]

            def replace():
                process.stdin.write("\n")
                process.stdin.flush()
                assert process.stdout.readline()

            yield functools.partial(launch, *joined), replace
            process.communicate(timeout=60)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_program_outlives_a_host(cluster):
    launch, replace = cluster
    program = launch("--num-actors", 2, "--steps", 6000, *SMALL, agent="reactor")
    program.wait_for("learning")
    replace()
    assert re.search(r"actor/\d was lost with its host on 127.0.0.3: restart 1", program.end(600))
    assert read_rows(program.directory / "metrics.csv")[-1]["steps"] == "6000"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("cluster", [1], indirect=True)
def test_the_learner_stays_here_if_another_host_has_the_gpu(cluster):
    launch, _ = cluster
    assert "restart" not in launch("--num-actors", 1, "--steps", 300).end()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_host_without_a_module_is_refused(cluster, tmp_path, monkeypatch):
    """Before a node starts: in one sentence, which names both. Only the launcher finds it here."""
    launch, task = cluster[0], "from retrax.environments.pure_tasks import PureCatch as Catch"
    (tmp_path / "only_here.py").write_text(task)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    program = launch(environment="only_here:Catch")
    sentence = program.end(240, status=2).splitlines()[-1]
    assert re.search(r"The host 127.0.0.[23] cannot run an actor", sentence)
    assert "No module named 'only_here'" in sentence
    assert not program.directory.exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "kinds", [["replay", "actor"], ["parameter_server", "worker", "--workers"]]
)
def test_the_benchmark_of_kills(kinds):
    """`benchmarks/chaos.py`: a node that reports, and one that does not; the other topology."""
    options = ["--kinds", *kinds, "--each", "1", "--seconds", "2", "--steps", "4000"]
    options += ["--snapshot-every", "500", "--num-envs", "2"]
    output = run_python(FOLDER / "chaos.py", *options)
    found = dict(re.findall(r"^\| (.+?) \| (.+) \|$", output, re.MULTILINE))
    expected = {"exit status": "0", "steps": "4000 of 4000", "orphans": "0", "leftovers": "[]"}
    assert found == found | expected | {"sockets beyond loopback": "0"}
