"""One way to make every kind of environment, by its id or by a function that makes it."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import dm_env
import numpy as np
from dm_env import specs

from ..basics.imports import import_from, registered, registered_names
from ..basics.sentences import did_you_mean
from ..datatypes import DEFAULT_LIMIT, EnvironmentSpec, VectorEnvironment
from .arrival import integer_seeds, is_pool
from .failures import RefusedError, closed_on_error, failure, one_sentence
from .mujoco import choose_backend
from .pure import PureEnvironment, PureVector
from .pure_tasks import PureCartPole, PureCatch, PureDeepSea, PureMemory, PurePendulum
from .suites import SUITES, as_pure, is_written_in_jax, make_suite
from .switches import BSUITE_PREFIX, COMMON, CONTROL_PREFIX, parameters, split, values

# Gymnasium and ale-py are imported where they are needed: they take longer than the tasks do.

GROUP = "retrax.environments"  # of entry points
LIMIT = "max_episode_steps"  # a switch of every environment that is not a vector
OURS: dict[str, Callable[..., PureEnvironment]] = {
    "catch": PureCatch,
    "memory": PureMemory,
    "deep_sea": PureDeepSea,
    "noisy_deep_sea": functools.partial(PureDeepSea, screen=16),
}
_IN_JAX = {"CartPole-v1": PureCartPole, "Pendulum-v1": PurePendulum}  # on a device
_ALE, _MINATAR, _POOL = "ALE/", "MinAtar/", "envpool:"
_METHODS = ("reset", "step", "render", "close")


class _Request(NamedTuple):
    seed: int
    num_envs: int
    render: bool
    evaluation: bool
    switches: dict[str, Any]


def make(
    id: str | Callable[..., Any],
    *,
    seed: int = 0,
    num_envs: int = 1,
    render: bool = False,
    evaluation: bool = False,
    search_path: Path | None = None,
    **switches: Any,
) -> VectorEnvironment:
    """Makes a vector of environments.

    An id (docs/environments.md has all forms) is one of

    * `known_environments()`: a task of our own, an Atari game, a task of the control suite, any id
      registered with Gymnasium, or an entry point of the group `retrax.environments`;
    * `SUITE:NAME`: bsuite, envpool, and in JAX brax, craftax, gymnax, jumanji, pgx, xminigrid;
    * `my_module:MyEnvironment-v0`: imports `my_module`, then makes the Gymnasium id;
    * `my_module:NAME`, where NAME is a function or a class of that module.

    An entry point, NAME, or a function given in place of an id is called as follows. If it has the
    parameters `num_envs` and `seed`, it returns a `VectorEnvironment` or what
    `from_gymnasium_vector` takes. Any other one is called once for each environment and returns a
    `gymnasium.Env`, a `dm_env.Environment`, a `PureEnvironment` or an environment of gymnax's form;
    it may have the parameters `seed` (a different one for each environment) and `render_mode`
    ("rgb_array" if `render`). Its other parameters are switches, and so is `max_episode_steps`,
    after which episodes are cut off.

    Args:
      id: the id, or a function. Switches may follow an id, where only text can be given:
        "deep_sea,size=20,screen=4".
      seed: >= 0. The episodes of environment e depend on `seed` and e alone, as long as all random
        numbers come from Gymnasium's `np_random` and spaces, from JAX's keys, or from a parameter
        `seed` of the function that makes it.
      num_envs: E >= 1.
      render: whether `render()` will be called; needed for Gymnasium's environments, and for
        Atari games in colour, if `EmulatedAtari` has all their switches.
      evaluation: whether to leave out switches that are for training only: Atari's `episodic_life`
        and `clip_rewards`; of functions and classes, what their attribute `training_only` names.
      search_path: the directory from which `my_module` may be imported, besides the Python path;
        the current directory when None.
      **switches: options of the environment: `length` for "memory", arguments of
        `retrax.environments.pure_tasks.PureDeepSea` for "deep_sea" and of
        `retrax.environments.atari.Atari` for Atari games (frame_stack, full_action_set, ...),
        `time_limit` for the control suite, and the constructor's arguments and `max_episode_steps`
        for a Gymnasium id.

    Raises:
      ValueError: the id is unknown or registered twice, `my_module` cannot be imported, a function
        returns something that is not an environment, the environment has no such switch, a switch
        in the id is not NAME=VALUE, an argument is out of its range, a space is not supported, or
        the environment's own code raises an error.
      ImportError: the environment needs what is not installed; the message names it.
    """
    request = _Request(seed, num_envs, render, evaluation, switches)
    if callable(id):
        return _make_custom(id, "an environment made by a function", request)
    id, named = split(id)
    try:
        return _make(id, search_path, request._replace(switches={**named, **switches}))
    except MemoryError as error:
        raise failure(f"{id} cannot be made", error) from error


def known_environments() -> list[str]:
    """The ids for `make`: ours, Gymnasium's, Atari's, entry points; dm_control's if installed."""
    from .atari import games
    from .dm_env_adapter import tasks

    try:
        suite = list(tasks())
    except ImportError:
        suite = []
    known = [*OURS, *_gymnasium_ids(), *games(), *suite, *registered_names(GROUP)]
    return list(dict.fromkeys(known))


