"""The nodes of a program, as data; what is imported where."""

import types

import numpy as np
import pytest
from dm_env import specs
from program_configs import make_config, make_run, make_workers

from retrax.launchpad_programs.kinds import (
    KINDS,
    nodes_of,
    process_env,
    program_columns,
    publisher_of,
)


def test_the_nodes_of_both_topologies(tmp_path):
    """Called nodes are made before those that call them."""
    runs = make_run(num_envs=6, num_actors=3), make_workers()
    acting, working = (nodes_of(make_config(tmp_path, run=run)) for run in runs)
    actors = [f"actor/{i}" for i in range(3)]
    assert acting == ["replay/0", "counter/0", "learner/0", *actors, "evaluator/0"]
    workers = ["worker/0", "worker/1"]
    assert working == ["counter/0", "parameter_server/0", *workers, "evaluator/0"]
    assert [publisher_of(run) for run in runs] == ["learner/0", "parameter_server/0"]


def test_columns_of_workers():
    columns = program_columns(make_workers())
    assert {"worker_0_episode_return", "server_idle_share", "worker_waiting_share"} <= {*columns}
    assert "learner_idle_share" not in columns


def test_only_the_learner_may_take_the_accelerator(tmp_path):
    for label, kind in KINDS.items():
        variables, own = process_env(kind, make_config(tmp_path)), {"JAX_PLATFORMS": "cpu"}
        own |= {"CUDA_VISIBLE_DEVICES": "", "NPROC": "1"}
        assert (own.items() <= variables.items()) == (label != "learner")
        assert ("JAX_PLATFORMS" in variables) == (label != "learner")


@pytest.mark.parametrize(
    ("cores", "num_actors", "shape", "used"),
    [(1, 1, (), 1), (2, 2, (), 1), (8, 3, (), 5), (8, 7, (), 4), (2, 2, (84, 84, 4), 2)],
)
def test_the_learner_computes_on_the_cores_that_are_left_or_images_on_all(
    tmp_path, monkeypatch, cores, num_actors, shape, used
):
    monkeypatch.setattr("retrax.launchpad_programs.kinds.cpus", lambda: cores)
    monkeypatch.delenv("NPROC", raising=False)
    config = make_config(tmp_path, run=make_run(num_envs=num_actors, num_actors=num_actors))
    vars(config)["spec"] = types.SimpleNamespace(observations=specs.Array(shape, np.uint8))
    assert process_env(KINDS["learner"], config)["NPROC"] == str(used)
    monkeypatch.setenv("NPROC", "3")
    assert process_env(KINDS["learner"], config)["NPROC"] == "3", "the user's own"


def test_nodes_share_compiled_programs_in_the_users_cache(tmp_path, monkeypatch):
    name, size = "JAX_COMPILATION_CACHE_DIR", "JAX_COMPILATION_CACHE_MAX_SIZE"
    kind, config = KINDS["actor"], make_config(tmp_path)
    monkeypatch.setenv(name, "/somewhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = process_env(kind, config)
    assert (found[name], size in found) == ("/somewhere", False)
    monkeypatch.delenv(name)
    found = process_env(kind, config)
    assert (found[name].startswith(f"{tmp_path}/retrax/"), found[size]) == (True, "1000000000")
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert name not in process_env(kind, config)
