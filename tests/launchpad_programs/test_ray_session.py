"""What `--engine ray` refuses before anything is written; Ray itself is not needed."""

import contextlib
import dataclasses
import importlib.metadata
import pathlib
import re
import signal
import socket
import subprocess
import sys

import pytest
from program_configs import make_config, make_run, make_workers

from retrax.command.main import main
from retrax.launchpad_programs import launch_command
from retrax.launchpad_programs.engines import options, ray_session
from retrax.launchpad_programs.engines.options import EngineOptions
from retrax.launchpad_programs.engines.ray_head import users
from retrax.launchpad_programs.engines.ray_session import check_cpus, object_bytes
from retrax.launchpad_programs.launch import check_engine
from retrax.replay.packing import Packing
from retrax.replay.rows import row_spec
from retrax.training.parameters import packing_of

NOWHERE = pathlib.Path("run")


def check(engine="ray", run=None, **options):
    check_engine(EngineOptions(engine=engine, **options), make_config(NOWHERE, run=run))


def install(monkeypatch, version):
    """Pretends that this version of Ray is installed, or none."""

    real = importlib.metadata.version

    def find(name):
        if name != "ray":
            return real(name)
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(importlib.metadata, "version", find)


def test_without_ray_the_extra_is_advised(monkeypatch):
    install(monkeypatch, None)
    with pytest.raises(ModuleNotFoundError, match=r"needs Ray: pip install -e '.\[cluster\]'"):
        check()


@pytest.mark.parametrize("version", ["2.47.1", "1.13.0", "2.9.3"])
def test_an_older_version_is_refused(monkeypatch, version):
    install(monkeypatch, version)
    older = version.rpartition(".")[0]
    with pytest.raises(ValueError, match=rf"needs Ray 2\.48 or newer, but {older} is installed"):
        check()


@pytest.mark.parametrize(("version", "has_tokens"), [("2.51.2", False), ("2.52.0", True)])
def test_newer_versions_are_taken(monkeypatch, version, has_tokens):
    install(monkeypatch, version)
    check()
    check(run=make_workers())
    assert options.has_tokens() == has_tokens


def test_wrong_addresses_are_refused(monkeypatch):
    install(monkeypatch, "2.48.0")
    with pytest.raises(ValueError, match="--ray-address needs --engine ray"):
        check(None, launch="local_mt", ray_address="here:1")
    with pytest.raises(ValueError, match=r"needs --listen-everywhere: .* can execute code"):
        check(ray_address="here:1")
    for wrong in ("here", ":1", "here:", "ray://here", "here:one"):
        with pytest.raises(ValueError, match=f"must be HOST:PORT, got {wrong}"):
            check(ray_address=wrong, listen_everywhere=True)
    for here in ("localhost:6379", "127.0.0.1:6379"):
        with pytest.raises(ValueError, match=f"the one that ray start printed, got {here}"):
            check(ray_address=here, listen_everywhere=True)
    with socket.create_server(("127.0.0.2", 0)) as server:
        address = f"127.0.0.2:{server.getsockname()[1]}"
        check(ray_address=address, listen_everywhere=True)
    for nobody in (address, "127.0.0.2:70000"):
        with pytest.raises(ValueError, match=rf"No Ray answers at --ray-address {nobody} \(.+\)"):
            check(ray_address=nobody, listen_everywhere=True)


