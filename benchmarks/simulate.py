"""Programs under simulated faults: their own nodes, on a virtual clock, in a seeded order.

    python benchmarks/simulate.py [--seeds 1000] [--seed 0] [--schedule FILE]

Runs the seeds from --seed on, or one schedule from a file. A seed draws a program (topology,
selector, pace, capacity, lead, staleness, engine that restarts nodes or does not), three to six
faults, and the order in which threads run. A program that was stopped, or failed, is resumed
without faults, and must finish. The first seed that shows a violation is printed, with the fewest
of its faults that show it, as text for --schedule; the exit status is then 1.

Faults: the next call of a node is lost, its answer is lost, it is made twice or late; a node is
slow or killed, or all actors are (their host is lost); its next snapshot finds the disk full, or is
cut by a kill; a signal stops the program.
"""

import argparse
import ast
import contextlib
import dataclasses
import functools
import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import types
from typing import NamedTuple
from unittest import mock

import jax
import numpy as np
from dm_env import StepType, specs

from retrax.agents.base import Agent, Decision, Update
from retrax.agents.entry import AgentEntry
from retrax.basics import files
from retrax.datatypes import EnvironmentSpec, ReplayConfig, SequenceSpec, TimeStep
from retrax.launchpad_programs.config import RESTARTS, STATUS, ProgramConfig, read_json
from retrax.launchpad_programs.engines import simulated
from retrax.launchpad_programs.engines.simulated import CALLS, Fault, Hanging, Scheduler
from retrax.launchpad_programs.kinds import kind_of, nodes_of
from retrax.launchpad_programs.launcher import supervise
from retrax.training import snapshots
from retrax.training.run_config import NO_WORKERS, RunConfig, WorkerOptions
from retrax.training.snapshots import Snapshots, newest_snapshot

VERSION = 1  # of schedules as text
WRITES = ("full", "cut")  # faults of the next snapshot that a node writes
FAULTS = ("kill", "host", "slow", "stop", *CALLS, *WRITES)
STEPS, ACTORS, EPISODE = 40, 2, 7
UPDATES = 255  # of a learner state, which knows their gradients
FAULT_SECONDS = 6.0  # within which faults happen
STEP_SECONDS, UPDATE_SECONDS, WRITE_SECONDS = 0.2, 0.05, 0.1  # at most
STOP_SECONDS = 120.0  # within which a program ends after a signal
MAX_RESTARTS = 20
MEMORY = "/dev/shm" if pathlib.Path("/dev/shm").is_dir() else None
SPEC = EnvironmentSpec(specs.Array((2,), np.float32), specs.DiscreteArray(2))


LITERALS = functools.cache(ast.literal_eval)  # headers of arrays: there are few


class Violation(Exception):  # noqa: N818
    """What must hold did not."""


class Schedule(NamedTuple):
    """What decides a simulation: the seed, and faults in the order of their times."""

    seed: int
    faults: tuple = ()

    @classmethod
    def drawn(cls, seed):
        """Of a seed, with three to six faults."""
        random = np.random.default_rng([seed, 1]).random
        nodes = nodes_of(make_config(seed, pathlib.Path()))

        def one(values):
            return values[int(random() * len(values))]

        times = [FAULT_SECONDS * float(random()) for _ in range(3 + int(4 * random()))]
        return cls(seed, tuple(Fault(at, one(FAULTS), one(nodes)) for at in sorted(times)))

    @classmethod
    def written(cls, seed, faults):
        """Of faults as words, "1.5 kill actor/0, 2 stop actor/0"."""
        words = [fault.split() for fault in faults.split(", ")]
        return cls(seed, tuple(Fault(float(at), *rest) for at, *rest in words))

    def text(self):
        """JSON for `parse`."""
        return json.dumps({"version": VERSION, "seed": self.seed, "faults": self.faults})

    @classmethod
    def parse(cls, text):
        """The opposite of `text`; ValueError if it is no schedule of this version."""
        found = json.loads(text)
        if not isinstance(found, dict) or found.get("version") != VERSION:
            raise ValueError(f"a schedule must have version {VERSION}, got {text.strip():.80}")
        if type(found["seed"]) is not int or found["seed"] < 0:
            raise ValueError(f"a seed must be an integer of at least 0, got {found['seed']!r}")
        if wrong := [x for x in found["faults"] if not is_fault(x)]:
            raise ValueError(f"a fault must be [seconds, kind, node], got {wrong[0]!r}")
        faults = tuple(Fault(*each) for each in found["faults"])
        if unknown := [fault.kind for fault in faults if fault.kind not in FAULTS]:
            raise ValueError(f"a fault must be one of {', '.join(FAULTS)}, got {unknown[0]!r}")
        nodes = nodes_of(make_config(found["seed"], pathlib.Path()))
        if unknown := [fault.node for fault in faults if fault.node not in nodes]:
            raise ValueError(f"a node must be one of {', '.join(nodes)}, got {unknown[0]!r}")
        return cls(found["seed"], faults)


