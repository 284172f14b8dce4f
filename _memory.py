"""Memory of this machine, asked before it is taken."""

import ctypes

import psutil

GB = 1e9
_ARENA_MAX = -8  # `M_ARENA_MAX` of glibc's malloc.h


def check_memory(what: str, needed: float, rows: int = 0) -> None:
    """Refuses what needs more memory than is available.

    Args:
      what: needs it, as the beginning of a sentence.
      needed: bytes.
      rows: that the bytes are for, if fewer of them are an advice; 0 if not.

    Raises:
      ValueError: names both numbers.
    """
    available = psutil.virtual_memory().available
    if needed > available:
        fitting = f": at most {int(rows * available / needed)} rows fit" if rows else ""
        raise ValueError(
            f"{what} needs {needed / GB:.1f} GB, but only {available / GB:.1f} GB of memory are "
            f"available{fitting}."
        )


def use_one_arena() -> None:
    """Lets glibc's malloc use one arena from now on; does nothing with another C library.

    Each snapshot is written by new threads, and each thread takes one of many arenas. What these
    fragment adds up to about 0.1 MB a snapshot; with one arena to nothing.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, 1)
