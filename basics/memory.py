"""Memory of this machine, asked before it is taken."""

import psutil

GB = 1e9


def check_memory(
    what: str, needed: float, rows: int = 0, *, available: float | None = None
) -> None:
    """Raises ValueError, which names both numbers, if more memory is needed than available.

    Args:
      what: needs it, as the beginning of a sentence.
      needed: bytes.
      rows: that the bytes are for, if fewer of them are an advice.
      available: bytes; this machine's if None.
    """
    if available is None:
        available = psutil.virtual_memory().available
    if needed > available:
        fitting = f": at most {int(rows * available / needed)} rows fit" if rows else ""
        raise ValueError(
            f"{what} needs {needed / GB:.1f} GB, but only {available / GB:.1f} GB of memory are "
            f"available{fitting}."
        )
