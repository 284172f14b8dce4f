"""A program: which nodes there are, and who talks to whom. The same for every agent."""

import functools
from collections.abc import Callable
from typing import Any

import launchpad as lp

from .calls import CALL_SECONDS
from .config import SERVING, ProgramConfig
from .lifecycle import Lives, Node
from .parts import (
    make_actor,
    make_checkpointer,
    make_counter,
    make_evaluator,
    make_learner,
    make_tables,
)
from .replay_node import ReplayNode

_SPARE_THREADS = 8  # of Courier's servers, besides one for each actor
_CPU = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", "NPROC": "1"}


def make_program(config: ProgramConfig, lives: Lives) -> lp.Program:
    """The program; it only wires.

    Args:
      config: what to run.
      lives: whether its nodes are processes of this one, or its threads.
    """
    program = lp.Program(config.run.agent)
    ports = {} if config.port is None else {k: config.port + i for i, k in enumerate(SERVING)}

    def add(label: str, factory: Callable[..., Any], **handles: Any) -> Any:
        node = Node(
            lives,
            label,
            functools.partial(factory, config),
            serves=label in SERVING,
            port=ports.get(label),
            # Actors wait a moment for parameters, each in a thread of the learner's.
            courier_kwargs={"thread_pool_size": _SPARE_THREADS + config.num_actors},
            **handles,
        )
        handle = program.add_node(node, label)
        handle.set_client_kwargs(call_timeout=CALL_SECONDS)
        return handle

    tables = functools.partial(make_tables, config)
    checkpointer = functools.partial(make_checkpointer, config)
    replay = program.add_node(
        ReplayNode(lives, tables, checkpointer, port=ports.get("replay")), "replay"
    )
    counter = add("counter", make_counter)
    learner = add("learner", make_learner, counter=counter, replay=replay)
    for index in range(config.num_actors):
        add("actor", make_actor, index=index, counter=counter, learner=learner, replay=replay)
    add("evaluator", make_evaluator, counter=counter, learner=learner)
    return program


def environments(config: ProgramConfig) -> dict[str, dict[str, str]]:
    """Environment variables of each label's processes: only the learner sees an accelerator."""
    shared = {
        "PYTHONUNBUFFERED": "1",
        "JAX_COMPILATION_CACHE_DIR": str((config.directory / "compilation_cache").absolute()),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "1",
    }
    cpu = {**shared, **_CPU}
    return {"learner": shared, **dict.fromkeys(("replay", "counter", "actor", "evaluator"), cpu)}
