"""One way to make every kind of environment, by its id."""

import ast
import difflib
import functools
import importlib
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from ..datatypes import VectorEnvironment
from .control_suite import PREFIX, ControlSuite, tasks
from .deep_sea import DeepSea
from .disco_maze import RandomDiscoMaze
from .opengl import choose_backend
from .random_coin import RandomCoin
from .tiny import Catch, Memory

# Gymnasium and ale-py are imported where they are needed: they take longer than the tasks do.

_TINY: dict[str, Callable[..., VectorEnvironment]] = {
    "catch": Catch,
    "memory": Memory,
    "deep_sea": DeepSea,
    "noisy_deep_sea": functools.partial(DeepSea, screen=16),
    "random_coin": RandomCoin,
    "random_disco_maze": RandomDiscoMaze,
}
_COMMON = {"num_envs", "seed"}  # arguments of every environment, so never switches
_ALE = "ALE/"


def make(
    id: str | Callable[[], Any],
    *,
    seed: int = 0,
    num_envs: int = 1,
    render: bool = False,
    **switches: Any,
) -> VectorEnvironment:
    """Makes a vector of environments.

    Args:
      id: one of `known_environments()`: a task of our own ("catch", "memory", "deep_sea",
        "noisy_deep_sea", "random_coin", "random_disco_maze"), an Atari game ("ALE/Pong-v5"), a task
        of the control suite ("dm_control:cartpole/swingup"), or any id registered with Gymnasium
        ("CartPole-v1", or "my_module:MyEnvironment-v0", which imports `my_module` first). Switches
        may follow, for callers that have nothing but the id: "deep_sea,size=20,screen=4". Or a
        function without arguments that returns a `gymnasium.Env`.
      seed: >= 0. The episodes of environment e depend on `seed` and e alone.
      num_envs: E >= 1.
      render: whether `render()` will be called; needed for Gymnasium's environments only. A
        function that is given as `id` chooses its own render mode.
      **switches: what the environment offers besides: `length` for "memory", `size` and others of
        `retrax.environments.deep_sea.DeepSea` for "deep_sea" and so on, those of
        `retrax.environments.atari.Atari` for Atari games (frame_stack, full_action_set, ...),
        `time_limit` for the control suite, and the constructor's arguments and `max_episode_steps`
        for a Gymnasium id.

    Returns:
      The environments. Call `reset()` first.

    Raises:
      ValueError: the id is unknown, the environment has no such switch, a switch in the id is not
        NAME=VALUE, an argument is out of its range, or a Gymnasium space is not supported.
      ModuleNotFoundError: there is no such `my_module`.
      ImportError: the environment needs an extra that is not installed; the message names it.
    """
    if callable(id):
        _refuse_unknown(switches, (), "an environment made by a function")
        return _gymnasium_vector(id, num_envs, seed)
    id, named = _split(id)
    switches = {**named, **switches}
    try:
        return _make(id, seed, num_envs, render, switches)
    except TypeError as error:
        if named:
            raise ValueError(f"{id} cannot be made with {named}: {error}.") from error
        raise


def _split(id: str) -> tuple[str, dict[str, Any]]:
    """The id proper, and the switches behind it."""
    id, *assignments = id.split(",")
    switches: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not (name and equals and value):
            raise ValueError(
                f"a switch behind an id must be NAME=VALUE, as in deep_sea,size=20, got "
                f"{assignment!r} behind {id}."
            )
        try:
            switches[name] = ast.literal_eval(value)
        except (SyntaxError, ValueError):  # a word
            switches[name] = value
    return id, switches


def _make(
    id: str, seed: int, num_envs: int, render: bool, switches: dict[str, Any]
) -> VectorEnvironment:
    if id in _TINY:
        _refuse_unknown(switches, _parameters(_TINY[id]) - _COMMON, id)
        return _TINY[id](num_envs=num_envs, seed=seed, **switches)
    if id.startswith(_ALE):
        return _make_atari(id, num_envs, seed, switches)
    if id.startswith(PREFIX):
        return _make_control(id, num_envs, seed, switches)
    return _make_gymnasium(id, num_envs, seed, render, switches)