def is_fault(found):
    """Whether JSON values have the types of a `Fault`."""
    types_of = [type(x) for x in found] if isinstance(found, list) else []
    return types_of in ([int, str, str], [float, str, str])


class Rows:
    """One environment, whose observations number the lives and their rows: no two are alike."""

    num_envs, spec = 1, SPEC

    def __init__(self, program):
        self.program, self.process, self.row = program, program.scheduler.current.process, -1

    def reset(self):
        self.row += 1
        at, one = self.row % EPISODE, np.ones(1, np.float32)
        kind = StepType.FIRST if not at else StepType.LAST if at == EPISODE - 1 else StepType.MID
        seen = np.array([[self.process.number, self.row]], np.float32)
        return TimeStep(np.array([kind], np.int32), one, one, seen)

    def step(self, actions):
        scheduler = self.program.scheduler
        scheduler.wait(None, STEP_SECONDS * scheduler.draw() * self.process.slow)
        self.program.check_parameters(self.process)
        if kind_of(self.process.name).acts and self.row % EPISODE < EPISODE - 1:
            self.program.taken += 1
        return self.reset()

    def close(self):
        pass


@dataclasses.dataclass(frozen=True)
class Config:
    replay: ReplayConfig


def identity(seen):
    """A number for rows, from their observations `[..., 2]`."""
    return 1000.0 * np.asarray(seen[..., 0], np.float64) + seen[..., 1] + 1


def make_agent(program):
    """A state has the number of its updates, and their gradients: numbers from 1, by their nodes.

    The priority of a sequence is the identity of its first row. Functions that JAX would map over
    environments are of one environment's batch.
    """

    def gradients(state, sample):
        process, rows, gradient = program.scheduler.current.process, sample.rows, np.zeros(3)
        program.scheduler.wait(None, UPDATE_SECONDS * program.scheduler.draw() * process.slow)
        if sample.weights.any():  # not zeros, which show shapes alone
            program.check_contiguous(rows.observation, rows.is_first, rows.is_last)
            program.computed += 1
            program.computed_by[program.computed] = process
            node = int(process.name.partition("/")[2])
            gradient = np.array([program.computed, node, state[0]])
        priorities = identity(rows.observation[:, 0])
        return gradient.astype(np.int32), Update(priorities, {"loss": np.float32(0)})

    def apply(state, gradient):
        number, node, version = map(int, gradient)
        updates, state = int(state[0]), state.copy()
        if number:
            program.check_gradient(state[1 : 1 + updates], number, node, updates - version)
            state[1 + updates] = ACTORS * number + node
        state[0] += 1
        return state

    def act(params, state, timestep):
        return Decision(np.zeros(1, np.int32), {}, state)

    return Agent(
        init=lambda key: np.zeros(1 + UPDATES, np.int32),
        acting_params=lambda state: state[0],
        begin=lambda key, actor_id, num_actors: np.zeros(1, np.int32),
        explore=act,
        exploit=act,
        gradients=gradients,
        apply=apply,
        sequence=SequenceSpec(length=3),
    )


class Run(RunConfig):
    """Of the agent and the environments above, which `program` is given to."""

    def make_environment(self, **options):
        return Rows(vars(self)["program"])

    def prng_keys(self):
        return np.zeros(2, np.uint32), np.zeros((self.num_envs, 2), np.uint32)