def test_cpus_by_hand():
    """0.5 for the learner, 0.1 for each other node."""
    check_cpus(make_config(NOWHERE), 1.0, "this machine has")
    check_cpus(make_config(NOWHERE, num_envs=12, num_actors=12), 2.0, "this machine has")
    with pytest.raises(
        ValueError,
        match=r"asks for 2\.1 CPUs \(0\.8, and 0\.1 for each of 13 actors\), but this machine has "
        r"2: at most 12 actors fit\.",
    ):
        check_cpus(make_config(NOWHERE, num_envs=13, num_actors=13), 2.0, "this machine has")
    with pytest.raises(ValueError, match=r"the cluster has 0\.5: no actor fits"):
        check_cpus(make_config(NOWHERE, num_envs=1, num_actors=1), 0.5, "the cluster has")
    check_cpus(make_config(NOWHERE, run=make_workers()), 0.9, "this machine has")
    with pytest.raises(
        ValueError, match=r"asks for 0\.9 CPUs .* each of 2 workers\).*1 workers fit"
    ):
        check_cpus(make_config(NOWHERE, run=make_workers()), 0.8, "this machine has")
    check_cpus(make_config(NOWHERE), 1.0, "the cluster has", home=0.8)
    with pytest.raises(ValueError, match=r"asks for 0\.8 CPUs on this host .* Ray has 0 of it"):
        check_cpus(make_config(NOWHERE), 1.0, "the cluster has", home=0.0)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--num-actors", "50"], "5.8 CPUs"),
        (["--ray-address", "here:1"], "--ray-address needs --listen-everywhere"),
    ],
)
def test_it_is_refused_before_anything_is_written(options, expected, tmp_path, monkeypatch, capsys):
    install(monkeypatch, "2.48.0")
    monkeypatch.setattr(launch_command.isolation, "isolate", lambda: "")
    monkeypatch.setattr(ray_session, "cpus", lambda: 2)
    run = ["--environment", "catch", "--run-directory", str(tmp_path / "run"), "--engine", "ray"]
    assert main(["launch", "reactor", *run, *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert expected in line
    assert not (tmp_path / "run").exists()


def test_processes_that_use_a_folder_are_found(tmp_path):
    command = [sys.executable, "-c", "print(flush=True); input()", str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        process.stdout.readline()  # it has its command line now
        assert {user.pid for user in users(str(tmp_path))} == {process.pid}
        process.kill()
    assert users(str(tmp_path)) == set()


def test_memory_for_what_ray_carries_by_hand(tmp_path, monkeypatch):
    """Twice five draws; for each actor 2 chunks of 32 rows of 2 environments, parameters twice.

    Small draws travel together: up to four in an answer, which has then 2^20 bytes at most.
    """
    agent = make_config(tmp_path).make_agent(make_config(tmp_path).spec)
    assert object_bytes(make_config(tmp_path), agent) == 2**28
    large = dataclasses.replace(make_run().agent_config.replay, batch_size=10_000)
    run = make_run(num_envs=4)
    run = dataclasses.replace(run, agent_config=dataclasses.replace(run.agent_config, replay=large))
    config = make_config(tmp_path, run=run)
    agent = config.make_agent(config.spec)
    row = Packing(row_spec(config.spec, agent.sequence)).dtype.itemsize
    each = 2 * 32 * 2 * row + 2 * packing_of(agent).num_bytes
    # Numbers, three keys and a weight for each sequence, and the rows; each from a multiple of 64.
    parts = 8 * 8, 10_000 * 3 * 8, 10_000 * 4, 10_000 * agent.sequence.length * row
    draw = sum(-(-part // 64) * 64 for part in parts)
    assert object_bytes(config, agent) == 2 * (5 * draw + 2 * each)
    monkeypatch.setattr(ray_session, "_LEAST_OBJECT_BYTES", 0)
    config = make_config(tmp_path, num_envs=4)
    assert 4 * config.run.replay.draw_size * agent.sequence.length * row < 2**20
    assert object_bytes(config, agent) == 2 * (5 * 2**20 + 2 * each)


def test_only_the_owner_can_read_the_token_of_a_program(tmp_path):
    tokens = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        variables = ray_session._variables(str(tmp_path / name))
        path = pathlib.Path(variables["RAY_AUTH_TOKEN_PATH"])
        assert path.stat().st_mode & 0o777 == 0o600
        tokens.append(path.read_text())
        assert variables["RAY_AUTH_MODE"] == "token"
    assert len(set(tokens)) == 2
    assert all(re.fullmatch("[0-9a-f]{64}", token) for token in tokens)


def test_a_signal_waits_until_ray_has_started(tmp_path, monkeypatch):
    """Ray that is interrupted while it starts hangs, or leaves its folder behind."""
    tape = []

    @contextlib.contextmanager
    def head(config):
        signal.raise_signal(signal.SIGINT)
        tape.append("started")
        try:
            yield "127.0.0.1:1"
        finally:
            tape.append("ended")

    def join(address, stack):
        tape.append(f"joined {address}")
        stack.callback(tape.append, "left")

    monkeypatch.setattr(ray_session, "_head", head)
    monkeypatch.setattr(ray_session, "_join", join)
    with (
        pytest.raises(KeyboardInterrupt),
        ray_session.ray_session(None, make_config(tmp_path)),
    ):
        tape.append("the program runs")
    assert tape == ["started", "joined 127.0.0.1:1", "left", "ended"]


def test_the_log_says_who_can_connect(monkeypatch):
    """A running cluster may have no token: that one is needed is said only of our own Ray."""
    install(monkeypatch, "2.60.0")
    own = EngineOptions(engine="ray")
    joined = dataclasses.replace(own, ray_address="here:1", listen_everywhere=True)
    (told,) = own.network("no namespace")
    assert "know the token" in told
    (told,) = joined.network("no namespace")
    assert "whoever can connect can execute code" in told
    install(monkeypatch, "2.48.0")
    with pytest.raises(ValueError, match="refuses it a private network namespace"):
        own.network("no namespace")