def known_environments() -> list[str]:
    """The ids that `make` knows: our own tasks, Gymnasium's, Atari games, the control suite's.

    The suite's are left out where dm_control is missing or cannot be imported; where it can, that
    takes about a second.
    """
    from .atari import games

    return [*_TINY, *_gymnasium_ids(), *games(), *_control_ids()]


def _make_atari(id: str, num_envs: int, seed: int, switches: dict[str, Any]) -> VectorEnvironment:
    from .atari import Atari, games

    if id not in games():
        raise _unknown(id)
    _refuse_unknown(switches, _parameters(Atari) - _COMMON - {"game"}, id)
    return Atari(games()[id], num_envs=num_envs, seed=seed, **switches)


def _make_control(id: str, num_envs: int, seed: int, switches: dict[str, Any]) -> VectorEnvironment:
    known = tasks()
    if id not in known:
        raise _unknown(id)
    _refuse_unknown(switches, _parameters(ControlSuite) - _COMMON - {"domain", "task"}, id)
    return ControlSuite(*known[id], num_envs=num_envs, seed=seed, **switches)


def _control_ids() -> list[str]:
    try:
        return list(tasks())
    except ImportError:
        return []


def _make_gymnasium(
    id: str, num_envs: int, seed: int, render: bool, switches: dict[str, Any]
) -> VectorEnvironment:
    import gymnasium

    from .gymnasium_adapter import missing_extras

    module, _, name = id.rpartition(":")
    if module:
        importlib.import_module(module)
    if name not in _gymnasium_ids():
        raise _unknown(id)
    spec = gymnasium.spec(name)
    if "mujoco" in str(spec.entry_point):
        choose_backend()  # mujoco looks once, when it is imported
    with missing_extras():
        _refuse_unknown(switches, _gymnasium_switches(spec), id)
        if render:
            switches = {**switches, "render_mode": "rgb_array"}
        # Its checker looks at the first step only; check_environment looks at all of them.
        return _gymnasium_vector(
            lambda: gymnasium.make(spec, disable_env_checker=True, **switches), num_envs, seed
        )


def _gymnasium_vector(make_one: Callable[[], Any], num_envs: int, seed: int) -> VectorEnvironment:
    from .gymnasium_adapter import GymnasiumVector

    return GymnasiumVector(make_one, num_envs=num_envs, seed=seed)


def _gymnasium_ids() -> list[str]:
    """What is registered with Gymnasium, except Atari: `ALE/` ids have their own class here."""
    import gymnasium

    ours = {
        id
        for id, spec in gymnasium.registry.items()
        if spec.entry_point is not None and not str(spec.entry_point).startswith("ale_py")
    }
    return sorted(ours)


def _gymnasium_switches(spec: Any) -> set[str] | None:
    """The names that a registered environment takes; None when it takes any."""
    import gymnasium

    creator = spec.entry_point
    if not callable(creator):
        creator = gymnasium.envs.registration.load_env_creator(creator)
    if any(p.kind is p.VAR_KEYWORD for p in inspect.signature(creator).parameters.values()):
        return None
    return (_parameters(creator) | {"max_episode_steps"}) - {"render_mode"}


def _parameters(function: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(function).parameters)


def _refuse_unknown(switches: dict[str, Any], known: Iterable[str] | None, id: str) -> None:
    if known is None:
        return
    unknown = sorted(set(switches) - set(known))
    if unknown:
        allowed = ", ".join(sorted(known)) or "none"
        raise ValueError(f"{id} has no switch {', '.join(unknown)}; its switches are: {allowed}.")


def _unknown(id: str) -> ValueError:
    known = {name.lower(): name for name in known_environments()}
    nearest = [known[n] for n in difflib.get_close_matches(id.lower(), known, cutoff=0.4)]
    hint = f"the nearest known are {', '.join(nearest)}" if nearest else "see known_environments()"
    return ValueError(f"unknown environment {id!r}: {hint}.")