def make_config(seed, directory):
    """The program of a seed."""
    random = np.random.default_rng([seed, 2]).random

    def one(*values):
        return values[int(random() * len(values))]

    pace = one("steady", "steady", "rounds")
    replay = ReplayConfig(
        selector=one("uniform", "proportional", "contextual"),
        capacity=one(24, 400),
        min_rows=one(6, 12),
        batch_size=2,
        acting_steps_per_update=one(1.0, 2.5),
        pace=pace,
        on_policy=pace == "rounds" and one(False, True),
        replay_ratio=1.0,
    )
    workers, period = NO_WORKERS, one(1, 5)
    if seed % 3 == 1:
        workers = WorkerOptions(
            num_workers=ACTORS,
            max_staleness=one(None, 0, 1),
            gradients_per_fetch=one(1, 3),
            decoupled=one(False, True),
        )
    run = Run(
        agent="counts",
        environment="rows",
        preset="default",
        steps=STEPS,
        num_envs=ACTORS,
        num_actors=ACTORS,
        actor_update_period=None if workers.num_workers else period,
        snapshot_every=one(10, 25),
        log_every=one(5, 20),
        evaluation_episodes=1,
        agent_config=Config(replay),
        workers=workers,
    )
    return ProgramConfig(run=run, directory=directory, max_lead=one(0, 8, 64))


