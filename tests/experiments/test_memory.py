"""Memory of a run that saves many snapshots."""

import ctypes
import subprocess
import sys

import pytest

# Eight threads allocate at the same time; glibc then prints a line for each arena.
ARENAS = """
import ctypes, sys, threading
from retrax.experiments.commands.main import main

if sys.argv[1:]:
    main(sys.argv[1:])
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
barrier = threading.Barrier(8)

def allocate():
    barrier.wait()
    for _ in range(100):
        libc.malloc(100)
    barrier.wait()

threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc.malloc_stats()
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_stats"), reason="needs glibc")
def test_training_uses_one_arena():
    """Those that many threads leave behind, snapshot by snapshot, add up."""

    def arenas(*arguments):
        command = [sys.executable, "-c", ARENAS, *arguments]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
        return result.stderr.count("Arena ")

    assert arenas("train", "--help") == 1
    assert arenas("--help") > 1
