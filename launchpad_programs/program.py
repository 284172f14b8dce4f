"""A program of one of two topologies: its nodes and their connections. The same for every agent."""

import functools
import os
from collections.abc import Callable
from typing import Any

import launchpad as lp

from .actor import make_actor
from .config import ProgramConfig
from .counter import Counter
from .evaluator import make_evaluator
from .learner import make_learner
from .parameter_server import make_parameter_server
from .process import CALL_SECONDS, Execution, Node
from .replay_server import ReplayServer
from .worker import make_worker

_SPARE_THREADS = 8  # of Courier's servers, besides one for each actor
_CPU = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", "NPROC": "1"}


def make_program(config: ProgramConfig, execution: Execution) -> lp.Program:
    """Adds the nodes; makes nothing else.

    Args:
      config: what to run.
      execution: whether the nodes are processes or threads.
    """
    program = lp.Program("retrax")
    ports = config.ports

    def add(label: str, factory: Callable[..., Any], **handles: Any) -> Any:
        node = Node(
            execution,
            label,
            functools.partial(factory, config),
            serves=label in config.serving,
            port=ports.get(label),
            # Actors wait a moment for parameters, each in a thread of the learner's server.
            courier_kwargs={"thread_pool_size": _SPARE_THREADS + config.run.num_actors},
            **handles,
        )
        handle = program.add_node(node, label)
        handle.set_client_kwargs(call_timeout=CALL_SECONDS)
        return handle

    if config.has_workers:
        counter = add("counter", Counter)
        server = add("parameter_server", make_parameter_server, counter=counter)
        for index in range(config.run.num_actors):
            add("worker", make_worker, index=index, counter=counter, server=server)
        add("evaluator", make_evaluator, counter=counter, learner=server)
        return program
    replay_server = ReplayServer(execution, config, port=ports.get("replay"))
    replay = program.add_node(replay_server, "replay")
    counter = add("counter", Counter)
    learner = add("learner", make_learner, counter=counter, replay=replay)
    for index in range(config.run.num_actors):
        add("actor", make_actor, index=index, counter=counter, learner=learner, replay=replay)
    add("evaluator", make_evaluator, counter=counter, learner=learner)
    return program


def process_env(config: ProgramConfig) -> dict[str, dict[str, str]]:
    """Environment variables of each label's processes.

    Only the learner sees an accelerator. Workers compute on a core each, as Reactor's and ACER's.
    """
    cache = str((config.directory / "compilation_cache").absolute())
    shared = {
        "PYTHONUNBUFFERED": "1",
        "JAX_COMPILATION_CACHE_DIR": os.environ.get("JAX_COMPILATION_CACHE_DIR", cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "1",
    }
    cpu = {**shared, **_CPU}
    if config.has_workers:
        return dict.fromkeys(("counter", "parameter_server", "worker", "evaluator"), cpu)
    return {"learner": shared, **dict.fromkeys(("replay", "counter", "actor", "evaluator"), cpu)}
