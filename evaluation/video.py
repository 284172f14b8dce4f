"""Videos of episodes: MP4 and GIF."""

import subprocess
import types
from pathlib import Path
from typing import Any, Protocol

import numpy as np

_MISSING = 'Writing videos needs imageio and its ffmpeg: pip install "retrax[video]".'


class VideoWriter:
    """Writes pictures to a video: `with VideoWriter(path) as video: video.append(picture)`.

    The file appears under its name only when it is complete, at the end of the `with` block; if an
    exception ends the block, nothing is left. A file of that name is replaced. MP4 is H.264 with an
    even number of rows and columns (the last one is repeated where needed). GIF counts time in
    hundredths of a second, and most viewers show no more than 50 pictures a second.
    """

    def __init__(self, path: Path, frames_per_second: float = 30.0) -> None:
        """Checks everything that can be checked before a picture is there; writes nothing.

        Args:
          path: the file; its suffix, `.mp4` or `.gif`, decides the format. Its directory is made
            if it does not exist.
          frames_per_second: pictures a second, > 0.

        Raises:
          ValueError: if the suffix is another, or `frames_per_second` is not positive.
          ImportError: if imageio or imageio-ffmpeg is missing; the message says what to install.
        """
        path = Path(path)
        if path.suffix.lower() not in _ENCODERS:
            raise ValueError(f"A video must end in .mp4 or .gif, got {path}.")
        if not frames_per_second > 0:
            raise ValueError(f"frames_per_second must be positive, got {frames_per_second}.")
        try:
            import imageio.v2  # noqa: F401 - only whether they are there
            import imageio_ffmpeg  # noqa: F401
        except ImportError:
            raise ImportError(_MISSING) from None
        self._path = path
        self._partial = path.with_name(f".{path.stem}.partial{path.suffix.lower()}")
        self._frames_per_second = frames_per_second
        self._inside = False
        self._shape: tuple[int, ...] | None = None
        self._encoder: _Encoder | None = None

    def __enter__(self) -> "VideoWriter":
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._inside, self._shape, self._encoder = True, None, None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        self._inside = False
        try:
            if self._encoder is not None:
                self._encoder.close()
            if kind is None and self._encoder is None:
                raise ValueError(f"No picture was given for {self._path}.")
            if kind is None:
                self._partial.replace(self._path)
        finally:
            self._partial.unlink(missing_ok=True)

    def append(self, picture: np.ndarray) -> None:
        """Adds one picture.

        Args:
          picture: uint8 `[height, width, 3]`, red, green and blue; all of one size.

        Raises:
          ValueError: if the picture is not such an array, or its size is not that of the first one.
          RuntimeError: outside the `with` block, or with what ffmpeg says if it fails.
        """
        if not self._inside:
            raise RuntimeError(
                "Pictures can be added only inside `with VideoWriter(...) as video`."
            )
        picture = np.asarray(picture)
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[-1] != 3:
            raise ValueError(
                f"A picture must be uint8 [height, width, 3], got {picture.dtype} {picture.shape}."
            )
        if self._encoder is None:
            encoder = _ENCODERS[self._partial.suffix]
            self._encoder = encoder(self._partial, picture.shape, self._frames_per_second)
            self._shape = picture.shape
        if picture.shape != self._shape:
            raise ValueError(f"The video's pictures are {self._shape}, got {picture.shape}.")
        self._encoder.append(picture)


class _Encoder(Protocol):
    """Made from a path, the pictures' shape and their number a second."""

    def append(self, picture: np.ndarray) -> None: ...

    def close(self) -> None: ...


class _Gif:
    def __init__(self, path: Path, shape: tuple[int, ...], frames_per_second: float) -> None:
        import imageio.v2

        duration = 1000.0 / frames_per_second  # of a picture, in milliseconds
        self._writer = imageio.v2.get_writer(path, mode="I", duration=duration, loop=0)

    def append(self, picture: np.ndarray) -> None:
        self._writer.append_data(picture)

    def close(self) -> None:
        self._writer.close()


class _Mp4:
    """Feeds ffmpeg. imageio's own way to start it forks, and a fork after JAX may deadlock."""

    def __init__(self, path: Path, shape: tuple[int, ...], frames_per_second: float) -> None:
        import imageio_ffmpeg

        height, width, _ = shape
        self._even = ((0, height % 2), (0, width % 2), (0, 0))
        size = f"{width + width % 2}x{height + height % 2}"
        taken = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-r", str(frames_per_second)]
        given = ["-an", "-c:v", "libx264", "-pix_fmt", "yuv420p"]  # what browsers show
        program = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-y"]
        self._process = subprocess.Popen(
            [*program, *taken, "-i", "-", *given, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # an interrupt is ours to handle: ffmpeg closes the file
        )

    def append(self, picture: np.ndarray) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(np.pad(picture, self._even, mode="edge").tobytes())
        except BrokenPipeError:
            self.close()

    def close(self) -> None:
        if self._process.returncode is not None:
            return
        _, said = self._process.communicate()
        if self._process.returncode != 0:
            raise RuntimeError(f"ffmpeg failed: {said.decode(errors='replace').strip()}")


_ENCODERS: dict[str, Any] = {".mp4": _Mp4, ".gif": _Gif}
