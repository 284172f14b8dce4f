"""Downsampling of pictures, bit for bit as in ale-py's vectorised environment.

ale-py uses OpenCV's `INTER_AREA`: each new pixel is the mean of the old pixels that it covers,
weighted by the covered area. OpenCV adds float32 numbers in a fixed order, columns before rows. Its
sums often lie exactly between two grey levels, so the order of the additions matters.
"""

import functools

import numpy as np

_NEGLIGIBLE = 1e-3  # OpenCV ignores old pixels of which less is covered


def area_resize(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """Reduces the number of pixels.

    Args:
      picture: uint8 `[H, W]`, H >= `height` and W >= `width`.
      height: rows of the result.
      width: columns of the result.

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
    """Old lines and their weights, `[most, count]` each; padding has weight 0."""
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
