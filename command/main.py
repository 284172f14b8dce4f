"""The `retrax` command: finds the subcommand and runs it."""

import _thread
import contextlib
import importlib
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import __version__
from ..basics.imports import registered_names
from ..basics.machine import CACHE, shared_programs
from ..basics.sentences import did_you_mean, reason

_USAGE = f"""\
retrax {__version__}: agents as pure JAX functions

usage: retrax COMMAND [...]

  train AGENT --environment ID    train an agent; --help lists every field of its config
  train --resume RUN              continue a run from its newest snapshot
  launch AGENT --num-actors N     the same in many processes, with Ray or Launchpad
  evaluate RUN                    mean return of the trained policy, with its interval; video
  evaluate-suite RUN...           mean returns of runs on many Atari games, as a CSV for atari57
  record-states RUN               save emulator states from a run's play, to start episodes from
  plot RUN...                     learning curves as PNG
  export RUN --output DIR         the trained agent as plain files that act without retrax
  benchmark SUITE AGENT           train and evaluate on a suite of tasks, with several seeds
  report DIR                      an HTML page of a benchmark's results and published scores
  atari57 [--scores FILE.csv]     published and your scores on 57 games: median, rank, Elo; chart
  doctor                          what is installed, what is missing, how to install it

`retrax COMMAND --help` lists its options. For a first run: retrax train reactor --environment catch
Compiled programs are cached in your cache directory; `retrax --no-cache COMMAND` caches none.
"""

_NO_CACHE = "JAX_ENABLE_COMPILATION_CACHE"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; the exit status.

    It is 0; 1 if a run failed or the core does not work; 2 for wrong input; 130 if interrupted
    before there was a run. Any status but 0 comes with one sentence, or with tyro's message.
    """
    command, *rest = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if command == "--no-cache":
        os.environ[_NO_CACHE] = "false"  # of processes that it starts, too
        command, *rest = rest or ["--help"]
    asks = {"-h", "--help", "--version"} & {command, *rest}
    if command not in {*_COMMANDS, *asks}:
        allowed = ", ".join(_COMMANDS)
        hint = did_you_mean(command, _COMMANDS)
        if command in registered_names("retrax.agents"):
            hint = f" (did you mean train {command}?)"
        return _refuse(f"Unknown command {command!r}{hint}: allowed are {allowed}.")
    if empty := [word for word in rest if not word or (word[:2], word[-1]) == ("--", "=")]:
        return _refuse(f"An argument is empty: {empty[0]!r}.")
    if sys.unraisablehook is sys.__unraisablehook__:  # pytest has its own
        sys.unraisablehook = _repeat
    if {CACHE, _NO_CACHE}.isdisjoint(os.environ) and not asks:
        _keep_programs()
    try:
        if command not in _COMMANDS:
            print(f"{__version__}\n" if command == "--version" else _USAGE, end="", flush=True)
            return 0
        module, name = _COMMANDS[command].split(":")
        function = getattr(importlib.import_module(f"retrax.{module}"), name)
        if name.endswith("_command"):
            return int(function(rest))
        from .parsing import parse_call

        found = function(**parse_call(function, rest, prog=f"retrax {command}"))
        if isinstance(found, Path):
            print(found)
        return found if isinstance(found, int) else 0
    except SystemExit as stop:  # tyro has printed help or a message, or rich found a closed pipe
        return 141 if isinstance(stop.__context__, BrokenPipeError) else int(stop.code or 0)
    except BrokenPipeError:  # the reader has ended: `retrax train reactor --help | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # what shells give for SIGPIPE
    except Exception as error:
        is_sentence = isinstance(error, (ValueError, ImportError, OSError))
        if is_sentence or type(error).__module__.startswith("gymnasium"):  # which lacks a library
            return _refuse(str(error))
        if sentence := _without_devices():
            return _refuse(sentence)
        raise
    except KeyboardInterrupt:
        return _refuse("Interrupted.", 130)  # what shells give for SIGINT


def _repeat(lost: Any) -> None:
    """Repeats a Ctrl-C that arrives in a callback of the garbage collector, as JAX has one."""
    if issubclass(lost.exc_type, KeyboardInterrupt):
        with contextlib.suppress(RuntimeError):  # at the very end no thread can be started
            threading.Timer(0.1, _thread.interrupt_main).start()  # here it would be lost, too
    else:
        sys.__unraisablehook__(lost)


def _keep_programs() -> None:
    """Before JAX is imported, and reads the variables; told when the folder is made."""
    programs = shared_programs()
    path = Path(programs.get(CACHE, "."))
    with contextlib.suppress(OSError):  # a home directory may be read-only
        if not path.is_dir():
            path.mkdir(parents=True)
            about = f"Compiled programs are cached in {path}, at most 1 GB"
            print(f"{about} (retrax --no-cache COMMAND caches none).", file=sys.stderr)
        os.environ |= programs


def _without_devices() -> str:
    """Why JAX has no device in this process; "" if it has, or was not asked for one."""
    try:
        if "jax" in sys.modules:
            sys.modules["jax"].devices()
    except Exception as error:  # an AssertionError without words is one of them
        named = os.environ.get("JAX_PLATFORMS", "")
        return f"JAX has no device with JAX_PLATFORMS={named!r} ({reason(error)}): unset it."
    return ""


def _refuse(sentence: str, status: int = 2) -> int:
    print(f"retrax: {sentence}", file=sys.stderr)
    return status


# The function behind each command: `x_command` has the arguments as they are; the signature and the
# docstring of any other one are the interface, and it returns the exit status, a file, or None.
# It is imported when it runs: `--help` and `doctor` must not wait for JAX.
_COMMANDS = {
    "train": "command.train:train_command",
    "launch": "launchpad_programs.launch_command:launch_command",
    "evaluate": "command.trained:evaluate_command",
    "evaluate-suite": "command.suite:evaluate_suite",
    "record-states": "command.suite:record_states",
    "plot": "command.trained:plot_command",
    "export": "command.exporting:export",
    "benchmark": "command.benchmark:benchmark",
    "report": "evaluation.report:write_report",
    "atari57": "command.atari57:compare",
    "doctor": "command.doctor:doctor",
}
