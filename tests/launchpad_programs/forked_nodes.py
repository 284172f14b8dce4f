"""Nodes that do nothing, forks of one launcher that waits: `forked_nodes.py DIRECTORY`.

Each writes its process into a file when its context is set up. "learner" and "actor" wait until
they are stopped, and leave a file, but "stuck" goes on; "late" begins when its launcher has died;
"fails" and "returns" end at once, and the launcher prints how. Another process still imports.
"""

import os
import pathlib
import signal
import sys
import time

import launchpad as lp
from absl import flags
from launchpad.launch.worker_manager import WorkerManager

from retrax.launchpad_programs.engines.launchpad import node_process, start_process
from retrax.launchpad_programs.kinds import KINDS


def live(label, directory, launcher):
    WorkerManager(register_in_thread=True)
    while label == "late" and os.getppid() == launcher:
        time.sleep(0.01)
    with node_process(KINDS.get(label, KINDS["counter"]), launcher):
        with (directory / f"{label}.part").open("w") as file:
            file.write(str(os.getpid()))
        (directory / f"{label}.part").rename(directory / label)
        if label == "fails":
            raise ValueError("the node's own sentence")
        if label != "returns":
            with lp.stop_event()._cond:  # as within `wait`, for a moment
                signal.pause()
            lp.stop_event().wait()
            while label == "stuck":
                time.sleep(0.1)
            (directory / f"{label}_saved").touch()


def main(directory):
    flags.FLAGS(["nodes"])
    launcher, ends = os.getpid(), {}
    start_process("imports", [sys.executable, "-c", "import time; time.sleep(60)"], directory)
    for label in ("learner", "actor", "late", "stuck", "fails", "returns"):
        if not (child := os.fork()):
            live(label, directory, launcher)
        if label in ("fails", "returns"):
            _, status = os.waitpid(child, 0)
            ends[label] = os.waitstatus_to_exitcode(status)
    print(ends, flush=True)
    signal.pause()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
