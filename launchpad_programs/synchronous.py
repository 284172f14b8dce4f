"""A program in one thread: the same nodes, stepped in a seeded order, so the same every time.

Nothing travels: the actors write straight into the learner's store, and call its methods. That
makes it the program to set breakpoints in.
"""

import logging
import threading

import numpy as np

from ..experiments.config import derive_seed
from ..experiments.loggers import close_log, setup_log
from ..replay.paced import PacedStore
from .actor_node import ActorNode
from .config import ProgramConfig
from .live import View
from .parts import Parts, actor_node, evaluator_node, learner_node, make_counter
from .running import Outcome, newest_snapshot
from .supervisor import Ending, signals

_ORDER = 4  # what `derive_seed` is asked for
_EVALUATIONS = 10  # in a run, besides the one at its end


class SynchronousProgram:
    """All nodes of a program."""

    def __init__(self, config: ProgramConfig, stop: threading.Event):
        """Makes them.

        Args:
          config: what to run.
          stop: ends `run`.
        """
        parts = Parts(config)
        self._config, self._stop = config, stop
        self.replay = PacedStore(
            parts.spec,
            parts.agent.sequence,
            parts.replay,
            num_environments=config.run.num_envs,
            seed=config.run.seed,
        )
        self.counter = make_counter(config, stop=stop)
        self.learner = learner_node(parts, self.counter, self.replay, stop=stop, wait=0.0)
        self.actors: list[ActorNode] = [
            actor_node(
                parts,
                index,
                self.counter,
                self.learner.get,
                [self.replay.writer(e) for e in config.environments_of(index)],
                stop=stop,
                threaded=False,
            )
            for index in range(config.num_actors)
        ]
        self.evaluator = evaluator_node(parts, self.counter, self.learner.get, stop=stop)
        self._order = np.random.default_rng(derive_seed(config.run.seed, _ORDER))

    def start(self) -> None:
        """As the nodes start: the learner, then those that wait for it."""
        self.learner.start()
        for actor in self.actors:
            actor.start()
        self.evaluator.start()

    def advance(self) -> None:
        """A step of every actor, in an order that is drawn, and the updates that are due then."""
        for index in self._order.permutation(len(self.actors)):
            self.actors[index].step()
        self.learner.step()
        while self.replay.ready and not self._stop.is_set():
            self.learner.step()
        self.counter.step()

    def run(self, view: View, log: logging.Logger) -> bool:
        """Runs to the end; whether it was reached."""
        self.start()
        every = max(1, self._config.run.steps // _EVALUATIONS)
        status = self.counter.status()
        next_evaluation = (status["steps"] // every + 1) * every
        while status["phase"] != "finished" and not self._stop.is_set():
            self.advance()
            status = self.counter.status()
            if status["phase"] == "evaluating" or status["steps"] >= next_evaluation:
                self.evaluator.step()
                next_evaluation += every
            line = view.show(status, {})
            if line:
                log.info(line)
        return bool(status["phase"] == "finished")

    def close(self) -> None:
        """Saves a snapshot, and ends all nodes."""
        self.learner.close()
        self.counter.close()
        for actor in self.actors:
            actor.close()
        self.evaluator.close()


def run_synchronously(config: ProgramConfig, *, plain: bool) -> Outcome:
    """Runs the program in an existing run directory."""
    log = setup_log(config.directory)
    try:
        with signals() as stop, View(plain=plain) as view:
            program = SynchronousProgram(config, stop)
            try:
                finished = program.run(view, log)
            finally:
                program.close()
        ending = Ending(failed="", traceback="", complete=True)
        return Outcome(program.counter.status(), newest_snapshot(config), finished, ending)
    except Exception:
        log.exception("The run failed.")
        raise
    finally:
        close_log(log)
