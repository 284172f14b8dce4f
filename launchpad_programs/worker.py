"""Makes the workers of a program."""

import functools

from ..runtime.seeds import Purpose, derive_seed
from ..runtime.snapshots import Snapshots
from ..runtime.stop import StopEvent
from ..runtime.workers.assembly import WorkerParts
from ..runtime.workers.node import WorkerNode
from .config import ProgramConfig
from .counter_client import CounterClient
from .kinds import publisher_of
from .peers import Peers


def make_worker(config: ProgramConfig, index: int, peers: Peers, *, stop: StopEvent) -> WorkerNode:
    """Worker number `index`, restored if it has a snapshot."""
    run, mine = config.run, config.run.environments_of(index)
    seed = derive_seed(run.seed, Purpose.ACTOR, index, *config.part)
    environment = run.make_environment(seed=seed, num_envs=len(mine))
    parts = WorkerParts(run, config.make_agent(environment.spec), environment.spec)
    server = peers.peer(publisher_of(run))
    worker, actor = parts.worker(
        index,
        environment,
        apply=functools.partial(server.call, "apply"),
        get=functools.partial(server.call, "fetch"),
        restored=functools.partial(server.call, "restored"),
        process=config.restarts,
    )
    snapshots = Snapshots(config.directory / "workers" / str(index), keep=run.keep_snapshots)
    if not config.continues:
        snapshots.remove_newer(-1)  # of a program that ended before its first snapshot
    return WorkerNode(
        worker,
        actor,
        CounterClient(peers.peer("counter/0"), f"worker/{index}", config.restarts),
        snapshots,
        save_every=max(1, config.schedule[2] // run.num_actors),
        save_seconds=run.snapshot_seconds,
        decoupled=run.workers.decoupled,
        stop=stop,
    )
