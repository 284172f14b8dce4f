"""The kinds of nodes, and the nodes of a program: everything that is particular to a kind.

Nothing is made here: a node's factory is imported in its own process.
"""

import dataclasses
import importlib
import logging
import os
import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ..basics.subprocess_probe import shared_programs
from ..networks.torsos import is_image
from ..training.run_config import RunConfig
from ..training.stop import StopEvent
from .config import ProgramConfig
from .node import Node
from .peers import Peers

_log = logging.getLogger("retrax")


class NodeKind(NamedTuple):
    """What distinguishes nodes.

    Attributes:
      label: its name; the nodes of the kind are named LABEL/0, LABEL/1, ... The module LABEL has
        their factory make_LABEL, `(config, index, peers, *, stop) -> Node`.
      calls: labels of the nodes that it calls, where the program has them.
      holds_rows: whether it is the replay that actors write into and the learner draws from.
      acts: whether it takes the steps of the run, as the counter grants them. It may run on another
        host than the launcher's, whose files it then does not see.
      publishes: whether it has the learner's state: it updates and snapshots it, and publishes
        parameters.
      saves: whether the program's end waits for it, since it may have much to save.
      ends_last: whether the others need it to the end.
      sees_accelerator: whether it may use one.
      nice: added to the launcher's niceness. The learner comes first where cores are few; nobody
        waits for the evaluator.
      cpus: as Ray counts them; their sum must fit. Actors and workers may share a core.
      columns: of metrics.csv, with the values of the nodes' newest reports of which they are means.
      restores: what the log says of a node that is restarted: "{steps}" are those of the newest
        snapshot; "" for small states.
      begins: what it says where there is no snapshot yet.
    """

    label: str
    calls: tuple[str, ...] = ()
    holds_rows: bool = False
    acts: bool = False
    publishes: bool = False
    saves: bool = False
    ends_last: bool = False
    sees_accelerator: bool = False
    nice: int = 0
    cpus: float = 0.1
    columns: tuple[tuple[str, str], ...] = ()
    restores: str = ""
    begins: str = "begins again"

    @property
    def is_called(self) -> bool:
        """Whether other nodes call it."""
        return any(self.label in kind.calls for kind in KINDS.values())


RESTARTS_COLUMN = "node_restarts"  # of metrics.csv
_REPLAY_COLUMNS = (("replay_rows", "replay_rows"), ("replay_sequences", "replay_sequences"))
_KINDS = (
    NodeKind(
        "replay",
        holds_rows=True,
        ends_last=True,
        restores="its newest state, which was saved with a snapshot",
        begins="is empty, and refills",
    ),
    NodeKind("counter", ends_last=True),
    NodeKind(
        "learner",
        ("counter", "replay"),
        publishes=True,
        saves=True,
        sees_accelerator=True,
        cpus=0.5,
        columns=(("learner_idle_share", "idle_share"), *_REPLAY_COLUMNS),
        restores="the snapshot at {steps} steps",
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
        publishes=True,
        saves=True,
        cpus=0.5,
        columns=(("server_idle_share", "idle_share"),),
        restores="the snapshot at {steps} steps",
    ),
    NodeKind(
        "worker",
        ("counter", "parameter_server"),
        acts=True,
        saves=True,
        columns=(("worker_waiting_share", "idle_share"), *_REPLAY_COLUMNS),
        restores="its own newest snapshot on its host, or else begins again",
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


@dataclasses.dataclass(frozen=True)
class NodeSpec:
    """A node of a program.

    Attributes:
      kind: its kind.
      index: 0, 1, ... among the nodes of the kind.
      peers: names of the nodes that it calls.
    """

    kind: NodeKind
    index: int
    peers: tuple[str, ...]

    @property
    def name(self) -> str:
        """LABEL/INDEX."""
        return f"{self.kind.label}/{self.index}"


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


def nodes_of(config: ProgramConfig) -> list[NodeSpec]:
    """The nodes of a program, those first that others call."""
    kinds = kinds_of(config.run)
    labels = [kind.label for kind in kinds]
    return [
        NodeSpec(kind, index, tuple(f"{label}/0" for label in kind.calls if label in labels))
        for kind in kinds
        for index in range(config.run.num_actors if kind.acts else 1)
    ]


def make_node(spec: NodeSpec, config: ProgramConfig, peers: Peers, *, stop: StopEvent) -> Node:
    """Makes a node, in its own process or thread."""
    label = spec.kind.label
    module = importlib.import_module(f".{label}", __package__)
    factory: Callable[..., Node] = getattr(module, f"make_{label}")
    return factory(config, spec.index, peers, stop=stop)


def log_restart(kind: NodeKind, steps: int | None) -> None:
    """Logs what a restarted node continues with, unless its state is small.

    `steps` are those of the newest snapshot. If there is none, this is a warning.
    """
    node = kind.label.replace("_", " ")
    sentence = f"The {node} restores {kind.restores.format(steps=steps)}."
    if steps is None and not kind.acts:  # a worker has snapshots of its own
        sentence = f"There is no snapshot yet: the {node} {kind.begins}."
    if kind.restores:
        _log.log(logging.WARNING if steps is None else logging.INFO, sentence)


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
    """Columns that are means over nodes of values of their newest reports.

    Returns:
      From column to the label of the nodes, and the value.
    """
    kinds = kinds_of(run)
    return {column: (kind.label, value) for kind in kinds for column, value in kind.columns}


def process_env(kind: NodeKind, config: ProgramConfig) -> dict[str, str]:
    """Environment variables of a node's process.

    Without an accelerator a node computes on one core, as Reactor's and ACER's workers do; one that
    may use an accelerator on those that the acting nodes leave, at least on half of all: threads
    that wait for a core which another node has cost both of them time. A learner of images has all
    cores, since its convolutions take most of the time. `NPROC` overrides that.
    """
    shared = {
        "PYTHONUNBUFFERED": "1",
        "TF_CPP_MIN_LOG_LEVEL": "1",
        **shared_programs(config.directory),
    }
    if kind.sees_accelerator:
        left = max(1, cpus() // 2, cpus() - config.run.num_actors)
        cores = cpus() if is_image(config.spec.observations) and not kind.acts else left
        return {**shared, "NPROC": os.environ.get("NPROC", str(cores))}
    return {**shared, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", "NPROC": "1"}
