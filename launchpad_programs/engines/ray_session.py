"""Ray on this machine or a running cluster: checks, start, end.

Ray on this machine listens on loopback only, without a dashboard, knows a token of its own (where
Ray has tokens: 2.52 and newer), and keeps logs and sockets in a temporary folder: see `ray_head`.
"""

import contextlib
import math
import os
import pickle
import secrets
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import cloudpickle

from ...basics.sentences import first_line, reason
from ...replay.packing import SequencePacking
from ...replay.remote import CHUNK_ROWS, MAX_CHUNKS, REQUEST_BYTES
from ...training.learner import packing_of
from ...training.process import stop_on_signals
from ..config import ProgramConfig
from ..kinds import acting_kind, cpus, kinds_of, process_env
from ..node import AHEAD
from .options import OLDEST_RAY, ray_version

_ANSWER_SECONDS = 5.0
_LOOK_SECONDS, _SILENT_SECONDS = 2.0, 10.0  # at a cluster; until it is lost that does not answer
_HOST_SECONDS = 120.0  # for a host to import and make what an actor needs
_MAX_PREFIX = 30  # letters of the temporary folder: the names of its sockets may have 107
_LEAST_OBJECT_BYTES = 256 * 2**20
_ANSWERS = AHEAD + 3  # with draws: also of the update that runs, those before and after it


def check_ray(address: str | None, config: ProgramConfig, *, listen_everywhere: bool) -> None:
    """Refuses (ModuleNotFoundError, ValueError) what Ray could not run at an address."""
    if not (version := ray_version())[0]:
        raise ModuleNotFoundError(
            "--engine ray needs Ray: pip install -e '.[cluster]' in a clone, elsewhere pip install "
            "'retrax[cluster]'."
        )
    if version < OLDEST_RAY:
        found, oldest = (".".join(map(str, v)) for v in (version, OLDEST_RAY))
        advice = f"{found} is installed: pip install 'ray>={oldest}'"
        raise ValueError(f"--engine ray needs Ray {oldest} or newer, but {advice}")
    if address is None:
        check_cpus(config, cpus(), "this machine has")
    elif not listen_everywhere:
        raise ValueError(
            "--ray-address needs --listen-everywhere: the nodes connect over the network, and "
            "whoever can connect can execute code."
        )
    elif address.rpartition(":")[0] in ("localhost", "127.0.0.1"):  # Ray would replace it
        raise ValueError(f"--ray-address must be the one that ray start printed, got {address}.")
    else:
        own_address(address)


@contextlib.contextmanager
def ray_session(address: str | None, config: ProgramConfig) -> Iterator[Callable[[], str]]:
    """Joins a cluster, or starts Ray on this machine and ends it at the end of the block.

    Gives a function that says why Ray has ended; "" while it runs.
    """
    with contextlib.ExitStack() as stack:
        # Where a signal interrupts Ray, it may wait for a minute, or leave its folder behind.
        with stop_on_signals() as stop:
            if address is None:
                joined, ended = stack.enter_context(_head(config))
            else:
                joined, ended = address, watch(address)
            _join(joined, stack)
        if stop.is_set():
            raise KeyboardInterrupt
        if address is not None:
            check_cluster(config, address)
        yield ended


def watch(address: str) -> Callable[[], str]:
    """A function that says why a cluster is lost; it looks now and then."""
    host, _, port = address.rpartition(":")
    looked = answered = time.monotonic()

    def ended() -> str:
        nonlocal looked, answered
        now = time.monotonic()
        if now - looked < _LOOK_SECONDS:
            return ""
        looked = now
        try:
            socket.create_connection((host, int(port)), _ANSWER_SECONDS).close()
        except OSError as error:
            return str(error) if now - answered > _SILENT_SECONDS else ""
        answered = now
        return "" if home_resources() else "this host is no longer part of its cluster"

    return ended


def _join(address: str, stack: contextlib.ExitStack) -> None:
    """Connects this process, until the end of the stack."""
    import ray

    own = own_address(address)
    if own.startswith("127."):  # see `_variables`: Ray may have been imported before
        ray._private.ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        ray.init(address, log_to_driver=False, logging_level="CRITICAL", _node_ip_address=own)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise ValueError(
            f"Ray at {address} cannot be joined ({first_line(error)}): this machine must be part "
            f"of the cluster (ray start --address={address}) and know its token, if it has one "
            "(RAY_AUTH_MODE=token, ~/.ray/auth_token)."
        ) from error
    stack.callback(ray.shutdown)
    # Ray would print 600 letters about each death.
    ray._private.worker.print_to_stdstream = lambda *lines, **options: None