def make_pure_vector(
    id: str, *, seed: int = 0, num_envs: int = 1, search_path: Path | None = None
) -> PureVector:
    """As `make`, of environments in JAX; "CartPole-v1" and "Pendulum-v1" have a form in it, too."""
    name, switches = split(id)
    if name in _IN_JAX:
        made = _make_custom(_IN_JAX[name], name, _Request(seed, num_envs, False, False, switches))
    else:
        made = make(id, seed=seed, num_envs=num_envs, search_path=search_path)
    if not isinstance(made, PureVector):
        made.close()
        known = ", ".join([*OURS, *_IN_JAX, *(f"{suite}:ID" for suite in SUITES), "module:NAME"])
        raise ValueError(
            f"{name} is not an environment written in JAX: allowed are {known} "
            "(MinAtar's games are pgx:minatar-breakout, ...)."
        )
    return made


def _make(id: str, search_path: Path | None, request: _Request) -> VectorEnvironment:
    if (maker := _our_maker(id)) is not None:
        common: dict[str, Any] = {"num_envs": request.num_envs, "seed": request.seed}
        switches = values(request.switches, maker, id, evaluation=request.evaluation, strict=True)
        if request.render and id.startswith(_ALE):
            from .atari import EmulatedAtari

            if switches.keys() <= parameters(EmulatedAtari):  # which draws in colour
                maker = functools.partial(EmulatedAtari, *maker.args)
        if parameters(maker) >= COMMON:
            return maker(**common, **switches)
        return PureVector(maker(**switches), **common, name=id)
    if id.startswith(_POOL):
        return _make_custom(functools.partial(_make_pool, id.removeprefix(_POOL)), id, request)
    if ":" in id:
        module_name, _, name = id.rpartition(":")
        module = import_from(module_name, search_path)
        if name in _gymnasium_ids():  # first: it may add a time limit to a class of the same name
            return _make_gymnasium(name, request)
        if hasattr(module, name):
            return _make_custom(getattr(module, name), id, request)
        makers = [key for key, value in vars(module).items() if callable(value) and key[0] != "_"]
        raise ValueError(
            f"module {module_name!r} has no attribute {name!r} and registers no Gymnasium id "
            f"{name!r}{did_you_mean(name, [*makers, *_gymnasium_ids()], most=3)}."
        )
    if id.startswith(_MINATAR):
        with one_sentence(f"{id} cannot be made"):
            from minatar.gym import register_envs  # under GPL-3, and so for these ids alone
        if not any(known.startswith(_MINATAR) for known in _gymnasium_ids()):
            register_envs()
    if id in _gymnasium_ids():
        return _make_gymnasium(id, request)
    found = registered(GROUP, id)
    if found is None:
        raise _unknown(id)
    return _make_custom(found, id, request)


