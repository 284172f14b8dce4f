"""Acts with an exported agent, without retrax: this file needs JAX and NumPy alone.

`retrax export RUN --output DIR` copies it to DIR/act.py, beside what it reads:

* `agent.json`: names, shapes and dtypes, the environment's spec, and versions;
* `parameters.npz`: the acting parameters;
* `begin.stablehlo`, `exploit.stablehlo`: the functions, as portable StableHLO.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

FORMAT = 1  # of agent.json

State = tuple[jax.Array, ...]


class Decision(NamedTuple):
    """Outputs of `ExportedAgent.act`."""

    action: jax.Array  # of agent.json's spec; to be ignored on a last step
    extras: dict[str, jax.Array]  # other outputs, by name; Reactor's `['mu']` is its policy
    state: State  # for the next time step


class ExportedAgent:
    """An exported agent: the policy of evaluation, for one environment.

    It is read from a directory, by default this file's; `description` is what agent.json holds. A
    ValueError says that the directory holds no exported agent, or one of another format.
    """

    def __init__(self, directory: Path | str | None = None):
        directory = Path(__file__).parent if directory is None else Path(directory)
        path = directory / "agent.json"
        if not path.is_file():
            raise ValueError(f"{directory} holds no exported agent: it has no agent.json.")
        self.description = json.loads(path.read_text(encoding="utf-8"))
        if self.description["format"] != FORMAT:
            raise ValueError(
                f"{path} has format {self.description['format']}, and this file reads {FORMAT}."
            )
        self._inputs = list(map(_shape, self.description["functions"]["exploit"]["inputs"]))
        with np.load(directory / "parameters.npz", allow_pickle=False) as arrays:
            found = [arrays[name] for name in self.description["parameters"]]
        # NumPy reads bfloat16 and the like as bytes.
        self._params = [
            jnp.asarray(array.view(like.dtype) if array.dtype.kind == "V" else array)
            for array, like in zip(found, self._inputs, strict=False)
        ]
        self._begin = _function(directory, "begin", self.description)
        self._exploit = _function(directory, "exploit", self.description)

    def begin(self, seed: int = 0) -> State:
        """The state before the first time step; `seed`, in 0 .. 2^32 - 1, draws the actions."""
        return tuple(self._begin(np.uint32(seed)))

    def act(
        self, state: State, step_type: Any, reward: Any, discount: Any, observation: Any
    ) -> Decision:
        """Acts at one time step; to be called on every one, the last one of an episode included.

        A ValueError refuses an argument of another shape, or values of another kind.

        Args:
          state: of the time step before, or of `begin`.
          step_type: 0 on the first time step of an episode, 2 on its last, else 1.
          reward: that arrived with the observation; 0 on a first step.
          discount: that arrived with it; 1 on a first step, 0 on termination.
          observation: as the spec in agent.json says.
        """
        arrived = (step_type, reward, discount, observation)
        names = ("step_type", "reward", "discount", "observation")
        checked = [fitting(*each) for each in zip(names, arrived, self._inputs[-4:], strict=True)]
        action, *rest = self._exploit(*self._params, *state, *checked)
        extras = self.description["extras"]
        named = dict(zip(extras, rest[: len(extras)], strict=True))
        return Decision(action, named, tuple(rest[len(extras) :]))


def fitting(name: str, value: Any, wanted: Any) -> np.ndarray:
    """A finite array of the wanted shape and type; a ValueError says what was given instead."""
    found = np.asarray(value)
    fits = found.shape == wanted.shape and np.can_cast(found.dtype, wanted.dtype, "same_kind")
    if not fits or not np.isfinite(found).all():
        raise ValueError(
            f"{name} must be finite, {wanted.dtype} of shape {wanted.shape}, got {found.dtype} of "
            f"shape {found.shape}{' that is not finite' * fits}."
        )
    return found.astype(wanted.dtype)


def _function(directory: Path, name: str, description: dict[str, Any]) -> Any:
    """A function of flat arguments.

    Only StableHLO and shapes are stored. What else JAX keeps of an exported function is taken from
    one of the same shapes, since JAX's own files differ between versions and need another library.
    """
    form = description["functions"][name]
    outputs = [_shape(x) for x in form["outputs"]]
    like = jax.export.export(
        jax.jit(lambda *_: [jnp.zeros(x.shape, x.dtype) for x in outputs], keep_unused=True),
        platforms=description["platforms"],
    )(*(_shape(x) for x in form["inputs"]))
    exported = dataclasses.replace(
        like,
        mlir_module_serialized=(directory / f"{name}.stablehlo").read_bytes(),
        calling_convention_version=description["calling_convention_version"],
    )
    return jax.jit(exported.call)


def _shape(form: Any) -> jax.ShapeDtypeStruct:
    shape, dtype = form
    return jax.ShapeDtypeStruct(tuple(shape), jnp.dtype(dtype))
