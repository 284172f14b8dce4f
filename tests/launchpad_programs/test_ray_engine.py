"""Nodes in actors of Ray: how often they are restarted, by hand, and one program of real processes.

A test that starts Ray holds a lock, so that no two of them run at a time.
"""

import csv
import dataclasses
import errno
import fcntl
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import types

import psutil
import pytest

pytest.importorskip("launchpad", reason="needs the distributed tier (Python 3.10, Linux)")
pytest.importorskip("ray", reason="needs Ray (the extra `cluster`)")

from benchmark_modules import FOLDER, load
from listening import listening_ports
from program_configs import make_config, make_run, make_workers
from waiting import wait_for

from retrax.agents.reactor import AGENT
from retrax.launchpad_programs import ray_engine, ray_files
from retrax.launchpad_programs.ray_engine import RayWorker, _bound_program, describe_restart
from retrax.launchpad_programs.ray_session import Connection
from retrax.launchpad_programs.status import read_status

pytestmark = pytest.mark.distributed

TESTS = pathlib.Path(__file__).parents[1]

life_cycle = load("life_cycle")


class Nodes:
    """Stands for Ray: a node whose processes end as they are told to."""

    def __init__(self, monkeypatch):
        self.now, self.endings, self.killed, self.noted = 0.0, {}, [], []
        self.connection = Connection()
        monkeypatch.setattr(ray_engine.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(ray_engine, "_ending", lambda n: self.endings.get(n, ("", "")))
        monkeypatch.setattr(RayWorker, "kill", lambda worker: self.killed.append(worker._result))
        monkeypatch.setattr(RayWorker, "_where", lambda worker: " on a host")

    def worker(self, max_failures):
        return RayWorker(
            "actor/1",
            self.start,
            max_failures=max_failures,
            on_restart=lambda *restart: self.noted.append(restart),
            connection=self.connection,
        )

    def start(self, restarts):
        return _Handle(), restarts


class _Handle:
    where = property(lambda self: self)

    def remote(self):
        pass


def test_a_node_is_restarted_until_it_fails_too_often_in_a_row(monkeypatch, caplog):
    nodes = Nodes(monkeypatch)
    worker = nodes.worker(max_failures=2)
    assert worker.ended() == ""
    nodes.endings[0] = ("failed with ValueError: first", "Traceback: first")
    assert worker.ended() == "failed with ValueError: first"
    assert worker.revive()
    assert worker.ended() == ""
    assert (nodes.killed, nodes.noted) == ([0], [("actor/1", 1)])
    assert "actor/1 failed with ValueError: first on a host: restart 1." in caplog.text
    nodes.endings[1] = ("was killed", "")
    assert worker.ended()
    assert worker.revive()
    nodes.endings[2] = ("failed with ValueError: third", "Traceback: third")
    assert worker.ended()
    assert not worker.revive()
    assert worker.ended() == "failed 3 times in a row; at first, it failed with ValueError: first"
    assert worker.traceback() == "Traceback: first"


def test_failures_are_not_in_a_row_when_the_node_ran_for_a_minute_between(monkeypatch):
    nodes = Nodes(monkeypatch)
    worker = nodes.worker(max_failures=1)
    for number in range(5):
        nodes.now += 61.0
        nodes.endings[number] = ("was killed", "")
        assert worker.ended() == "was killed"
        assert worker.revive()
    nodes.now += 59.0
    nodes.endings[5] = ("was killed", "")
    assert worker.ended()
    assert not worker.revive()


def test_a_node_that_returns_too_early_is_restarted(monkeypatch, caplog):
    nodes = Nodes(monkeypatch)
    worker = nodes.worker(max_failures=1)
    nodes.endings[0] = ("done", "")
    assert worker.ended() == "done"
    assert worker.revive()
    assert "actor/1 ended too early on a host: restart 1." in caplog.text


class Broken:
    """Stands for calls of Ray that fail."""

    def __init__(self, error):
        self.error = error

    def get(self, *arguments):
        raise self.error


def test_all_nodes_are_lost_with_ray(monkeypatch):
    """A call that fails for one node tells how all end, but for those that had ended before."""
    nodes = Nodes(monkeypatch)
    first, second, third = (nodes.worker(max_failures=2) for _ in range(3))
    nodes.endings[0] = ("done", "")
    assert third.ended() == "done"
    nodes.endings = Broken(OSError("Broken pipe"))
    lost = "was lost, since Ray has ended on this machine (Broken pipe)"
    assert first.ended() == lost
    assert not first.revive()
    nodes.endings = Broken(AssertionError("a Ray that has ended is asked again"))
    assert first.ended() == second.ended() == lost
    assert not second.revive()
    assert third.ended() == "done"
    assert nodes.noted == []


def test_a_node_that_cannot_be_started_again_is_lost(monkeypatch):
    nodes = Nodes(monkeypatch)
    worker = nodes.worker(max_failures=2)
    nodes.endings[0] = ("was killed", "")
    assert worker.ended() == "was killed"
    monkeypatch.setattr(worker, "_start", Broken(OSError("Broken pipe")).get)
    assert not worker.revive()
    assert worker.ended() == "was lost, since Ray has ended on this machine (Broken pipe)"


def test_nodes_that_cannot_be_started_are_lost(monkeypatch):
    """The first that fails tells how all end; they are not started, stopped or killed."""
    kill, nodes = RayWorker.kill, Nodes(monkeypatch)
    nodes.start = Broken(OSError("Broken pipe")).get
    first = nodes.worker(max_failures=2)
    nodes.start = Broken(AssertionError("a Ray that has ended is asked again")).get
    for worker in (first, nodes.worker(max_failures=2)):
        assert worker.ended() == "was lost, since Ray has ended on this machine (Broken pipe)"
        assert not worker.revive()
        worker.stop()
        kill(worker)


def test_an_error_of_a_file_is_not_the_end_of_ray(monkeypatch):
    nodes = Nodes(monkeypatch)
    worker = nodes.worker(max_failures=2)
    nodes.endings = Broken(OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(OSError, match="No space left"):
        worker.ended()
    assert nodes.connection.lost == ""


def test_the_nodes_that_serve_keep_their_addresses(tmp_path):
    ports = {"replay": 2001, "counter": 2002, "learner": 2003}
    program = _bound_program(make_config(tmp_path), ports, "10.0.0.7")
    for label, port in ports.items():
        (address,) = program.groups[label][0].addresses
        assert address.resolve() == f"10.0.0.7:{port}"


def test_the_parameter_server_keeps_its_address(tmp_path):
    ports = {"counter": 2001, "parameter_server": 2002}
    config = make_config(tmp_path, run=make_workers())
    assert config.serving == tuple(ports)
    program = _bound_program(config, ports, "10.0.0.7")
    (address,) = program.groups["parameter_server"][0].addresses
    assert address.resolve() == "10.0.0.7:2002"
    assert len(program.groups["worker"]) == 2


def test_what_a_restarted_node_of_workers_continues_with(tmp_path):
    config = make_config(tmp_path, run=make_workers())
    assert "parameter server begins anew" in describe_restart(config, "parameter_server")
    resumed = make_config(tmp_path, run=make_workers(), resumed_at=300)
    told = describe_restart(resumed, "parameter_server")
    assert "parameter server restores the snapshot at 300 steps" in told
    assert "its own newest snapshot" in describe_restart(resumed, "worker")


def test_what_a_restarted_node_continues_with(tmp_path):
    agent = AGENT.presets["small"]()
    replay = dataclasses.replace(agent.replay, selector="uniform")
    run = make_run(agent_config=dataclasses.replace(agent, replay=replay))
    config = make_config(tmp_path, run=run)
    assert "no snapshot yet" in describe_restart(config, "learner")
    resumed = make_config(tmp_path, run=run, resumed_at=300)
    assert "the snapshot at 300 steps" in describe_restart(resumed, "learner")
    assert "is empty, and refills" in describe_restart(config, "replay")
    checkpoint = tmp_path / "reverb" / "live" / "2026"
    checkpoint.mkdir(parents=True)
    assert "is empty, and refills" in describe_restart(config, "replay")  # incomplete
    (checkpoint / "DONE").write_text("yes")
    assert "restores its newest checkpoint" in describe_restart(config, "replay")
    assert "queue are lost" in describe_restart(make_config(tmp_path), "replay")
    assert describe_restart(config, "actor") == ""


class Remote:
    """A process on another host, whose file has the content of the moment."""

    content = b"1"
    read = property(lambda self: types.SimpleNamespace(remote=lambda path: (self, self.content)))


def test_states_are_copied_from_other_hosts(monkeypatch, tmp_path):
    now = 0.0
    monkeypatch.setattr(ray_files.time, "monotonic", lambda: now)
    monkeypatch.setattr(ray_files.ray, "wait", lambda results, timeout: (results, []))
    monkeypatch.setattr(ray_files.ray, "get", lambda result, timeout: result[1])
    path, seen, host = tmp_path / "actors" / "1.npz", [], Remote()
    copy = ray_files.FileCopy(path)
    copy.begin(host)
    for second in range(25):
        now, host.content = float(second), b"%d" % second
        copy.poll()
        seen.append(path.read_bytes() if path.exists() else None)
    assert seen == [None] * 11 + [b"10"] * 11 + [b"21"] * 3
    copy.finish()
    assert path.read_bytes() == b"24"
    host.content = None  # on the launcher's host, or not saved yet
    copy.finish()
    assert path.read_bytes() == b"24"
    assert list(path.parent.iterdir()) == [path]


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

    def start(*options, agent="average_agent:ENTRY"):
        new = ["--environment", "catch", "--run-directory", directory, "--engine", "ray"]
        new += ["--environments-per-actor", 1]  # so that they take exactly the steps of the run
        programs.append(life_cycle.Program(directory, *new, *options, agent=agent, folder=TESTS))
        return programs[-1]

    yield start
    for program in programs:
        program.process.kill()
        program.process.communicate()
    wait_for(lambda: not list(temporary.iterdir()))


def read_rows(directory):
    with open(directory / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.timeout(600)
def test_a_program_outlives_an_actor(launch, temporary):
    """Exact steps, exit status 0, no orphan, nothing in the temporary folder."""
    program = launch("--num-actors", 2, "--steps", 1200)
    program.wait_for("learning")
    launched = psutil.Process(program.process.pid).children(recursive=True)
    nodes = program.nodes()
    labels = sorted(name.partition("/")[0] for name in nodes)
    assert labels == ["actor", "actor", "counter", "evaluator", "learner", "replay"]
    assert nodes["actor/1"].environ()["JAX_PLATFORMS"] == "cpu"
    assert nodes["actor/1"].environ()["NPROC"] == "1"
    assert psutil.Process().nice() == nodes["learner/0"].nice() < nodes["actor/1"].nice()
    assert not listening_ports(nodes["replay/0"].pid) & listening_ports()
    nodes["actor/0"].suspend()  # or it may take all steps while the other one starts again
    wait_for(lambda: "actor/1" in program.status()["leases"], 120)
    nodes["actor/1"].kill()
    wait_for(lambda: program.status()["leases"]["actor/1"][0] == 1, 120)
    nodes["actor/0"].resume()
    output, _ = program.process.communicate(timeout=240)
    assert program.process.returncode == 0, output
    assert "actor/1 was killed on 127.0.0.2: restart 1." in output
    _, left = psutil.wait_procs(launched, timeout=15)
    assert not left
    assert not list(temporary.iterdir())
    directory = program.directory
    last = read_rows(directory)[-1]
    assert (last["steps"], last["node_restarts"]) == ("1200", "1.0")
    assert int(last["updates"]) > 0
    assert (directory / "snapshots" / "1200").is_dir()
    status = read_status(directory)
    assert status["restarts"] == {"actor/1": 1}
    assert status["leases"]["actor/1"][0] == 1
    assert json.loads((directory / "program.json").read_text()).keys().isdisjoint({"restarts"})


SMALL = ["--agent.replay.min-rows", 200, "--agent.replay.batch-size", 4]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_workers_and_their_server_are_restarted(launch, tmp_path):
    """Both are killed once; the run takes its steps, and updates never run far backwards."""
    options = ["--topology", "parameter_server", "--num-workers", 2, "--snapshot-every", 500]
    program = launch(*options, "--steps", 3000, *SMALL, agent="reactor")
    snapshots = tmp_path / "run" / "snapshots"
    wait_for(lambda: any(p.name.isdigit() for p in snapshots.glob("*")), 240)
    nodes = program.nodes()
    launched = psutil.Process(program.process.pid).children(recursive=True)
    nodes["parameter_server/0"].kill()
    nodes["worker/1"].kill()
    output, _ = program.process.communicate(timeout=300)
    assert program.process.returncode == 0, output
    assert re.search(r"The parameter server restores the snapshot at \d+ steps\.", output)
    assert "The worker restores its own newest snapshot" in output
    _, left = psutil.wait_procs(launched, timeout=15)
    assert not left
    rows = read_rows(tmp_path / "run")
    assert (rows[-1]["steps"], rows[-1]["node_restarts"]) == ("3000", "2.0")
    updates = [int(row["updates"]) for row in rows]
    assert updates[-1] > 100
    assert all(float(row["gradients_dropped"] or 0) <= 1 for row in rows)
    assert read_status(tmp_path / "run")["restarts"] == {"parameter_server/0": 1, "worker/1": 1}


class Cluster:
    """A running `ray_cluster.py`."""

    def __init__(self, folder):
        script = pathlib.Path(__file__).with_name("ray_cluster.py")
        self.process = subprocess.Popen(
            [sys.executable, script, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.address = self.process.stdout.readline().strip()
        self.second = int(self.process.stdout.readline())

    def replace_second(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.second = int(self.process.stdout.readline())


@pytest.fixture
def cluster():
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        cluster = Cluster(folder)
        yield cluster
        cluster.process.communicate(timeout=60)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_program_outlives_a_host(cluster, launch):
    options = ["--ray-address", cluster.address, "--listen-everywhere"]
    program = launch("--num-actors", 2, "--steps", 6000, *SMALL, *options, agent="reactor")
    program.wait_for("learning")
    cluster.replace_second()
    output, _ = program.process.communicate(timeout=600)
    assert program.process.returncode == 0, output
    assert re.search(r"actor/\d was lost with its host on 127.0.0.3: restart 1", output)
    assert read_rows(program.directory)[-1]["steps"] == "6000"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_benchmark_of_kills():
    """`benchmarks/chaos.py`, with one kill."""
    options = ["--kills", "1", "--seconds", "2", "--steps", "2000", "--snapshot-every", "500"]
    result = subprocess.run(
        [sys.executable, FOLDER / "chaos.py", *options],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    found = dict(re.findall(r"^\| (.+?) \| (.+) \|$", result.stdout, re.MULTILINE))
    assert found["exit status"] == "0"
    assert found["steps"] == "2000 of 2000"
    assert found["orphans"] == "0"
    assert found["leftovers"] == "[]"
    assert found["sockets beyond loopback"] == "0"