def _our_maker(id: str) -> Any:
    """What makes an id for which there is a class here; its parameters are switches."""
    if id in OURS:
        return OURS[id]
    suite, _, name = id.partition(":")
    if suite in SUITES:
        return functools.partial(make_suite, suite, name)
    if id.startswith(BSUITE_PREFIX):
        from .dm_env_adapter import BsuiteVector

        return functools.partial(BsuiteVector, name)
    if id.startswith(_ALE):
        from .atari import Atari, games

        known: dict[str, Any] = {each: (game,) for each, game in games().items()}
        kind: Any = Atari
    elif id.startswith(CONTROL_PREFIX):
        from .dm_env_adapter import ControlSuite, tasks

        known, kind = tasks(), ControlSuite
    else:
        return None
    if id not in known:
        raise _unknown(id)
    return functools.partial(kind, *known[id])


def _make_pool(name: str, *, num_envs: int, seed: int, **config: Any) -> Any:
    """A pool, by EnvPool's own id or the control suite's name: `FingerSpin-v1`, `finger-spin`."""
    import envpool

    known, title = envpool.list_all_envs(), name.title().replace("-", "").replace("_", "")
    if (id := name if name in known else f"{title}-v1") not in known:
        raise RefusedError(f"EnvPool has no environment {name!r}{did_you_mean(name, known)}.")
    config = {"seed": int(integer_seeds(seed, 1)[0]), "render_mode": "rgb_array", **config}
    return envpool.make_gymnasium(id, num_envs=num_envs, **config)


def _make_gymnasium(id: str, request: _Request) -> VectorEnvironment:
    import gymnasium

    from .gymnasium_adapter import GymnasiumVector

    spec = gymnasium.spec(id)
    creator, defaults = spec.entry_point, {**spec.kwargs, LIMIT: DEFAULT_LIMIT}
    if "mujoco" in str(creator):
        choose_backend()  # mujoco reads it once, on import
    if not callable(creator):
        with one_sentence(f"{id} cannot be made"):
            creator = gymnasium.envs.registration.load_env_creator(creator)
    given, evaluation = request.switches, request.evaluation
    switches = values(
        given, creator, id, defaults=defaults, evaluation=evaluation, hidden="render_mode"
    )
    if request.render:
        switches["render_mode"] = "rgb_array"

    environments: list[Any] = []
    with closed_on_error(environments), one_sentence(f"{id} cannot be made"):
        for _ in range(request.num_envs):
            # Its checker checks the first step only; check_environment checks all of them.
            environments.append(gymnasium.make(spec, disable_env_checker=True, **switches))
    return GymnasiumVector(environments, seed=request.seed)


def _gymnasium_ids() -> list[str]:
    """What is registered with Gymnasium, except Atari: `ALE/` ids have their own class here."""
    import gymnasium

    return sorted(
        id
        for id, spec in gymnasium.registry.items()
        if spec.entry_point is not None and not str(spec.entry_point).startswith("ale_py")
    )


def _unknown(id: str) -> ValueError:
    hint = did_you_mean(id, known_environments(), most=3)
    return ValueError(f"unknown environment {id!r}{hint or ': see known_environments()'}.")


def _make_custom(maker: Any, name: str, request: _Request) -> VectorEnvironment:
    if not callable(maker):
        raise ValueError(
            f"{name} must be a function or a class that makes an environment; its type is "
            f"{type(maker).__name__}."
        )
    seed, num_envs, render, evaluation, switches = request
    names, seeds = parameters(maker), [int(s) for s in integer_seeds(seed, num_envs)]
    is_vector = names >= COMMON
    defaults = {} if is_vector else {LIMIT: DEFAULT_LIMIT}
    switches = values(switches, maker, name, defaults=defaults, evaluation=evaluation)
    if is_vector:
        with one_sentence(f"{name} cannot be made"):
            made = maker(**switches, num_envs=num_envs, seed=seed)
        with closed_on_error([made] if hasattr(made, "close") else []):
            return as_vector(made, f"the result of {name}", num_envs=num_envs, seed=seed)
    limit = {LIMIT: switches.pop(LIMIT)} if LIMIT in switches.keys() - names else {}
    if render and "render_mode" in names:
        switches = {"render_mode": "rgb_array", **switches}
    environments: list[Any] = []
    with closed_on_error(environments):
        for each in seeds:
            seeded = {**switches, "seed": each} if "seed" in names else switches
            with one_sentence(f"{name} cannot be made"):
                environments.append(maker(**seeded))
            if is_jax := is_written_in_jax(environments[0]):
                break
    if is_jax:
        with one_sentence(f"{name} cannot be made"):  # where it is not hashable
            pure = as_pure(environments[0], **limit)
        return PureVector(pure, num_envs=num_envs, seed=seed, name=name)
    return _vector(environments, name, seed, limit)


