"""The one place that imports rlax and distrax, and with them TensorFlow Probability.

TensorFlow Probability's JAX half needs no TensorFlow, but it looks for one: an old TensorFlow that
is already loaded makes its import fail, and one that is merely installed would be loaded for
nothing (400 MB, 2 s). So it is imported while TensorFlow looks absent.
"""

import sys
import warnings

_loaded = {name: sys.modules[name] for name in ("tensorflow",) if name in sys.modules}
sys.modules["tensorflow"] = None  # type: ignore[assignment]  # its import fails
try:
    with warnings.catch_warnings():
        # TensorFlow Probability reads names of JAX that are deprecated, in every release so far.
        warnings.filterwarnings("ignore", message="jax.*is deprecated", category=DeprecationWarning)
        import distrax
        import rlax
finally:
    del sys.modules["tensorflow"]
    sys.modules.update(_loaded)

__all__ = ["distrax", "rlax"]
