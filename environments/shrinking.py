"""Pictures made smaller, bit for bit as ale-py's vectorised environment does it.

There it is OpenCV's `INTER_AREA`: each new pixel is the mean of the old ones that it covers, those
at its edges counting with the part that it covers. OpenCV adds float32 numbers in a fixed order,
columns before rows, and its sums often lie exactly between two grey levels: the order decides.
"""

import functools

import numpy as np

_NEGLIGIBLE = 1e-3  # OpenCV leaves out what covers less of an old pixel


def shrink(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """The picture with fewer pixels.

    Args:
      picture: uint8 `[H, W]`, H >= `height` and W >= `width`.
      height: rows wanted.
      width: columns wanted.

    Returns:
      uint8 `[height, width]`.
    """
    narrow = _combine(picture.astype(np.float32).T, width).T
    return np.rint(_combine(narrow, height)).astype(np.uint8)


def _combine(lines: np.ndarray, count: int) -> np.ndarray:
    """Weighted sums of neighbouring lines: float32 `[N, ...]` to `[count, ...]`."""
    indices, weights = _cover(len(lines), count)
    total = np.zeros((count, *lines.shape[1:]), np.float32)
    for index, weight in zip(indices, weights, strict=True):
        total += lines[index] * weight[:, None]
    return total


@functools.cache
def _cover(size: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Old lines and their weights, `[most, count]` each; lines that are not needed weigh 0."""
    scale, covers = size / count, []
    for new in range(count):
        begin = new * scale
        end = min(begin + scale, size)
        parts = [(old, min(end, old + 1) - max(begin, old)) for old in range(int(begin), size)]
        covers.append([(old, part / (end - begin)) for old, part in parts if part > _NEGLIGIBLE])
    most = max(map(len, covers))
    padded = [cover + [(0, 0.0)] * (most - len(cover)) for cover in covers]
    indices = np.array([[old for old, _ in cover] for cover in padded], np.intp)
    weights = np.array([[weight for _, weight in cover] for cover in padded], np.float32)
    return indices.T, weights.T