def from_gymnasium_vector(vector: Any, *, seed: int | None = None) -> VectorEnvironment:
    """A `gymnasium.vector.VectorEnv`, or a pool of EnvPool, as a `VectorEnvironment`.

    Each environment takes the steps that it would take alone. The vector's autoreset mode
    (`metadata["autoreset_mode"]`) must be NEXT_STEP, Gymnasium's default and EnvPool's: the step
    after a last one begins the next episode.

    Args:
      vector: the environments, owned by the result.
      seed: of the first `reset`; as Gymnasium's vectors take it, environment e gets `seed + e`.
        None passes no seed. EnvPool takes its seed where a pool is made.

    Raises:
      ValueError: it is neither, it has another autoreset mode, a space is not supported, or a pool
        is asynchronous (`batch_size` below `num_envs`).
    """
    from .gymnasium_adapter import GymnasiumVectorAdapter  # takes longer than the rest

    return GymnasiumVectorAdapter(vector, seed=seed)


def as_vector(made: Any, name: str, *, num_envs: int, seed: int) -> VectorEnvironment:
    """A `VectorEnvironment` of a vector, a `gymnasium.Env` or a `dm_env.Environment`."""
    needed = f"{name} must be a VectorEnvironment, but it is a {type(made).__name__}"
    with one_sentence(f"{name} cannot be read"):
        missing = [each for each in _METHODS if not callable(getattr(made, each, None))]
        spec, count = getattr(made, "spec", None), getattr(made, "num_envs", None)
    if not isinstance(spec, EnvironmentSpec):
        import gymnasium  # takes longer than the rest

        if isinstance(made, gymnasium.vector.VectorEnv):
            # No seed + e: runs of neighbouring seeds would share episodes. Pools have theirs.
            number = None if is_pool(made) else int(integer_seeds(seed, 1)[0])
            adapter = from_gymnasium_vector(made, seed=number)
            return as_vector(adapter, name, num_envs=num_envs, seed=seed)
        if isinstance(made, gymnasium.Env | dm_env.Environment):
            if num_envs == 1:
                return _vector([made], name, seed, {})
            raise ValueError(
                f"{name} must have {num_envs} environments (num_envs), but it is a single "
                f"{type(made).__name__}: give a vector, or a function that makes one."
            )
    if missing:
        raise ValueError(f"{needed}, which has no {', '.join(missing)}.")
    if not (isinstance(spec, EnvironmentSpec) and isinstance(spec.observations, specs.Array)):
        raise ValueError(f"{needed} whose spec is {spec!r:.60}, not an EnvironmentSpec of arrays.")
    if not isinstance(count, int | np.integer) or count != num_envs:
        raise ValueError(f"{name} has {count!r} environments instead of {num_envs}.")
    return made


def _vector(
    environments: list[Any], name: str, seed: int, limit: dict[str, Any]
) -> VectorEnvironment:
    if all(isinstance(one, dm_env.Environment) for one in environments):
        from .dm_env_adapter import DmEnvVector

        return DmEnvVector(environments, **limit)
    import gymnasium  # takes longer than the rest

    if isinstance(environments[0], gymnasium.vector.VectorEnv):
        raise ValueError(
            f"{name} returns a vector of environments, so it must have the parameters num_envs and "
            "seed: it is called once for all of them."
        )
    if not all(isinstance(one, gymnasium.Env) for one in environments):
        raise ValueError(
            f"{name} must return a gymnasium.Env or a dm_env.Environment; the type of its result "
            f"is {type(environments[0]).__name__}."
        )
    from .gymnasium_adapter import GymnasiumVector

    return GymnasiumVector(environments, seed=seed, **limit)
