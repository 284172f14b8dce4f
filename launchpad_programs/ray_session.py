"""Ray on this machine or a running cluster: checks, start, end.

Ray on this machine listens on loopback only, without a dashboard, and keeps logs and sockets in a
temporary folder: see `ray_head`.
"""

import contextlib
import importlib.metadata
import os
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterator, Mapping
from typing import NamedTuple

VERSION = "2.48"  # its dependencies fit with those of Launchpad and Reverb
# Of a node's process, as Ray counts them: their sum must fit. Actors may share a core.
CPUS: Mapping[str, float] = types.MappingProxyType(
    {"learner": 0.5, "actor": 0.1, "evaluator": 0.1, "replay": 0.1, "counter": 0.1}
)
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


def check_engine(engine: str, mode: str, num_actors: int, max_failures: int) -> None:
    """Refuses what Ray could not run; does nothing for another engine.

    Args:
      engine: launchpad or ray.
      mode: as of `retrax.launch`.
      num_actors: of the program.
      max_failures: of a process in a row.

    Raises:
      ModuleNotFoundError: Ray is not installed.
      ValueError: it is another version, there are too few CPUs, or an argument is wrong.
    """
    if engine != "ray":
        return
    if mode != "local_mp":
        raise ValueError(f"--engine ray runs processes: leave --launch {mode} out.")
    if max_failures < 0:
        raise ValueError(f"--max-failures must be at least 0, got {max_failures}.")
    _check_installed()
    check_cpus(num_actors, _cpus(), "this machine has")


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
def ray_session() -> Iterator[RaySession]:
    """Starts Ray on this machine, and ends it at the end of the block.

    Raises:
      RuntimeError: it does not start.
    """
    with _head() as address:
        import ray

        ray.init(address, log_to_driver=False, logging_level="ERROR")
        # Each death would be told in 600 letters; the log has it in one line.
        ray._private.worker.print_to_stdstream = lambda *lines, **options: None
        try:
            gpus = int(ray.cluster_resources().get("GPU", 0) >= 1)
            yield RaySession("localhost", ray.get_runtime_context().get_node_id(), gpus)
        finally:
            ray.shutdown()


def check_cpus(num_actors: int, available: float, where: str) -> None:
    """Refuses a program that Ray could not place.

    Raises:
      ValueError: names what is asked and what is there.
    """
    others = sum(share for label, share in CPUS.items() if label != "actor")
    asked = others + num_actors * CPUS["actor"]
    if asked > available + 1e-6:
        fitting = int((available - others) / CPUS["actor"] + 1e-6)
        advice = f"at most {fitting} actors fit" if fitting > 0 else "no actor fits"
        raise ValueError(
            f"--engine ray asks for {asked:.1f} CPUs ({others:.1f}, and {CPUS['actor']} for each "
            f"of {num_actors} actors), but {where} {available:g}: {advice}."
        )


def _cpus() -> int:
    return len(os.sched_getaffinity(0))


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
            raise RuntimeError("Ray does not start on this machine; its message is above.")
        yield address  # the end of the block closes the standard input
