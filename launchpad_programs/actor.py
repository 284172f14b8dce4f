"""The actor's node: a `training.Actor` that takes the steps that the counter grants."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from ..agents.base import Agent
from ..replay.interface import Stopped, Writer
from ..training.learner import ParameterClient, packing_of
from ..training.loop import Actor
from ..training.snapshots import SnapshotInterval, pack_actor, unpack_actor
from .config import ProgramConfig
from .kinds import publisher_of
from .node import POLL_SECONDS, CounterClient, Node, Peers


class ActorNode(Node):
    """An actor that is stepped as often as the counter grants."""

    def __init__(
        self,
        config: ProgramConfig,
        index: int,
        actor: Actor,
        writer: Writer,
        parameters: ParameterClient,
        peers: Peers,
        *,
        loop: Callable[[Callable[[], None]], None] | None = None,
    ):
        """Restores the actor's state where the run continues.

        A `loop` steps it without end, after calls of what it is given, which raises `Stopped`.
        """
        super().__init__(peers)
        self._actor, self._writer, self._parameters, self._loop = actor, writer, parameters, loop
        self._index, self._counter = index, CounterClient(config, f"actor/{index}", peers)
        if config.continues and (state := self._counter.peer.call("kept", index)) is not None:
            actor.state = unpack_actor(state, actor.state)
        every = max(1, config.run.schedule[2] // config.run.num_actors)
        options: Any = {"seconds": config.run.snapshot_seconds, "clock": self._clock}
        self._interval = SnapshotInterval(0, every=every, **options)

    def start(self) -> None:
        """Compiles, and waits for the learner's first parameters."""
        self._counter.report(state="compiling")
        self._actor.compile()
        self._counter.report(state="waiting for the learner")
        self._actor.start()

    def step(self) -> bool:
        """One time step in each environment, if it is granted; whether it was. A loop's are all."""
        if self._loop is not None:
            self._loop(self._take)
        if not self._counter.is_granted(self._values):
            if self._counter.phase == "evaluating":  # no step follows, which would send the rest
                self._writer.close()
            return False
        self._count(self._actor.step())
        return True

    def close(self) -> None:
        """Saves the actor's state; closes the actor and its parameters."""
        with contextlib.suppress(Stopped):
            self._save()
        self._parameters.close()
        self._actor.close()

    def _take(self) -> None:
        """Waits until a step is granted, and counts it."""
        while self._stop.is_set() or not self._counter.is_granted(self._values):
            if self._stop.wait(POLL_SECONDS):
                raise Stopped("Stopped while waiting for steps.")
        self._count(1)

    def _values(self) -> dict[str, Any]:
        staleness, episodes = self._parameters.staleness, self._actor.take_episodes()
        return {"state": "acting", "staleness": staleness, "episodes": episodes}

    def _count(self, taken: int) -> None:
        self._counter.count(taken)
        if self._interval.is_due(self._counter.total):
            self._save()

    def _save(self) -> None:
        self._interval.saved(self._counter.total, took=0.0)
        self._counter.peer.call("keep", self._index, pack_actor(self._actor.state))


def parameters_of(
    config: ProgramConfig, agent: Agent, peers: Peers, **options: Any
) -> ParameterClient:
    """The parameters that the learner or the parameter server publishes."""
    get = functools.partial(peers.peer(publisher_of(config.run)).call, "get")
    options |= {"stop": peers.stop.is_set, "clock": peers.clock}
    return ParameterClient(get, packing_of(agent), **options)


def make_actor(config: ProgramConfig, index: int, peers: Peers) -> ActorNode:
    """Actor number `index`."""
    run, environment = config.run, config.make_actors_environment(index)
    agent = config.make_agent(environment.spec)
    parameters = parameters_of(config, agent, peers, update_period=run.actor_update_period or 1)
    writer = peers.writer(environment.spec, agent.sequence, run.environments_of(index))
    actor = Actor.of_run(run, agent, environment, index, writer, parameters)
    loop = None
    if (options := config.acme_options()) is not None:
        from .acme_adapters import run_loop  # takes a second

        loop = functools.partial(run_loop, options, environment, actor, index)
    return ActorNode(config, index, actor, writer, parameters, peers, loop=loop)
