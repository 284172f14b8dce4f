"""Videos of episodes: MP4 and GIF."""

import subprocess
from pathlib import Path
from typing import Any

import numpy as np

_SMALL = 200  # pixels; Atari's frames have 210
_ENLARGED = 400
_MISSING = 'Writing videos needs imageio and its ffmpeg: pip install "retrax[video]".'


class VideoWriter:
    """Writes frames to a video: `with VideoWriter(path) as video: video.append(frame)`.

    The file replaces an existing one when it is complete, at the end of the `with` block. If an
    exception ends the block, no file remains. MP4 is H.264 with an even number of rows and columns
    (the last one is repeated if needed). GIF has a time resolution of a hundredth of a second, and
    at most 50 frames per second: viewers slow faster ones down. Frames whose longer side has less
    than 200 pixels, such as a grid's, are enlarged by a whole factor.

    Args:
      path: the file, `.mp4` or `.gif`. Its directory is created if it does not exist.
      frames_per_second: > 0; if None, 30, or 5 for frames that are enlarged.

    Raises:
      ValueError: another suffix, or `frames_per_second` is not positive.
      ImportError: imageio or imageio-ffmpeg is missing; the message names what to install.
    """

    def __init__(self, path: Path, frames_per_second: float | None = None) -> None:
        path = Path(path)
        if path.suffix.lower() not in _ENCODERS:
            raise ValueError(f"A video must end in .mp4 or .gif, got {path}.")
        if frames_per_second is not None and not frames_per_second > 0:
            raise ValueError(f"frames_per_second must be positive, got {frames_per_second}.")
        try:
            import imageio.v2  # noqa: F401 - only checks that they are installed
            import imageio_ffmpeg  # noqa: F401
        except ImportError:
            raise ImportError(_MISSING) from None
        self._path = path
        self._partial = path.with_name(f".{path.stem}.partial{path.suffix.lower()}")
        self._frames_per_second = frames_per_second
        self._inside = False
        self._encoder: Any = None

    def __enter__(self) -> "VideoWriter":
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._inside, self._encoder = True, None
        return self

    def __exit__(self, kind: Any, *error: object) -> None:
        self._inside = False
        try:
            if self._encoder is not None:
                self._encoder.close()
            if kind is None and self._encoder is None:
                raise ValueError(f"No frame was given for {self._path}.")
            if kind is None:
                self._partial.replace(self._path)
        finally:
            self._partial.unlink(missing_ok=True)

    def append(self, frame: np.ndarray) -> None:
        """Adds a frame, uint8 `[height, width, 3]`: red, green and blue; all have one size.

        Raises:
          ValueError: the frame is not such an array, or its size differs from the first one's.
          RuntimeError: called outside the `with` block, or ffmpeg failed (with its message).
        """
        if not self._inside:
            raise RuntimeError("Frames can be added only inside `with VideoWriter(...) as video`.")
        frame = np.asarray(frame)
        if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[-1] != 3:
            raise ValueError(
                f"A frame must be uint8 [height, width, 3], got {frame.dtype} {frame.shape}."
            )
        if self._encoder is None:
            self._shape, longer = frame.shape, max(frame.shape[:2])
            self._factor = -(-_ENLARGED // longer) if longer < _SMALL else 1
            height, width = (self._factor * side for side in frame.shape[:2])
            rate = self._frames_per_second or (30.0 if self._factor == 1 else 5.0)
            self._encoder = _ENCODERS[self._partial.suffix](self._partial, (height, width, 3), rate)
        if frame.shape != self._shape:
            raise ValueError(f"The video's frames are {self._shape}, got {frame.shape}.")
        self._encoder.append_data(frame.repeat(self._factor, axis=0).repeat(self._factor, axis=1))


def _gif(path: Path, shape: tuple[int, ...], frames_per_second: float) -> Any:
    import imageio.v2

    duration = max(1000.0 / frames_per_second, 20.0)  # ms; browsers show shorter ones for 100
    return imageio.v2.get_writer(path, mode="I", duration=duration, loop=0)


class _Mp4:
    """A pipe to ffmpeg.

    imageio_ffmpeg's own writer forks (`preexec_fn`), and a fork after JAX may deadlock; nor does it
    read ffmpeg's exit status.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], frames_per_second: float) -> None:
        import imageio_ffmpeg

        height, width, _ = shape
        self._even = ((0, height % 2), (0, width % 2), (0, 0))
        size = f"{width + width % 2}x{height + height % 2}"
        taken = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-r", str(frames_per_second)]
        given = ["-an", "-c:v", "libx264", "-pix_fmt", "yuv420p"]  # browsers support this format
        program = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-y"]
        self._process = subprocess.Popen(
            [*program, *taken, "-i", "-", *given, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C must not reach ffmpeg before the file is closed
        )

    def append_data(self, frame: np.ndarray) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(np.pad(frame, self._even, mode="edge").tobytes())
        except BrokenPipeError:
            self.close()

    def close(self) -> None:
        if self._process.returncode is None:
            _, said = self._process.communicate()
            if self._process.returncode != 0:
                raise RuntimeError(f"ffmpeg failed: {said.decode(errors='replace').strip()}")


_ENCODERS: dict[str, Any] = {".mp4": _Mp4, ".gif": _gif}
