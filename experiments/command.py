"""The `retrax` command: train, launch, evaluate, plot, doctor."""

import difflib
import importlib
import os
import sys
from collections.abc import Callable, Sequence

from .. import __version__

_USAGE = f"""\
retrax {__version__}: agents as pure JAX functions

usage: retrax COMMAND [...]

  train AGENT --environment ID    train an agent; --help lists every field of its config
  train --resume RUN              go on with a run from its newest snapshot
  launch AGENT --num-actors N     the same as a program of many processes (Linux, Python 3.10)
  evaluate RUN                    mean return of the trained policy, with its interval; video
  evaluate-suite RUN...           mean returns of many Atari games' runs, as a CSV for atari57
  record-states RUN               emulator states out of a run's play, to begin episodes in
  plot RUN...                     learning curves as PNG
  atari57 [--scores FILE.csv]     published scores on 57 games, and yours: median, rank, Elo; chart
  doctor                          what is installed, what is missing, how to mend it

`retrax COMMAND --help` tells more. For a first run: retrax train reactor --environment catch
"""

_INTERRUPTED = 130  # what shells give for SIGINT
_BROKEN_PIPE = 141  # and for SIGPIPE


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command.

    Returns:
      The exit status: 0; 1 if a run failed or the core does not work; 2 for wrong input; 130 if
      interrupted before there was a run. Whatever it is, one sentence says why.
    """
    command, *rest = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if command in ("-h", "--help"):
        print(_USAGE, end="")
        return 0
    if command == "--version":
        print(__version__)
        return 0
    if command not in _COMMANDS:
        allowed = ", ".join(_COMMANDS)
        close = difflib.get_close_matches(command, _COMMANDS, n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        return _refuse(f"Unknown command {command!r}{hint}: allowed are {allowed}.")
    try:
        return _COMMANDS[command](rest)
    except BrokenPipeError:  # nobody reads on: `retrax train reactor --help | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except (ValueError, ImportError, OSError) as error:
        return _refuse(str(error))
    except Exception as error:
        if not type(error).__module__.startswith("gymnasium"):
            raise
        return _refuse(str(error))  # an environment lacks a library
    except KeyboardInterrupt:
        return _refuse("Interrupted.", _INTERRUPTED)


def _refuse(sentence: str, status: int = 2) -> int:
    print(f"retrax: {sentence}", file=sys.stderr)
    return status


# Each command imports what it needs when it runs: `--help` and `doctor` must not wait for JAX.


def _train(arguments: list[str]) -> int:
    from .train_command import train_command

    return train_command(arguments)


def _launch(arguments: list[str]) -> int:
    # By name: programs are built upon this folder, and need what not everybody has installed.
    program = importlib.import_module("retrax.launchpad_programs.launch_command")
    status: int = program.launch_command(arguments)
    return status


def _evaluate(arguments: list[str]) -> int:
    from .look_commands import evaluate_command

    return evaluate_command(arguments)


def _evaluate_suite(arguments: list[str]) -> int:
    from .suite_commands import evaluate_suite_command

    return evaluate_suite_command(arguments)


def _record_states(arguments: list[str]) -> int:
    from .suite_commands import record_states_command

    return record_states_command(arguments)


def _plot(arguments: list[str]) -> int:
    from .look_commands import plot_command

    return plot_command(arguments)


def _atari57(arguments: list[str]) -> int:
    from .atari57_commands import atari57_command

    return atari57_command(arguments)


def _doctor(arguments: list[str]) -> int:
    from .look_commands import doctor_command

    return doctor_command(arguments)


_COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": _train,
    "launch": _launch,
    "evaluate": _evaluate,
    "evaluate-suite": _evaluate_suite,
    "record-states": _record_states,
    "plot": _plot,
    "atari57": _atari57,
    "doctor": _doctor,
}
