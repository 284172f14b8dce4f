"""The `retrax` command: train, launch, evaluate, plot, doctor."""

import importlib
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
  plot RUN...                     learning curves as PNG
  doctor                          what is installed, what is missing, how to mend it

`retrax COMMAND --help` tells more. For a first run: retrax train reactor --environment catch
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; the exit status is 0, or 2 for wrong input, told in one sentence."""
    command, *rest = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if command in ("-h", "--help"):
        print(_USAGE, end="")
        return 0
    if command == "--version":
        print(__version__)
        return 0
    if command not in _COMMANDS:
        allowed = ", ".join(_COMMANDS)
        return _refuse(f"Unknown command {command!r}: allowed are {allowed}.")
    try:
        return _COMMANDS[command](rest)
    except (ValueError, ImportError, OSError, FloatingPointError) as error:
        return _refuse(str(error))
    except KeyboardInterrupt:
        return _refuse("Interrupted.")


def _refuse(sentence: str) -> int:
    print(f"retrax: {sentence}", file=sys.stderr)
    return 2


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


def _plot(arguments: list[str]) -> int:
    from .look_commands import plot_command

    return plot_command(arguments)


def _doctor(arguments: list[str]) -> int:
    from .look_commands import doctor_command

    return doctor_command(arguments)


_COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": _train,
    "launch": _launch,
    "evaluate": _evaluate,
    "plot": _plot,
    "doctor": _doctor,
}
