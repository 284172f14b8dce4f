"""The configuration of a program, and how nodes and resumed programs get it."""

import dataclasses
import importlib
import pickle
import shutil

import numpy as np
import pytest
from fresh_python import run_python
from program_configs import make_config, make_run, make_workers
from run_files import flip

from retrax.agents.reactor import AGENT
from retrax.basics.files import write_manifest
from retrax.launchpad_programs.config import write_program
from retrax.launchpad_programs.engines.options import EngineOptions, missing_packages
from retrax.launchpad_programs.launch import LaunchArguments, resumed
from retrax.replay.selectors import has_tables
from retrax.training.learner import Snapshot
from retrax.training.run_config import read_config
from retrax.training.snapshots import Snapshots, actor_file, write_state

RAY = EngineOptions(engine="ray")


@pytest.fixture
def acme_module(own_modules):
    """A module in a directory that is not on the Python path."""
    directory = own_modules / "elsewhere"
    directory.mkdir()
    (directory / "my_options.py").write_text(
        "from retrax.launchpad_programs.config import AcmeOptions\n"
        "OPTIONS = AcmeOptions(observers=(1,))\nNONE = 3\n"
    )
    return directory


def test_options_are_written_and_read(tmp_path, acme_module):
    run = make_run(search_path=str(acme_module))
    config = make_config(tmp_path, run=run, acme="my_options:OPTIONS", max_lead=3)
    write_program(config)
    assert read_config(tmp_path) == run
    assert resumed(config, RAY) == (config, [])  # nothing was trained yet
    found = LaunchArguments.resumed(tmp_path)
    assert (found.run(), found.acme, found.max_lead) == (run, "my_options:OPTIONS", 3)


def saved_program(directory):
    """A run directory of a program with snapshots, checkpoints and actors' states."""
    config = AGENT.presets["small"]()
    replay = dataclasses.replace(config.replay, selector="uniform")
    run = make_run(agent_config=dataclasses.replace(config, replay=replay))
    program = make_config(directory, run=run)
    write_program(program)
    (directory / "metrics.csv").write_text("steps\n")
    snapshots = Snapshots(directory)
    for steps in (100, 200):
        (directory / "reverb" / str(steps)).mkdir(parents=True)
        (directory / "reverb" / str(steps) / "DONE").write_text("yes")
        write_manifest(directory / "reverb" / str(steps))
        snapshots.save(steps, Snapshot(np.ones(2), {"rows": np.ones(2)}, {"steps": steps}))
    write_state(actor_file(directory, 0), {"actor": np.ones(3)})
    return program


def kept_replay(directory, steps):
    (directory / "replay").mkdir(exist_ok=True)
    snapshot = Snapshot((), {"rows": np.ones(2)}, {"steps": steps})
    Snapshots(directory / "replay").save(steps, snapshot)


LAUNCHPAD = pytest.param(
    "launchpad",
    "reverb/200/DONE",
    marks=pytest.mark.skipif(missing_packages() != [], reason="needs the distributed tier"),
)


@pytest.mark.parametrize(
    ("engine", "damaged"),
    [LAUNCHPAD, ("ray", "snapshots/200.npz"), ("ray", "replay/snapshots/200.npz")],
)
def test_a_program_goes_back_to_what_is_whole(tmp_path, engine, damaged):
    program, options = saved_program(tmp_path), EngineOptions(engine=engine)
    if engine == "ray":
        kept_replay(tmp_path, 100)
        kept_replay(tmp_path, 200)
    assert resumed(program, options)[0].resumed_at == 200
    (tmp_path / damaged).write_text("")
    config, (note,) = resumed(program, options)
    assert config.resumed_at == 100
    assert f"200 steps is damaged ({tmp_path / damaged} is not what was written" in note
    shutil.rmtree(tmp_path / "snapshots")
    config, (note,) = resumed(program, options)
    assert config.resumed_at is None
    assert note.endswith("the run starts from the beginning.")


def test_a_replay_is_continued_by_the_engine_that_can_read_it(tmp_path):
    """The rows of Reverb are not read elsewhere, and other states not by Reverb."""
    program = saved_program(tmp_path)
    _, (note,) = resumed(program, RAY)
    assert note.startswith("The replay's rows are in a Reverb checkpoint, so the replay is empty")
    assert resumed(program, EngineOptions(engine="threads"))[1] == [note]
    kept_replay(tmp_path, 200)
    assert resumed(program, RAY)[1] == []
    launchpad = EngineOptions(engine="launchpad")
    with pytest.raises(ValueError, match=r"is not Reverb's, .*: resume with --engine ray or --en"):
        resumed(program, launchpad)
    assert not has_tables(make_run().replay)  # the replay's node has the rows on both engines
    assert resumed(make_config(tmp_path), launchpad)[1] == []
    (tmp_path / "replay" / "snapshots" / "200.npz").write_text("of no worker")
    workers = make_config(tmp_path, run=make_workers())
    for engine in (launchpad, RAY):
        assert resumed(workers, engine) == (dataclasses.replace(workers, resumed_at=200), [])


def test_a_damaged_state_of_an_actor_is_refused_before_anything_starts(tmp_path):
    program = saved_program(tmp_path)
    path = tmp_path / "actors" / "0.npz"
    flip(path, 8 * 12)  # the date of a file in the archive, which NumPy does not look at
    with pytest.raises(ValueError, match=f"{path} is not what was written: .*: remove the file"):
        resumed(program, RAY)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"max_lead": -1}, "max_lead must be an integer >= 0"),
        ({"acme": "my_options:NONE"}, "must name AcmeOptions as package.module:NAME, got my_opt"),
        ({"acme": "my_options"}, "must name AcmeOptions as package.module:NAME, got my_options"),
        ({"acme": "no_such:OPTIONS"}, "no_such.*cannot be imported"),
        ({"acme": "json:loads", "num_envs": 4}, "needs num_envs equal to num_actors.* num_envs 4"),
    ],
)
def test_wrong_options(tmp_path, acme_module, changes, expected):
    with pytest.raises(ValueError, match=expected):
        make_config(tmp_path, search_path=str(acme_module), **changes).acme_options()


def test_a_run_must_be_resolved(tmp_path):
    with pytest.raises(ValueError, match="not resolved"):
        _ = make_config(tmp_path, log_every=None).run.schedule


def test_a_node_unpickles_an_agents_config_from_the_search_path(tmp_path, monkeypatch):
    """Its module is imported from there, in a process that knows nothing of it."""
    module = tmp_path / "somebodys_agent.py"
    module.write_text("import dataclasses\n@dataclasses.dataclass\nclass Config:\n    a: int = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    agent_config = importlib.import_module("somebodys_agent").Config(a=5)
    config = make_config(tmp_path, search_path=str(tmp_path), agent_config=agent_config)
    (tmp_path / "config.pickle").write_bytes(pickle.dumps(config))
    read = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')).run.agent_config)"
    assert run_python("-c", read, tmp_path / "config.pickle") == "Config(a=5)\n"