def check_cpus(
    config: ProgramConfig, available: float, where: str, *, home: float = math.inf
) -> None:
    """Refuses a program that Ray could not place: there, and its other nodes on the home host."""
    acting = acting_kind(config.run)
    others = sum(kind.cpus for kind in kinds_of(config.run) if kind is not acting)
    count, label = config.run.num_actors, acting.label
    asked = others + count * acting.cpus
    has, fitting = f"{where} {available:g}", int((available - others) / acting.cpus + 1e-6)
    advice = f"at most {fitting} {label}s fit" if fitting > 0 else f"no {label} fits"
    if others > home + 1e-6:
        has, advice = f"this host has {home:g}", "give ray start more --num-cpus"
    elif asked <= available + 1e-6:
        return
    raise ValueError(
        f"--engine ray asks for {asked:.1f} CPUs ({others:.1f} on this host, and {acting.cpus} for "
        f"each of {count} {label}s), but {has}: {advice}."
    )


def home_resources() -> dict[str, float]:
    """Ray's resources of this host, such as CPU and GPU; empty if Ray believes that it is dead."""
    import ray

    home = ray.get_runtime_context().get_node_id()
    return next((x["Resources"] for x in ray.nodes() if x["NodeID"] == home and x["Alive"]), {})


def check_cluster(config: ProgramConfig, address: str) -> None:
    """Refuses one with too few CPUs, or with a host that cannot make what an actor needs."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    available, home = ray.cluster_resources().get("CPU", 0.0), home_resources().get("CPU", 0.0)
    check_cpus(config, available, f"the cluster at {address} has", home=home)
    pickled, loads = cloudpickle.dumps(config), pickle.loads

    def make() -> None:  # its code is sent, and so needs no module of ours
        sent = loads(pickled)
        sent.make_agent(sent.spec)

    env = process_env(acting_kind(config.run), config)
    task = ray.remote(num_cpus=0, max_retries=0, runtime_env={"env_vars": env})(make)
    answers = {}
    for host in ray.nodes():
        if host["Alive"]:
            there = NodeAffinitySchedulingStrategy(host["NodeID"], soft=False)
            answers[host["NodeManagerAddress"]] = task.options(scheduling_strategy=there).remote()
    for host, answer in answers.items():
        try:
            ray.get(answer, timeout=_HOST_SECONDS)
        except ray.exceptions.RayError as error:
            why = reason(getattr(error, "cause", error))
            raise ValueError(
                f"The host {host} cannot run an actor ({why}): every host of the cluster needs "
                "retrax, and the modules of the agent and the environment."
            ) from None


def own_address(address: str) -> str:
    """The address of this machine in the network of Ray's head; ValueError if none answers."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"--ray-address must be HOST:PORT, got {address}.")
    try:
        with socket.create_connection((host, int(port)), _ANSWER_SECONDS) as connection:
            own: str = connection.getsockname()[0]
            return host if own.startswith("127.") else own
    except (OSError, OverflowError) as error:
        raise ValueError(f"No Ray answers at --ray-address {address} ({error}).") from None


def object_bytes(config: ProgramConfig) -> int:
    """Memory for what Ray carries: draws, rows and parameters, sent or still read; twice that."""
    run, agent = config.run, config.make_agent(config.spec)
    packing = SequencePacking(config.spec, agent.sequence)
    # Small draws travel together, see `RemoteReplay`.
    draws = max(packing.draw_bytes(run.replay.draw_size), REQUEST_BYTES)
    chunk = CHUNK_ROWS * packing.row_bytes * run.environments_per_actor
    each = MAX_CHUNKS * chunk + 2 * packing_of(agent).num_bytes
    return max(_LEAST_OBJECT_BYTES, 2 * (_ANSWERS * draws + run.num_actors * each))


@contextlib.contextmanager
def _head(config: ProgramConfig) -> Iterator[tuple[str, Callable[[], str]]]:
    """A `ray_head`: its address, and why it has ended."""
    parent = tempfile.gettempdir()
    parent = parent if len(parent) <= _MAX_PREFIX else "/tmp"
    folder = tempfile.mkdtemp(prefix="retrax-ray-", dir=parent)
    os.environ.update(_variables(folder))
    reader, writer = os.pipe()
    words = folder, *map(str, (cpus(), object_bytes(config), writer))
    command = [sys.executable, "-m", f"{__package__}.ray_head", *words]
    pipes: Any = {"stdin": PIPE, "stdout": sys.stderr, "pass_fds": [writer]}
    # The end of the block closes its standard input.
    with Popen(command, start_new_session=True, **pipes) as head:
        os.close(writer)
        with os.fdopen(reader) as pipe:
            address = pipe.read()
        if not address or " " in address:
            raise ValueError(f"Ray does not start on this machine ({address or 'see above'}).")
        yield address, lambda: "" if head.poll() is None else "one of its processes has died"


def _variables(folder: str) -> dict[str, str]:
    """Variables for all of Ray's processes, and for this one before it imports Ray."""
    token = Path(folder) / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    return {
        # Ray would replace 127.0.0.1 by the address of an interface, and listen on all of them.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_USAGE_STATS_ENABLED": "0",  # it would report to its makers
        "PYTHONWARNINGS": "",  # as errors, warnings would end Ray's own processes
        # Priorities as under Launchpad: by default all of Ray's processes run at 15, and actors,
        # which add their own to that, nearly at the learner's.
        "RAY_worker_niceness": "0",
    }
