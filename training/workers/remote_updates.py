"""A worker's updates: gradients that a parameter server applies."""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...agents.base import Agent, Gradients, LearnerState, Update
from ...basics.prng_keys import is_key
from ...datatypes import Sample
from ...replay.packing import TreePacking
from ..learner import Updates, check_finite, update_shapes
from ..parameters import Get
from .server import Call, Receipt, StatePacking

STALENESS = "gradient_staleness"
DROPPED = "gradients_dropped"  # share of the gradients
REMOTE_METRICS = (STALENESS, DROPPED)  # added to those of the agent's updates

Apply = Callable[[int, Call, int, bytes], Receipt]


class RemoteUpdates(Updates):
    """Updates whose gradients are computed here and applied elsewhere.

    The state that it is given and returns is a copy of the server's at the newest fetch. What
    workers do not need of it, such as optimiser states, keeps its initial values.

    Gradients of one version, those of other workers included, draw different noise: the PRNG keys
    in the state are folded with a number of the worker and the gradient. Number 0 keeps the keys,
    so that a single worker draws what one process draws.

    Attributes:
      version: of the copy, -1 before the first fetch.
      waited_seconds: time in which the worker waited for answers of the server.
    """

    def __init__(
        self,
        agent: Agent,
        gradients: TreePacking,
        states: StatePacking,
        *,
        apply: Apply,
        get: Get,
        worker: int = 0,
        restarts: int = 0,
        gradients_per_fetch: int = 1,
        fetches_first: bool = True,
        lost: Callable[[int], None],
    ):
        """Updates of worker number `worker`; packings and calls are those of its `GradientServer`.

        Where `fetches_first`, a fetch precedes the gradient (Reactor, 3.5), which is then of the
        newest parameters; if not, it follows the gradient, and the worker acts with what its next
        gradient is computed of (ACER, Algorithm 2). `lost` is called with the version of the copy
        when the server has restarted with an older one.
        """
        super().__init__(agent)
        self._agent, self._packing, self._states = agent, gradients, states
        self._apply, self._get, self._lost = apply, get, lost
        self._worker, self._restarts, self._calls = worker, restarts, itertools.count()
        self._per_fetch, self._fetches_first = gradients_per_fetch, fetches_first
        self._sent = 0
        self.version = -1
        self.waited_seconds = 0.0

        def compute(state: LearnerState, sample: Sample, number: int) -> tuple[Gradients, Update]:
            return agent.gradients(_with_own_keys(state, number), sample)

        self._compute = jax.jit(compute)

    def __call__(
        self, state: LearnerState, sample: Sample, count: int
    ) -> tuple[LearnerState, Update]:
        """One call of updates, each a gradient; priorities and metrics are on the host.

        Raises:
          FloatingPointError: priorities are not finite; the gradient is not sent.
        """
        outputs = []
        for index in range(count):
            since_fetch = self._sent % self._per_fetch
            if self._fetches_first and since_fetch == 0:
                state = self.newest(state)
            batch = jax.tree.map(lambda x, i=index: np.split(x, count)[i], sample)
            number = self._worker * self._per_fetch + since_fetch
            grads, update = self._compute(state, batch, number)
            update = jax.device_get(update)
            check_finite(update, self._sent, 1)
            receipt = self._send(grads)
            sent: dict[str, Any] = {STALENESS: receipt.staleness, DROPPED: not receipt.applied}
            outputs.append(Update(update.priorities, {**update.metrics, **sent}))
            if not self._fetches_first and self._sent % self._per_fetch == 0:
                state = self.newest(state)
        return state, _joined(outputs)

    def metric_names(self, state: LearnerState, sample: Sample, count: int) -> list[str]:
        """Those of the agent's updates, sorted, and `REMOTE_METRICS`."""
        return metric_names(self._agent, state, update_shapes([sample], count)[0])

    def compile(self, state: LearnerState, shapes: Sequence[Sample], count: int) -> None:
        """Compiles the gradients of single updates; sends nothing."""
        for shape in update_shapes(shapes, count):
            self._compute(state, jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shape), 0)

    def newest(self, state: LearnerState) -> LearnerState:
        """Fetches the server's state, of which this is a copy; the given one if it is as new."""
        version, blob = self._timed(self._get, self.version)
        if blob is None:
            return state
        if version < self.version:
            self._lost(self.version)
        self.version = version
        return self._states.unpack(state, blob)

    def running(self, state: LearnerState) -> dict[str, Any]:
        """The copy, its version, and how many gradients were sent: plain data."""
        copy = self._states.pack(state)
        return {"version": self.version, "sent": self._sent, "copy": copy}

    def restore_running(self, state: LearnerState, saved: Mapping[str, Any]) -> LearnerState:
        """The copy that `running` was given, made from another one."""
        self.version, self._sent = saved["version"], saved["sent"]
        return self._states.unpack(state, saved["copy"])

    def _send(self, gradients: Gradients) -> Receipt:
        call = self._restarts, next(self._calls)
        self._sent += 1
        blob = self._packing.pack(gradients)
        return Receipt(*self._timed(self._apply, self._worker, call, self.version, blob))

    def _timed(self, method: Callable[..., Any], *arguments: Any) -> Any:
        started = time.monotonic()
        answer = method(*arguments)
        self.waited_seconds += time.monotonic() - started
        return answer


def metric_names(agent: Agent, state: LearnerState, sample: Sample) -> list[str]:
    """Names of the metrics of a worker's updates, for one update's sample."""
    _, update = jax.eval_shape(agent.gradients, state, sample)
    return [*sorted(update.metrics), *REMOTE_METRICS]


def _with_own_keys(state: LearnerState, number: int) -> LearnerState:
    """The state with its PRNG keys folded with a number; as it is for number 0."""

    def folded(leaf: jax.Array) -> jax.Array:
        if not is_key(leaf):
            return leaf
        fold = jax.random.fold_in
        for _ in leaf.shape:
            fold = jax.vmap(fold, in_axes=(0, None))
        return jnp.where(number == 0, leaf, fold(leaf, number))

    return jax.tree.map(folded, state)


def _joined(outputs: Sequence[Update]) -> Update:
    """The priorities of all updates, and the means of their metrics."""
    if len(outputs) == 1:
        return outputs[0]
    metrics = jax.tree.map(lambda *x: np.mean(x), *(update.metrics for update in outputs))
    priorities: Any = np.concatenate([update.priorities for update in outputs])
    return Update(priorities, metrics)
