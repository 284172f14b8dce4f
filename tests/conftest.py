"""How tests compile: without most optimisations, and what is compiled is kept.

It is kept for all workers, for processes that tests start, and for later runs. Most of the time of
most tests is compilation, which is twice as fast without the optimisations; long learning runs
(`pytest -m slow`) are compiled with them.

JAX and NumPy read these variables when they are imported: they are set before any test module is.
"""

import ctypes
import gc
import os
import sys
from pathlib import Path

import psutil
import pytest
from benchmark_modules import forget

_CACHE = Path(__file__).parents[1] / ".pytest_cache" / "compiled"

os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# Threads of a product of matrices spin while they wait: beside others, that is most of its time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def pytest_configure(config):
    """Sets variables for this process, its workers and the processes that tests start."""
    if config.option.markexpr != "slow":
        os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    gc.set_threshold(100_000, 20, 50)  # a quarter of the time otherwise: traces are many objects
    # glibc keeps what each of its arenas once had: the compiler's many threads share two of them.
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")


def pytest_report_header():
    """Where compiled programs are kept: removing the folder makes the next run a cold one."""
    return f"compiled programs: {os.environ['JAX_COMPILATION_CACHE_DIR']}"


_GROWTH = 0.2e9  # bytes
_kept = 0  # bytes of this process after programs were last forgotten


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown():
    """Frees compiled programs where they take much memory: a worker otherwise grows by gigabytes.

    The compiler's own memory is free then too, but glibc keeps it until it is told.
    """
    global _kept
    process = psutil.Process()
    if "jax" in sys.modules and process.memory_info().rss > _kept + _GROWTH:
        sys.modules["jax"].clear_caches()
        if sys.platform == "linux":
            ctypes.CDLL(None).malloc_trim(0)
        _kept = process.memory_info().rss


# Files whose tests are marked `once`, as in `device/`: numbers of agents, devices, what takes long.
_ONCE = {
    *("test_failing_environments", "test_atari57", "test_simulated", "test_rainbow"),
    *("test_acer", "test_actor_critics", "test_agent57", "test_agent57_acting", "test_d4pg"),
    *("test_reactor", "test_reward_scale", "test_normalization", "test_evaluation_average"),
    *("test_benchmark", "test_check_agent", "test_devices", "test_learning", "test_on_device"),
}


def pytest_itemcollected(item):
    """Marks the tests of these files."""
    if item.path.stem in _ONCE or item.path.parent.name == "device":
        item.add_marker("once")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Begins with the longest tests: one at the end would keep one core busy alone."""
    items.sort(key=lambda x: not any(map(x.get_closest_marker, ("documents", "once"))))
    items.sort(key=lambda x: x.path.stem != "test_pages")


@pytest.fixture
def contents():
    """From each file below a directory to its bytes."""

    def read(directory):
        files = (path for path in directory.rglob("*") if path.is_file())
        return {str(path.relative_to(directory)): path.read_bytes() for path in files}

    return read


@pytest.fixture
def own_modules(tmp_path, monkeypatch):
    """A directory for modules of a user: the current one. They, and its paths, are forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    forget(tmp_path)


SPHERE = "<mujoco><worldbody><light pos='0 0 3'/><geom size='1'/></worldbody></mujoco>"


@pytest.fixture(scope="session")
def opengl_works():
    """Skips where MuJoCo is not installed or cannot draw."""
    from retrax.environments import mujoco

    mujoco.choose_backend()  # MuJoCo looks once, when it is imported
    try:
        with mujoco.drawing():
            import mujoco

            model = mujoco.MjModel.from_xml_string(SPHERE)
            data = mujoco.MjData(model)
            mujoco.mj_forward(model, data)
            with mujoco.Renderer(model, 32, 32) as renderer:
                renderer.update_scene(data)
                if not renderer.render().any():
                    raise ValueError("the picture is black")
    except ImportError as error:
        pytest.skip(str(error))