class Program(simulated.Program):
    """Checks what must hold at any time, and at the end."""

    def __init__(self, scheduler, faults, **options):
        self.nodes, self.taken, self.violations = [], 0, []
        self.computed = 1000 * scheduler.lives  # gradients; a resumed program continues above
        self.computed_by = {}  # by their numbers
        self.versions = {}  # from lives of actors: parameters, and the newest life of a learner
        self.is_late = any(fault.kind == "delay" for fault in faults)
        super().__init__(scheduler, faults, **options)

    def check(self, holds, sentence):
        if not holds:
            self.violations.append(Violation(f"{sentence}, at {self.scheduler.now:.3f} s"))
            raise self.violations[0]

    @property
    def learner(self):
        return next(p for name, p in self.processes.items() if kind_of(name).publishes)

    def made(self, process, node):
        self.nodes.append(node)
        if kind_of(process.name).holds_rows:
            self.check_adding(node.local)
        if self.config.has_workers and kind_of(process.name).publishes:
            self.check_applying(node)
        elif self.config.has_workers and kind_of(process.name).acts:
            self.check_fetching(node.worker)
        super().made(process, node)

    @contextlib.contextmanager
    def sealed(self, path):
        """As `files.sealed`, on a disk that may be full, by a process that may be killed."""
        process = self.scheduler.current.process
        fault = self.take(process.name, WRITES)
        self.scheduler.note(f"writes {path.name} {fault}")
        with files.sealed(path) as file:
            yield file
            if fault == "full":
                raise OSError(28, "No space left on device")
            if fault == "cut":
                self.end(process, "was killed")
            self.scheduler.wait(None, WRITE_SECONDS * self.scheduler.draw())

    def check_parameters(self, process):
        """An actor's parameters get older only if the learner was restarted."""
        node = process.node
        client = node.worker.updates if hasattr(node, "worker") else node._parameters
        version, life = self.versions.get(process.number, (-1, process.number))
        learner = self.learner.number
        older = client.version < version
        self.check(not older or learner > life, f"{process.name} has older parameters")
        self.versions[process.number] = client.version, learner if older else life

    def check_gradient(self, applied, number, node, staleness):
        """Gradients are applied once, in the order of their worker, and none that is too old."""
        newest = max((int(x) // ACTORS for x in applied if x % ACTORS == node), default=0)
        self.check(number > newest, f"gradient {number} is applied after {newest}")
        bound = self.config.run.workers.max_staleness
        self.check(0 <= staleness <= (UPDATES if bound is None else bound), "it was too old")

    def check_contiguous(self, seen, first, last):
        """Rows `[B, T]` follow each other, unless the episode before is cut or ends."""
        (life, row), first, last = np.moveaxis(seen, -1, 0), first[:, 1:], last[:, :-1]
        follows = (life[:, 1:] == life[:, :-1]) & (row[:, 1:] == row[:, :-1] + 1)
        self.check((follows | (first & last)).all(), "rows of an episode are not contiguous")

    def check_replay(self, local, *, restarted):
        """Each row is stored once, and none is missing unless the replay was restarted."""
        state = local.state()
        for number, head in enumerate(state["heads"]):
            rows = {name: leaf[number] for name, leaf in state["rows"].items()}
            size = min(head, local.capacity // local.num_envs)
            order = np.arange(head - size, head) % (local.capacity // local.num_envs)
            seen, first, last = (rows[x][order] for x in ("observation", "is_first", "is_last"))
            self.check_contiguous(seen[None], first[None], last[None])
            self.check((np.diff(identity(seen)) > 0).all(), "rows are stored twice, or in disorder")
            same = np.diff(seen[:, 0]) == 0
            gaps = same & (np.diff(seen[:, 1]) != 1)
            self.check(restarted or not gaps.any(), "rows are missing")
        if "known" in state["selector"]:
            self.check_priorities(local, state)

    def check_priorities(self, local, state):
        """What was set for a sequence is the identity of its first row."""
        slots = np.flatnonzero(state["selector"]["known"] & state["selector"]["present"])
        first = local.read(slots)[0].observation[:, 0]
        found = state["selector"]["priorities"][slots]
        self.check((found == identity(first)).all(), "a sequence has another one's priority")

    def check_adding(self, local):
        """Acting does not lead too far, rounds do not mix, priorities are of their sequences."""
        add, config = local.add_packed, self.config
        replay, bound = config.run.replay, config.max_lead + ACTORS + 2

        def checked(packed, environments):
            newest, rounds = local.schedule.calls[0], local.schedule.rounds
            add(packed, environments)
            self.check(not newest or local.schedule.rounds == rounds, "rounds are mixed")
            if replay.pace == "steady" and not (self.restarts or config.continues):
                lead = local.schedule.calls[1] * replay.acting_steps_per_update
                self.check(lead <= bound, f"acting leads by {lead} rows")

        def set_and_checked(slots, priorities, kept):
            first = local.read(slots[kept])[0].observation[:, 0]
            own = (priorities[kept] == identity(first)).all()
            self.check(own, "a priority is set for a sequence that was overwritten")
            set_priorities(slots, priorities, kept)

        set_priorities = local._selector.set_priorities
        local.add_packed, local._selector.set_priorities = checked, set_and_checked

    def check_applying(self, node):
        """A gradient that a worker counts as applied is in the state."""
        apply, server, seen = node.apply, node.learner, set()

        def checked(worker, call, version, blob):
            receipt = apply(worker, call, version, blob)
            number, node, _ = map(int, server._gradients.unpack(blob))
            is_known = ACTORS * number + node in server.state[1:]
            counts = receipt.applied and not self.computed_by[number].how
            holds = is_known or not counts or number in seen
            self.check(holds, f"gradient {number} was not applied")
            seen.add(number)
            return receipt

        node.apply = checked

    def check_fetching(self, worker):
        """A worker whose server has lost updates makes its share of them again."""
        updates, replay, newest = worker.updates, worker.replay, worker.updates.newest

        def checked(state):
            version, made = updates.version, replay.schedule.updates
            state = newest(state)
            if updates.version < version and (server := self.learner.node) is not None:
                lost, again = version - server.learner.restored(), made - replay.schedule.updates
                share = min(made, lost / ACTORS)
                self.check(again >= share, f"{again} of {lost} lost updates are due again")
            return state

        updates.newest = checked

    def check_end(self, failure):
        """What must hold when the program has ended; whether it is finished."""
        config, stopped = self.config, self.stop.is_set()
        full = [each for each in self.errors if "No space left" in each]
        self.check(self.errors == full, f"nodes failed: {'; '.join(self.errors)}")
        late = self.scheduler.now - self.stopped_at
        self.check(not stopped or late < STOP_SECONDS, f"it ended {late:.0f} s after the signal")
        status = read_json(config.directory / STATUS)
        done = status.get("phase") == "finished"
        self.check(done or failure or stopped, "it ended without a reason")
        killed = (done or stopped) and "was killed" in failure  # nothing is restarted any more
        may_fail = full or killed or not self._max_restarts
        self.check(not failure or may_fail, f"it failed: {failure}")
        is_up = getattr(self.learner.node, "_saved_updates", -1) >= 0  # not after a late kill
        if done:
            steps = status["steps"]
            self.check(steps == STEPS, f"it finished at {steps} steps")
            newest = newest_snapshot(config.directory)
            self.check(newest == STEPS or failure or not is_up, f"newest snapshot: {newest} steps")
            left = steps - (config.resumed_at or 0)
            self.check(self.taken >= left, f"only {self.taken} of {left} steps were taken")
            if not self.restarts and not stopped:
                self.check(self.taken == left, f"{self.taken} steps were taken, instead of {left}")
        ended = self.processes["counter/0"].how == self.learner.how == "done"
        if not failure and not config.has_workers and is_up and ended:
            reported, made = status["updates"], self.learner.node.learner.updates
            self.check(reported == made, f"{made} updates were made, and {reported} reported")
        replay = config.run.replay
        for name, process in self.processes.items():
            if kind_of(name).holds_rows and process.node is not None:
                restarted = bool(self.restarts.get(name)) or config.continues
                self.check_replay(process.node.local, restarted=restarted)
                if process.how == "done" and done and is_up and replay.pace == "steady":
                    self.check_updates(process.node)
            elif config.has_workers and kind_of(name).acts and process.node is not None:
                restarted = bool(self.restarts.get(name)) or config.continues
                self.check_replay(process.node.worker.replay, restarted=restarted)
                saved = Snapshots(config.directory / "workers" / name[-1]).steps()[-1:]
                steps = process.node.worker.replay.status().steps
                is_saved = process.how != "done" or not steps or saved == [steps]
                self.check(is_saved, f"{name} ended at {steps} steps and has saved {saved}")
                if done and process.how == self.learner.how == "done" and not self.is_late:
                    worker, made = process.node.worker, self.learner.node.learner.updates
                    seen, due = worker.updates.version, sum(worker.replay.schedule.calls)
                    self.check(seen <= made, f"{name} has seen update {seen} of {made} at the end")
                    self.check(not due, f"{name} has {due} calls of updates due at the end")
        if config.has_workers and done and not (self.restarts or config.continues):
            self.check_workers()
        self.check_snapshots()
        self.check_table()
        return done and not failure

    def check_workers(self):
        """Every worker computed the gradients that were due; the server applied or dropped them."""
        server, acting = self.learner, [p for n, p in self.processes.items() if kind_of(n).acts]
        if any(process.how != "done" for process in (server, *acting)):
            return
        updates = [process.node.worker.learner.updates for process in acting]
        for made, process in zip(updates, acting, strict=True):
            replay = process.node.worker.replay
            drawn, config = replay.schedule.updates, replay.schedule._config
            if config.pace == "steady":
                rows = replay.schedule.steps - replay.schedule.learning_since
                due = rows / config.acting_steps_per_update if replay.schedule.updates else 0
                self.check(drawn <= due, f"{drawn} updates were made, {due} were due")
                self.check(made >= int(due) - 1, f"only {made} updates were made, {due} were due")
            self.check(abs(drawn - made) <= 1, f"{drawn} updates were drawn, {made} made")
        applied, sent = server.node.learner.updates, sum(updates)
        self.check(applied <= sent + len(updates), f"{applied} gradients applied, {sent} sent")
        if self.config.run.workers.max_staleness is None:
            self.check(applied >= sent, f"{applied} gradients applied, {sent} sent")

    def check_updates(self, node):
        """The learner made the updates that were drawn, and no more than were due."""
        learner = self.learner
        if learner.how == "done" and not (self.restarts.get("replay/0") or self.config.continues):
            schedule, updates = node.local.schedule, learner.node.learner.updates
            unused = sum(draw.updates for draw, _ in node._unused)
            drawn = schedule.updates - unused
            self.check(
                abs(node._learned - updates) <= 1, f"{updates} updates, {node._learned} noted"
            )
            due = (
                schedule.steps - schedule.learning_since
            ) / schedule._config.acting_steps_per_update
            least = 0 if self.is_late else int(due) - 1  # a draw may come too late
            self.check(least <= drawn <= due, f"{drawn} updates were made, {due} were due")
            self.check(abs(drawn - updates) <= 1, f"{drawn} updates were drawn, {updates} made")

    def check_snapshots(self):
        """Every snapshot that is listed loads, and its counters agree."""
        directory = self.config.directory
        for folder in (directory, *sorted((directory / "workers").glob("*"))):
            found = Snapshots(folder)
            for steps in found.steps():
                like = np.zeros(1 + UPDATES, np.int32)
                snapshot = found.read(steps, learner=like, replay=None)
                wanted = {"steps": steps, "updates": int(snapshot.learner[0])}
                if folder != directory:  # its state is a copy of the server's
                    del wanted["updates"]
                self.check(snapshot.counters == snapshot.counters | wanted, f"counters at {steps}")

    def check_table(self):
        """The rows of metrics.csv have growing steps."""
        path = self.config.directory / "metrics.csv"
        if path.is_file():
            header, *lines = path.read_text().splitlines()
            column = header.split(",").index("steps")
            rows = [int(line.split(",")[column]) for line in lines]
            self.check(rows == sorted(set(rows)), f"metrics.csv has rows of {rows} steps")


class Outcome(NamedTuple):
    """Of a simulation without a violation: the hash of its events, and their number."""

    digest: str
    events: int


def simulate(schedule):
    """Runs a program to its end, resumed if it has to be; Violation if anything is wrong."""
    scheduler = Scheduler(schedule.seed)
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder, without_jax():
        config = make_config(schedule.seed, pathlib.Path(folder))
        restarts = MAX_RESTARTS if schedule.seed % 5 else 0  # as under Ray, or under Launchpad
        if not run(scheduler, config, schedule.faults, restarts):
            newest = newest_snapshot(config.directory)
            resumed = dataclasses.replace(config, resumed_at=newest)
            if not run(scheduler, resumed, (), MAX_RESTARTS):
                raise Violation("the resumed program did not finish")
    return Outcome(scheduler.hash.hexdigest()[:16], scheduler.events)


def run(scheduler, config, faults, max_restarts):
    """Runs a program until it ends; whether it is finished."""
    program, looked = Program(scheduler, faults, max_restarts=max_restarts), -1.0
    agent = make_agent(program)
    options = {"name": "counts", "Config": Config, "presets": {"default": Config}}
    entry = AgentEntry(make_agent=lambda *_: agent, **options)
    vars(config.run).update(program=program, entry=entry)
    for name in (STATUS, RESTARTS):
        (config.directory / name).unlink(missing_ok=True)

    def finished():
        nonlocal looked
        if program.violations:
            raise program.violations[0]
        if scheduler.now < looked + 0.5:
            return False
        looked = scheduler.now
        return read_json(config.directory / STATUS).get("phase") == "finished"

    try:
        nodes, clock = program.start(config), program.clock(scheduler.main.process)
        with mock.patch.object(snapshots, "sealed", program.sealed):
            failure = supervise(nodes, finished, program.stop, clock=clock)
        if program.violations:
            raise program.violations[0]
        return program.check_end(failure)
    except Hanging as error:
        states = [f"{name} {process.how or 'runs'}" for name, process in program.processes.items()]
        raise Violation(f"{error} {', '.join(states)}") from None
    finally:
        scheduler.end()
        for node in program.nodes:
            if recorder := getattr(node, "_recorder", None):  # of a process that was killed
                recorder.close()
        logging.getLogger("retrax").handlers.clear()


def shortest(schedule):
    """The fewest faults that show a violation, and its sentence."""
    found = violation(schedule)
    for fault in schedule.faults:
        fewer = schedule._replace(faults=tuple(x for x in schedule.faults if x is not fault))
        if sentence := violation(fewer):
            schedule, found = fewer, sentence
    return schedule, found


def check(schedules):
    """The outcomes of schedules; at the first violation, one sentence, and how to see it again."""
    outcomes = []
    for schedule in schedules:
        try:
            outcomes.append(simulate(schedule))
        except Violation as error:
            fewest, sentence = shortest(schedule)
            raise Violation(
                f"seed {schedule.seed}: {error}\nshortest: {sentence}\n{fewest.text()}\n"
                f"again: python benchmarks/simulate.py --seeds 1 --seed {schedule.seed}"
            ) from None
    return outcomes


def seeds_of_commit(count):
    """Seeds of the newest commit's hash, so that every commit tries others; prints how to."""
    command, folder = ["git", "rev-parse", "HEAD"], pathlib.Path(__file__).parent
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    first = int(found.stdout[:8] or "0", 16)  # 0 in a copy without git
    print(f"python benchmarks/simulate.py --seeds {count} --seed {first}")
    return range(first, first + count)


def violation(schedule):
    """The sentence of a violation; "" if there is none."""
    try:
        simulate(schedule)
    except Violation as error:
        return str(error)
    return ""


def make_jaxpr(function):
    """As `jax.make_jaxpr`, of a function that reads all its arguments."""

    def traced(*arguments):
        leaves = jax.tree.leaves(arguments)
        jaxpr = types.SimpleNamespace(eqns=[], invars=leaves, outvars=leaves)
        return types.SimpleNamespace(jaxpr=jaxpr)

    return traced


def eval_shape(function, *arguments):
    """As `jax.eval_shape`, by a call with zeros."""
    zeros = jax.tree.map(lambda x: np.zeros(np.shape(x), getattr(x, "dtype", None)), arguments)
    found = function(*zeros)
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), np.asarray(x).dtype), found)


def tree_map(function, tree, *rest):
    """As `jax.tree.map`, which takes four times as long for small trees."""
    leaves, structure = jax.tree.flatten(tree)
    return structure.unflatten(map(function, leaves, *map(structure.flatten_up_to, rest)))


@contextlib.contextmanager
def without_jax():
    """The agent is of NumPy: nothing is traced, compiled, or put on a device."""
    names = ("jit", "vmap", "device_put", "device_get", "block_until_ready")
    same = {name: lambda x, *_, **__: x for name in names}
    with (
        mock.patch.multiple(jax, **same, eval_shape=eval_shape, make_jaxpr=make_jaxpr),
        mock.patch.object(jax.random, "key", return_value=np.zeros(2, np.uint32)),
        mock.patch.object(jax.tree, "map", tree_map),
        mock.patch.object(ast, "literal_eval", LITERALS),
        mock.patch.multiple(jax.numpy, zeros=np.zeros, concatenate=np.concatenate),
    ):
        yield


@contextlib.contextmanager
def on_one_core():
    """Threads of which one runs at a time take turns faster on one core; Linux only."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    if cores:
        os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        if cores:
            os.sched_setaffinity(0, cores)


def at_least_0(text):
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be an integer of at least 0, got {text!r}")
    return int(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=at_least_0, default=1000, help="how many")
    parser.add_argument("--seed", type=at_least_0, default=0, help="the first one")
    parser.add_argument("--schedule", type=pathlib.Path, help="a file with a schedule to replay")
    arguments = parser.parse_args()
    draw = functools.partial(map, Schedule.drawn)
    schedules = draw(range(arguments.seed, arguments.seed + arguments.seeds))
    if arguments.schedule is not None:
        try:
            schedules = [Schedule.parse(arguments.schedule.read_text())]
        except (OSError, ValueError, KeyError, TypeError) as error:
            sys.exit(f"{arguments.schedule} is no schedule: {error}")
    began = time.process_time()
    try:
        with on_one_core():
            outcomes = check(schedules)
    except Violation as error:
        sys.exit(str(error))
    seconds = time.process_time() - began
    print(f"{len(outcomes)} schedules without a violation in {seconds:.1f} s of processor time")
    if len(outcomes) == 1:
        print(f"{outcomes[0].events} events, hash {outcomes[0].digest}")


if __name__ == "__main__":
    main()
