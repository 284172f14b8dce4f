"""Ray on this machine or a running cluster: checks, start, end.

Ray on this machine listens on loopback only, without a dashboard, and keeps logs and sockets in a
temporary folder: see `ray_head`.
"""

import contextlib
import dataclasses
import importlib.metadata
import os
import socket
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from .._imports import first_line
from ..experiments.commands.launch import Engine
from ..runtime.run_directory import RunConfig
from .config import SERVING, SERVING_WORKERS

VERSION = "2.48"  # its dependencies fit with those of Launchpad and Reverb
# Of a node's process, as Ray counts them: their sum must fit. Actors and workers may share a core.
CPUS: Mapping[str, float] = types.MappingProxyType(
    {
        "learner": 0.5,
        "actor": 0.1,
        "replay": 0.1,
        "parameter_server": 0.5,
        "worker": 0.1,
        "counter": 0.1,
        "evaluator": 0.1,
    }
)
Result = TypeVar("Result")
_ANSWER_SECONDS = 5.0
_MAX_PREFIX = 30  # letters of the temporary folder: the names of its sockets may have 107


class RaySession(NamedTuple):
    """A connection to Ray.

    Attributes:
      host: name or address of this machine, under which other nodes reach it.
      node_id: Ray's id of this machine.
      gpus: for the learner, 0 or 1.
    """

    host: str
    node_id: str
    gpus: int


class Connection:
    """Whether Ray's processes on this machine are still there.

    Attributes:
      lost: how every node ended that had not ended before Ray did; "" as long as it runs.
    """

    def __init__(self) -> None:
        self.lost = ""

    def ask(self, call: Callable[[], Result]) -> Result | None:
        """What a function returns that calls Ray.

        None, and `lost` is set, where it fails because Ray has ended; Ray is not asked again then.
        """
        if self.lost:
            return None
        try:
            return call()
        except OSError as error:
            if error.errno is not None:  # of a file; Ray's own have no number
                raise
            self.lost = f"was lost, since Ray has ended on this machine ({error})"
            return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Where the nodes of a program run.

    Attributes:
      engine: launchpad or ray.
      ray_address: HOST:PORT of a running cluster's head; None starts Ray on this machine.
      max_failures: deaths of a process in a row, less than a minute apart, that Ray forgives.
    """

    engine: Engine = "launchpad"
    ray_address: str | None = None
    max_failures: int = 5

    def check(self, run: RunConfig, *, mode: str, listen_everywhere: bool) -> None:
        """Refuses what could not run; the other arguments are those of `retrax.launch`.

        Raises:
          ModuleNotFoundError: Ray is not installed.
          ValueError: one sentence about what is wrong.
        """
        if self.engine != "ray":
            if self.ray_address is not None:
                raise ValueError("--ray-address needs --engine ray.")
            return
        if mode != "local_mp":
            raise ValueError(f"--engine ray runs processes: leave --launch {mode} out.")
        if self.max_failures < 0:
            raise ValueError(f"--max-failures must be at least 0, got {self.max_failures}.")
        _check_installed()
        if self.ray_address is None:
            check_cpus(run, _cpus(), "this machine has")
        elif not listen_everywhere:
            raise ValueError(
                "--ray-address needs --listen-everywhere: the nodes connect over the network, and "
                "whoever can connect can execute code."
            )
        else:
            _own_address(self.ray_address)


def _check_installed() -> None:
    try:
        found = importlib.metadata.version("ray")
    except importlib.metadata.PackageNotFoundError:
        raise ModuleNotFoundError(
            "--engine ray needs Ray: pip install -r requirements.txt in a clone, elsewhere pip "
            "install 'retrax[distributed,cluster]'."
        ) from None
    if not found.startswith(f"{VERSION}."):
        raise ValueError(
            f"--engine ray needs Ray {VERSION}, which fits with Launchpad and Reverb, but {found} "
            f"is installed: pip install 'ray=={VERSION}.*'"
        )


@contextlib.contextmanager
def ray_session(address: str | None, run: RunConfig) -> Iterator[RaySession]:
    """Joins a cluster, or starts Ray on this machine and ends it at the end of the block.

    Args:
      address: as `EngineOptions.ray_address`.
      run: of the program.

    Raises:
      ValueError: Ray does not start, this machine is not part of the cluster, or the cluster has
        too few CPUs.
    """
    with _head() if address is None else contextlib.nullcontext(address) as joined:
        import ray

        own = _own_address(joined)
        try:
            ray.init(joined, log_to_driver=False, logging_level="ERROR", _node_ip_address=own)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ValueError(
                f"Ray at {joined} cannot be joined ({first_line(error)}): this machine must be "
                f"part of the cluster (ray start --address={joined})."
            ) from error
        # Each death would be told in 600 letters; the log has it in one line.
        ray._private.worker.print_to_stdstream = lambda *lines, **options: None
        try:
            resources = ray.cluster_resources()
            if address is not None:
                check_cpus(run, resources["CPU"], f"the cluster at {address} has")
            yield RaySession(
                own,
                ray.get_runtime_context().get_node_id(),
                gpus=int(resources.get("GPU", 0) >= 1),
            )
        finally:
            ray.shutdown()


def check_cpus(run: RunConfig, available: float, where: str) -> None:
    """Refuses a program that Ray could not place.

    Raises:
      ValueError: names what is asked and what is there.
    """
    acting, serving = ("worker", SERVING_WORKERS) if run.workers.num_workers else ("actor", SERVING)
    others = sum(CPUS[label] for label in (*serving, "evaluator"))
    asked = others + run.num_actors * CPUS[acting]
    if asked > available + 1e-6:
        fitting = int((available - others) / CPUS[acting] + 1e-6)
        advice = f"at most {fitting} {acting}s fit" if fitting > 0 else f"no {acting} fits"
        raise ValueError(
            f"--engine ray asks for {asked:.1f} CPUs ({others:.1f}, and {CPUS[acting]} for each "
            f"of {run.num_actors} {acting}s), but {where} {available:g}: {advice}."
        )


def _cpus() -> int:
    return len(os.sched_getaffinity(0))


def _own_address(address: str) -> str:
    """The address of this machine in the network of Ray's head; ValueError if none answers."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"--ray-address must be HOST:PORT, got {address}.")
    if host in ("localhost", "127.0.0.1"):  # Ray would replace it by the address of an interface
        raise ValueError(f"--ray-address must be the one that ray start printed, got {address}.")
    try:
        with socket.create_connection((host, int(port)), _ANSWER_SECONDS) as connection:
            own: str = connection.getsockname()[0]
            return host if own.startswith("127.") else own
    except (OSError, OverflowError) as error:
        raise ValueError(f"No Ray answers at --ray-address {address} ({error}).") from None


@contextlib.contextmanager
def _head() -> Iterator[str]:
    """A `ray_head`; its address."""
    parent = tempfile.gettempdir()
    folder = tempfile.mkdtemp(
        prefix="retrax-ray-", dir=parent if len(parent) <= _MAX_PREFIX else "/tmp"
    )
    command = [sys.executable, "-m", f"{__package__}.ray_head", folder, str(_cpus())]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as head:
        assert head.stdout is not None
        address = head.stdout.readline().strip()
        if not address:
            raise ValueError("Ray does not start on this machine; its message is above.")
        yield address  # the end of the block closes the standard input
