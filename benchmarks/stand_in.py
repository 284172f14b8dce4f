"""A peer's update in a process of another Python, and the comparison of ours with it, in turns.

A stand-in reads lines of JSON: first its sizes, which it answers with a dictionary `about`; each
further line asks for an update, and it answers with the seconds of one.
"""

import contextlib
import json
import statistics
import subprocess
import sys


class StandIn:
    """A running stand-in.

    Args:
      python: the interpreter that runs it.
      script: its file.
      sizes: its first line.
      needs: what the interpreter must have, for the error.
    """

    def __init__(self, python, script, sizes, needs):
        self._process = subprocess.Popen(
            [python, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._needs = needs
        self.about = self._ask(sizes)

    def seconds(self):
        return self._ask("update")

    def close(self):
        self._process.stdin.close()
        self._process.wait()

    def _ask(self, line):
        try:
            self._process.stdin.write(json.dumps(line) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()  # else it is tried again, and told, at the exit
        if not answer:
            sys.exit(f"The stand-in ended: does {self._process.args[0]} have {self._needs}?")
        return json.loads(answer)


def check_parameters(ours, stand_in):
    """Ends the program if the two sides do not have equally many parameters."""
    if ours != stand_in.about["parameters"]:
        sys.exit(f"{ours} parameters here, {stand_in.about['parameters']} in the stand-in.")


def compare(ours, stand_in, updates):
    """Measures both in turns, prints their medians, and returns stand-in / ours.

    Args:
      ours: a function that returns the seconds of one of our updates.
      stand_in: the other side.
      updates: of each, after a first one that is not counted.
    """
    times = {"retrax": [], "stand-in": []}
    for _ in range(updates + 1):
        times["retrax"].append(ours())
        times["stand-in"].append(stand_in.seconds())
    medians = {name: statistics.median(found[1:]) for name, found in times.items()}
    for name, median in medians.items():
        spread = f"{1e3 * min(times[name][1:]):.2f} to {1e3 * max(times[name][1:]):.2f}"
        print(f"{name:<10} {1e3 * median:>8.2f} ms an update ({spread})")
    return medians["stand-in"] / medians["retrax"]
