"""Training in one process: one run, or several that are computed together on a device."""

import contextlib
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from typing import Any

from ..datatypes import VectorEnvironment
from ..environments.failures import close_quietly
from ..training.assembly import given_environments
from ..training.checks import checked_agent
from ..training.config_file import new_directory
from ..training.run_config import RunConfig
from ..training.stop import stop_on_signals
from . import resuming
from .running import Run, RunFailedError, Summary


def train(
    config: RunConfig,
    directory: Path | str | None = None,
    *,
    resume: bool = False,
    plain: bool = False,
    environment: Any = None,
    data: Iterable[Any] | None = None,
    on_metrics: Callable[[int, dict[str, float]], Any] | None = None,
    raise_interrupt: bool = False,
) -> Summary:
    """Trains an agent in this process. Everything is checked before anything is written.

    Ctrl-C, or an error in an environment's step, ends it with a snapshot; a second Ctrl-C at once.

    Args:
      config: what to run.
      directory: the run directory; a new one under runs/ if None. If `resume`, an existing one.
      resume: continue from the newest whole snapshot in the directory; start from the beginning
        if there is none yet.
      plain: log lines instead of a progress bar.
      environment: `config.num_envs` environments of the id of the config, closed at the end; made
        if None. See `environments.custom.as_vector`. For one actor, and not with `resume`.
      data: `retrax.Episode`s, or Minari's, to learn from in place of acting; steps are updates.
      on_metrics: gets the steps and the numbers of each row of metrics.csv, evaluations included.
        If it returns True, the run is stopped, with a snapshot. Its errors end no run. See
        `MetricsLogger`.
      raise_interrupt: raise KeyboardInterrupt after the snapshot if a signal stopped the run, so
        that Ctrl-C ends a loop over runs too.

    Raises:
      ValueError: the environment, the agent, its config, the replay's size, the directory or the
        snapshot is refused, or another process writes into the directory.
      RunFailedError: the run failed after the first step; the traceback is in the log.
    """
    assert directory or not resume, "resume needs a directory"
    if on_metrics is not None and not callable(on_metrics):
        raise ValueError(f"on_metrics must be a function of steps and metrics, got {on_metrics!r}.")
    environment = given_environments(environment, config, resume)
    runs = {Path(directory or new_directory(config)): config}
    given: dict[str, Any] = {"environment": environment, "data": data, "on_metrics": on_metrics}
    (summary,), is_signalled = train_together(runs, resume=resume, plain=plain, **given)
    if raise_interrupt and is_signalled:
        raise KeyboardInterrupt
    return summary


def train_together(
    runs: Mapping[Path, RunConfig],
    *,
    resume: bool = False,
    plain: bool = False,
    environment: VectorEnvironment | None = None,
    data: Iterable[Any] | None = None,
    on_metrics: Callable[[int, dict[str, float]], Any] | None = None,
) -> tuple[list[Summary], bool]:
    """`train` for one run, or for several on a device that differ in their seeds alone.

    The console shows the first of them. One that fails does not end the others.

    Args:
      runs: by their directories.
      resume: see `train`, as the others; the last three are for one run alone.
      plain: of the first run.
      environment: checked.
      data: to learn from.
      on_metrics: gets metrics.

    Returns:
      How each run ended, and whether a signal stopped them.
    """
    with contextlib.ExitStack() as stack:
        parts = [Run(config, each, resume=resume, stack=stack) for each, config in runs.items()]
        with contextlib.ExitStack() as on_error:
            for part in parts:
                environments = [environment] if environment else part.make_environments()
                for made in environments:
                    on_error.callback(close_quietly, made)
                part.check(environments[0].spec)
            agent = checked_agent(parts[0].config, environments[0].spec)
            configs, continuation = [part.config for part in parts], parts[0].continuation
            loops = resuming.loops_of(configs, agent, environments, continuation, data)
            on_error.pop_all()
        closing = stack.enter_context(contextlib.ExitStack())
        for part, loop in zip(parts, loops, strict=True):
            closing.callback(loop.close)
            part.restore(loop, agent)
        for part in parts:
            part.context.run(part.open, stack, console=part is parts[0])
        stack.push(closing.pop_all())  # before the logs
        stop = stack.enter_context(stop_on_signals(loops[0].doing))
        for part in parts:
            part.context.run(part.begin, stack, stop, on_metrics)
        summaries = _in_turn({part: part.run(plain=plain) for part in parts})
        return summaries, stop.is_set()


def _in_turn(runs: Mapping[Run, Generator[None, None, Summary]]) -> list[Summary]:
    """Runs all to their ends, each in its own context."""
    ended: dict[Run, Summary] = {}
    failed: dict[Run, RunFailedError] = {}
    while len(ended) + len(failed) < len(runs):
        for part in [part for part in runs if part not in {**ended, **failed}]:
            try:
                part.context.run(next, runs[part])
            except StopIteration as end:
                ended[part] = end.value
            except RunFailedError as error:
                failed[part] = error
    if len(failed) > 1:
        raise RunFailedError(" ".join(map(str, failed.values())))
    if failed:
        raise next(iter(failed.values()))
    return [ended[part] for part in runs]
