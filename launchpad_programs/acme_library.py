"""Acme's interfaces, imported after what must be imported before them."""

# Acme imports TensorFlow and Reverb, which the other module imports in order and silently.
from ..replay import reverb_library  # isort: skip

try:
    import acme
except ImportError as error:
    raise ModuleNotFoundError(f"{reverb_library.MISSING} ({error}).") from error

__all__ = ["acme"]
