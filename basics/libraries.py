"""The one place that imports rlax and distrax, and with them TensorFlow Probability.

TensorFlow Probability's JAX half needs no TensorFlow, but it looks for one: an old TensorFlow that
is already loaded makes its import fail, and one that is merely installed would be loaded for
nothing (400 MB, 2 s). So it is imported while TensorFlow looks absent. Everything in the package
takes rlax and distrax from here.
"""

import contextlib
import sys
import warnings
from collections.abc import Iterator

_MISSING = object()


@contextlib.contextmanager
def _without_tensorflow() -> Iterator[None]:
    """Makes `import tensorflow` fail inside, and leaves what was loaded as it was."""
    loaded = sys.modules.get("tensorflow", _MISSING)
    sys.modules["tensorflow"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if loaded is _MISSING:
            del sys.modules["tensorflow"]
        else:
            sys.modules["tensorflow"] = loaded  # type: ignore[assignment]


with _without_tensorflow(), warnings.catch_warnings():
    # TensorFlow Probability reads names of JAX that are deprecated, in every release so far.
    warnings.filterwarnings("ignore", message="jax.*is deprecated", category=DeprecationWarning)
    import distrax
    import rlax

__all__ = ["distrax", "rlax"]
