"""Trained agents as plain files that act without retrax: `retrax export`."""

import dataclasses
import os
import platform
import shutil
import tempfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, get_args

import jax
import jax.export
import numpy as np
from dm_env import specs

from .. import __version__
from ..agents.conformance import timestep_shape
from ..agents.trained import TrainedAgent
from ..basics.files import write_json, writing
from ..basics.prng_keys import with_keys, without_keys
from ..basics.sentences import first_line
from ..datatypes import TimeStep
from ..evaluation.arguments import checked
from ..training.run_config import write_config
from . import exported_agent
from .trained import load_agent

Platform = Literal["cpu", "cuda", "rocm", "tpu"]
_PATHS = "jax_hlo_source_file_canonicalization_regex"  # of JAX


@checked
def export(
    run: Path | str,
    output: Path | str,
    *,
    snapshot: int | str = "newest",
    platforms: Sequence[Platform] = ("cpu", "cuda", "tpu"),
) -> Path:
    """Writes the trained agent of a run as files that act without retrax: all of them, or none.

    Args:
      run: the run directory.
      output: the directory to write, which is empty or does not exist: act.py, agent.json,
        config.json, parameters.npz, and the functions as StableHLO.
      snapshot: `newest`, a number of steps, or `best`: see `retrax evaluate`.
      platforms: where the functions can run: at least one of cpu, cuda, rocm, tpu.

    Raises:
      ValueError: the output is not empty, a platform is unknown or lacks what the agent needs, or
        `load_agent` refuses the run.
    """
    run, output = Path(run).absolute(), Path(output)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ValueError(f"The output {output} must be a new directory or an empty one.")
    unknown = [name for name in platforms if name not in get_args(Platform)]
    if unknown or not platforms:
        allowed, given = ", ".join(get_args(Platform)), ", ".join(unknown) or "none"
        raise ValueError(f"platforms must be some of {allowed}, got {given}.")
    place = output.resolve()  # links, too; the environment may change the working directory
    trained = load_agent(run, snapshot)
    (functions, names), before = _flat_functions(trained), getattr(jax.config, _PATHS)
    jax.config.update(_PATHS, ".*")  # no paths of this machine's source files are in the files
    try:
        exported = {}
        for name, (function, inputs) in functions.items():
            jitted = jax.jit(function, keep_unused=True)
            exported[name] = jax.export.export(jitted, platforms=tuple(platforms))(*inputs)
    except NotImplementedError as error:
        what = f"{trained.config.agent} cannot be exported for {', '.join(platforms)}"
        raise ValueError(f"{what}: {first_line(error).rstrip('.')}.") from error
    finally:
        jax.config.update(_PATHS, before)
    leaves = jax.device_get(jax.tree.leaves(without_keys(trained.params)))
    params = dict(zip(names["parameters"], leaves, strict=True))
    with writing(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = tempfile.TemporaryDirectory(prefix=f".{place.name}-", dir=place.parent)
        with temporary as new:
            directory = Path(new)
            np.savez(directory / "parameters.npz", **params)
            for name, function in exported.items():
                (directory / f"{name}.stablehlo").write_bytes(function.mlir_module_serialized)
            write_json(directory / "agent.json", _description(trained, exported, names))
            write_config(directory, dataclasses.replace(trained.config, search_path=""))
            shutil.copyfile(exported_agent.__file__, directory / "act.py")
            os.chmod(directory, 0o755)  # a temporary one is private
            os.replace(directory, place)
    return output


def _flat_functions(trained: TrainedAgent) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """`begin` and `exploit` of flat arrays without PRNG keys, their inputs, and names of arrays."""
    agent, params = trained.agent, trained.params

    def begin(seed: jax.Array) -> list[jax.Array]:
        return jax.tree.leaves(without_keys(trained.begin(jax.random.key(seed))))

    def exploit(*arrays: jax.Array) -> list[jax.Array]:
        timestep = TimeStep(*arrays[-4:])
        inner, state = with_keys(templates, jax.tree.unflatten(structure, arrays[:-4]))
        decision = agent.exploit(inner, state, timestep)
        return jax.tree.leaves(without_keys((decision.action, decision.extras, decision.state)))

    templates = params, jax.eval_shape(trained.begin, jax.random.key(0))
    structure = jax.tree.structure(templates)
    timestep = timestep_shape(trained.spec)
    extras = jax.eval_shape(agent.exploit, *templates, timestep).extras
    inputs = [*jax.tree.leaves(jax.eval_shape(without_keys, templates)), *timestep]
    seed = jax.ShapeDtypeStruct((), np.uint32)
    named = {"parameters": params, "extras": extras, "state": templates[1]}
    return {"begin": (begin, [seed]), "exploit": (exploit, inputs)}, {
        name: [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]
        for name, tree in named.items()
    }


def _description(
    trained: TrainedAgent, exported: dict[str, jax.export.Exported], names: dict[str, list[str]]
) -> dict[str, Any]:
    """What agent.json holds: JSON values."""
    exploit, config, spec = exported["exploit"], trained.config, trained.spec
    libraries = {name: metadata.version(name) for name in ("jax", "jaxlib", "numpy")}
    actions = _form(spec.actions)
    if isinstance(spec.actions, specs.DiscreteArray):
        actions["num_values"] = int(spec.actions.num_values)
    else:
        for name in ("minimum", "maximum"):
            actions[name] = np.broadcast_to(getattr(spec.actions, name), actions["shape"]).tolist()
    return {
        "format": exported_agent.FORMAT,
        "agent": config.agent,
        "environment": config.environment,
        "steps": trained.steps,
        "spec": {
            "observations": _form(spec.observations),
            "actions": actions,
            "max_episode_steps": spec.max_episode_steps,
        },
        "versions": {"retrax": __version__, "python": platform.python_version(), **libraries},
        "platforms": list(exploit.platforms),
        "calling_convention_version": exploit.calling_convention_version,
        "functions": {
            name: {
                "inputs": [[*_form(x).values()] for x in function.in_avals],
                "outputs": [[*_form(x).values()] for x in function.out_avals],
            }
            for name, function in exported.items()
        },
        **names,
    }


def _form(array: Any) -> dict[str, Any]:
    return {"shape": list(array.shape), "dtype": str(array.dtype)}
