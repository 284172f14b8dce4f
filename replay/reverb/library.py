"""The only module that imports Reverb, and with it TensorFlow: in order, silently, without a GPU.

The distributed tier takes both from here, or imports this module before Acme and Launchpad, which
import TensorFlow too.
"""

import warnings

try:
    with warnings.catch_warnings():
        # TensorFlow 2.8 reads np.bool8, and Reverb compares versions with distutils.
        warnings.filterwarnings("ignore", "`np.bool8` is a deprecated", DeprecationWarning)
        warnings.filterwarnings("ignore", "distutils Version classes", DeprecationWarning)
        import reverb
        import tensorflow
except ImportError as error:
    raise ModuleNotFoundError(
        "Reverb needs Python 3.10 on Linux and the distributed tier: pip install -r "
        f"requirements.txt ({error})."
    ) from error

# Only the learner may take the accelerator, and it does so through JAX.
tensorflow.config.set_visible_devices([], "GPU")

__all__ = ["reverb", "tensorflow"]
