"""The kinds of nodes, and the nodes of a program: everything that is particular to a kind."""

import os
import sys
from collections.abc import Mapping
from typing import NamedTuple

from ..basics.machine import shared_programs
from ..networks.torsos import is_image
from ..training.run_config import RunConfig
from .config import ProgramConfig


class NodeKind(NamedTuple):
    """What distinguishes the nodes LABEL/0, LABEL/1, ..."""

    label: str
    calls: tuple[str, ...] = ()  # labels of the nodes that it calls, where the program has them
    module: str = ""  # has their factory, see `node.make_node`; LABEL if empty
    holds_rows: bool = False  # the replay that actors write into and the learner draws from
    acts: bool = False  # takes the run's steps; may be on a host that does not see our files
    publishes: bool = False  # has the learner's state: updates, snapshots and publishes it
    saves: bool = False  # the program's end waits for it, since it may have much to save
    ends_last: bool = False  # the others need it to the end
    sees_accelerator: bool = False
    nice: int = 0  # where cores are few the learner comes first, and nobody waits for the evaluator
    cpus: float = 0.1  # as Ray counts them; their sum must fit. Acting nodes may share a core
    # Of metrics.csv: a column is the mean over the nodes of a value of their newest reports.
    columns: tuple[tuple[str, str], ...] = ()

    @property
    def is_called(self) -> bool:
        """Whether other nodes call it."""
        return any(self.label in kind.calls for kind in KINDS.values())


RESTARTS_COLUMN = "node_restarts"  # of metrics.csv
_REPLAY_COLUMNS = (("replay_rows", "replay_rows"), ("replay_sequences", "replay_sequences"))
_KINDS = (
    NodeKind("replay", holds_rows=True, ends_last=True),
    NodeKind("counter", ends_last=True),
    NodeKind(
        "learner",
        ("counter", "replay"),
        publishes=True,
        saves=True,
        sees_accelerator=True,
        cpus=0.5,
        columns=(("learner_idle_share", "idle_share"), *_REPLAY_COLUMNS),
    ),
    NodeKind(
        "actor",
        ("counter", "learner", "replay"),
        acts=True,
        nice=10,
        columns=(("parameter_staleness", "staleness"),),
    ),
    NodeKind(
        "parameter_server",
        ("counter",),
        module="learner",
        publishes=True,
        saves=True,
        cpus=0.5,
        columns=(("server_idle_share", "idle_share"),),
    ),
    NodeKind(
        "worker",
        ("counter", "parameter_server"),
        module="learner",
        acts=True,
        saves=True,
        columns=(("worker_waiting_share", "idle_share"), *_REPLAY_COLUMNS),
    ),
    NodeKind(
        "evaluator",
        ("counter", "learner", "parameter_server"),
        nice=19,
        columns=(("evaluator_return", "return"), ("evaluator_length", "length")),
    ),
)
KINDS: Mapping[str, NodeKind] = {kind.label: kind for kind in _KINDS}
_ACTORS_AND_LEARNER = ("replay", "counter", "learner", "actor", "evaluator")
_WORKERS = ("counter", "parameter_server", "worker", "evaluator")


def kinds_of(run: RunConfig) -> list[NodeKind]:
    """The kinds of a program's nodes."""
    labels = _WORKERS if run.workers.num_workers else _ACTORS_AND_LEARNER
    return [KINDS[label] for label in labels]


def kind_of(name: str) -> NodeKind:
    """The kind of a node, from its name."""
    return KINDS[name.partition("/")[0]]


def acting_kind(run: RunConfig) -> NodeKind:
    """The kind of those nodes of a program that take its steps."""
    return next(kind for kind in kinds_of(run) if kind.acts)


def publisher_of(run: RunConfig) -> str:
    """The name of the node that publishes parameters."""
    return next(f"{kind.label}/0" for kind in kinds_of(run) if kind.publishes)


def nodes_of(config: ProgramConfig) -> list[str]:
    """The names of a program's nodes, LABEL/INDEX, those first that others call."""
    return [
        f"{kind.label}/{index}"
        for kind in kinds_of(config.run)
        for index in range(config.run.num_actors if kind.acts else 1)
    ]


def cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def program_columns(run: RunConfig) -> list[str]:
    """Columns of metrics.csv that only programs have."""
    actors = [
        f"{acting_kind(run).label}_{index}_episode_{name}"
        for index in range(run.num_actors)
        for name in ("return", *run.entry.episode_metrics)
    ]
    modes = [f"evaluator_return_{name}" for name in run.entry.evaluation_modes]
    return [*actors, *modes, *newest_values(run), RESTARTS_COLUMN]


def newest_values(run: RunConfig) -> dict[str, tuple[str, str]]:
    """From each column in `NodeKind.columns` to the label of the nodes, and the value."""
    kinds = kinds_of(run)
    return {column: (kind.label, value) for kind in kinds for column, value in kind.columns}


def process_env(kind: NodeKind, config: ProgramConfig) -> dict[str, str]:
    """Environment variables of a node's process.

    Nodes compute on one core. One that may use an accelerator has the cores that acting nodes
    leave, at least half of all: threads that wait for another node's core cost both time. A learner
    of images has all, as convolutions take most of the time. `NPROC` overrides that.
    """
    shared = {"PYTHONUNBUFFERED": "1", "TF_CPP_MIN_LOG_LEVEL": "1", **shared_programs()}
    if kind.sees_accelerator:
        left = max(1, cpus() // 2, cpus() - config.run.num_actors)
        cores = cpus() if is_image(config.spec.observations) else left
        return {**shared, "NPROC": os.environ.get("NPROC", str(cores))}
    return {**shared, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", "NPROC": "1"}
