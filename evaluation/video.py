"""Videos of episodes: MP4 and GIF."""

import subprocess
from pathlib import Path

import numpy as np

from ..basics.files import writing

_SMALL = 200  # pixels; Atari's frames have 210
_ENLARGED = 400
_FASTEST_GIF = 50.0  # frames per second; viewers slow faster ones down
_ENCODINGS = {
    ".mp4": ["-c:v", "libx264", "-pix_fmt", "yuv420p"],  # browsers support this format
    ".gif": [  # each frame has a palette of its own
        "-filter_complex",
        "split[a][b]; [a]palettegen=stats_mode=single[c]; [b][c]paletteuse=new=1",
    ],
}


class VideoWriter:
    """Writes frames to a video: `with VideoWriter(path) as video: video.append(frame)`.

    The file replaces an existing one when it is complete, at the end of the `with` block. If an
    exception ends the block, no file remains. MP4 is H.264. Its numbers of rows and columns are
    even (the last one is repeated if needed). GIF has a time resolution of a hundredth of a second,
    and at most 50 frames per second. Frames whose longer side has less than 200 pixels, such as a
    grid's, are enlarged by a whole factor.

    Args:
      path: the file, `.mp4` or `.gif`. Its directory is created if it does not exist.
      frames_per_second: > 0; if None, 30, or 5 for frames that are enlarged.

    Raises:
      ValueError: another suffix, or `frames_per_second` is not positive.
      ImportError: imageio-ffmpeg is missing; the message names what to install.
    """

    def __init__(self, path: Path, frames_per_second: float | None = None) -> None:
        self._path, self._suffix = Path(path), Path(path).suffix.lower()
        if self._suffix not in _ENCODINGS:
            raise ValueError(f"A video must end in .mp4 or .gif, got {path}.")
        if frames_per_second is not None and not frames_per_second > 0:
            raise ValueError(f"frames_per_second must be positive, got {frames_per_second}.")
        try:
            from imageio_ffmpeg import get_ffmpeg_exe
        except ImportError:
            raise ImportError('Writing videos needs ffmpeg: pip install "retrax[video]".') from None
        self._program, self._frames_per_second = get_ffmpeg_exe(), frames_per_second
        self._partial = self._path.with_name(f".{self._path.stem}.partial{self._suffix}")
        self._inside = False
        self._ffmpeg: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "VideoWriter":
        with writing(self._path):  # else it is refused before the episodes are played
            self._path.parent.mkdir(parents=True, exist_ok=True)
            (self._path if self._path.exists() else self._partial).open("ab").close()
        self._inside, self._ffmpeg = True, None
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        self._inside = False
        try:
            self._finish()
            if kind is None and self._ffmpeg is None:
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
        if self._ffmpeg is None:
            self._shape, longer = frame.shape, max(frame.shape[:2])
            self._factor = -(-_ENLARGED // longer) if longer < _SMALL else 1
            height, width = (self._factor * side for side in frame.shape[:2])
            self._even = ((0, height % 2), (0, width % 2), (0, 0))
            self._ffmpeg = self._start(f"{width + width % 2}x{height + height % 2}")
        if frame.shape != self._shape:
            raise ValueError(f"The video's frames are {self._shape}, got {frame.shape}.")
        frame = frame.repeat(self._factor, axis=0).repeat(self._factor, axis=1)
        assert self._ffmpeg.stdin is not None
        try:
            self._ffmpeg.stdin.write(np.pad(frame, self._even, mode="edge").tobytes())
        except BrokenPipeError:
            self._finish()

    def _start(self, size: str) -> "subprocess.Popen[bytes]":
        """A pipe to ffmpeg.

        imageio_ffmpeg's own writer forks (`preexec_fn`), and a fork after JAX may deadlock; nor
        does it read ffmpeg's exit status.
        """
        rate = self._frames_per_second or (30.0 if self._factor == 1 else 5.0)
        rate = min(rate, _FASTEST_GIF) if self._suffix == ".gif" else rate
        taken = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-r", str(rate), "-i", "-"]
        partial = str(self._partial.absolute())  # a:b would be of a protocol a
        given = ["-an", *_ENCODINGS[self._suffix], partial]
        return subprocess.Popen(
            [self._program, "-v", "error", "-y", *taken, *given],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C must not reach ffmpeg before the file is closed
        )

    def _finish(self) -> None:
        if self._ffmpeg is not None and self._ffmpeg.returncode is None:
            _, said = self._ffmpeg.communicate()
            if self._ffmpeg.returncode != 0:
                reason = said.decode(errors="replace").strip()
                status = f"exit status {self._ffmpeg.returncode}"
                raise RuntimeError(f"ffmpeg failed: {reason or status}")
