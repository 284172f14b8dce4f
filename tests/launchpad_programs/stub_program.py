"""A program of nodes that do nothing, for tests of the node lifecycle: run by test_launcher.py.

    python stub_program.py DIRECTORY MODE WHAT

The actor does WHAT: "finish" (the run ends), "wait", "raise", "deaf" (it never looks at its stop
event). The learner writes the file `saved` when it is stopped, as a learner saves a snapshot.
"""

import json
import os
import pathlib
import sys
import time


class Node:
    """Writes down its process, and waits."""

    def __init__(self, name, directory, what, stop, **handles):
        self.name, self.directory, self.what, self.stop = name, directory, what, stop
        (directory / f"{name}.pid").write_text(str(os.getpid()))

    def ping(self):
        return 1

    def run(self):
        # A learner that is stopped while its process starts saves nothing.
        while self.what in ("raise", "finish") and not (self.directory / "learner.pid").exists():
            time.sleep(0.1)
        if self.what == "raise":
            raise ValueError("the actor's own sentence")
        if self.what == "finish":
            (self.directory / "finished").write_text("")
        while self.what == "deaf":
            time.sleep(0.1)
        while not self.stop.wait(0.1):
            pass
        if self.name == "learner":
            (self.directory / "saved").write_text("")


def main(directory, mode, what):
    import functools

    import launchpad as lp

    from retrax.launchpad_programs import launcher, process, workers
    from retrax.runtime.stop import stop_on_signals

    execution = process.Threads() if mode == "local_mt" else process.Processes(os.getpid())
    program = lp.Program("stub")
    whats = {"counter": "wait", "learner": "wait", "actor": what}
    for name, this in whats.items():
        factory = functools.partial(Node, name, directory, this)
        program.add_node(process.Node(execution, name, factory), name)
    with stop_on_signals() as stop:
        if mode == "local_mt":
            started = workers.start_threads(program, execution)
        else:
            started = workers.start_processes(program, {"actor": {"A": "1"}}, directory / "logs")
        (directory / "started").write_text("")
        ending = launcher.supervise(
            started,
            finished=(directory / "finished").exists,
            stop=stop,
            save_seconds=20.0,
        )
    print(json.dumps(ending._asdict()))
    return 1 if ending.failed else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), *sys.argv[2:]))
