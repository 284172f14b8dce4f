"""Videos that are written and read back."""

import re
import subprocess
import sys

import imageio_ffmpeg
import jax
import numpy as np
import pytest
from PIL import Image, ImageSequence

from retrax.evaluation.video import VideoWriter

COLOURS = [(250, 10, 10), (10, 250, 10), (10, 10, 250), (128, 128, 128)]


def make_picture(colour, height=160, width=240):
    return np.broadcast_to(np.array(colour, np.uint8), (height, width, 3)).copy()


def read(path):
    """A video's pictures and, of an MP4, what ffmpeg says about it."""
    if path.suffix.lower() == ".gif":
        with Image.open(path) as file:
            pictures = [np.asarray(x.convert("RGB")) for x in ImageSequence.Iterator(file)]
            return pictures, file.info
    program = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", path, "-f", "rawvideo", "-pix_fmt", "rgb24"]
    answer = subprocess.run([*program, "-"], capture_output=True, check=True, timeout=60)
    said = answer.stderr.decode()
    width, height = map(int, re.search(r"Video:.* (\d+)x(\d+)", said).groups())
    return list(np.frombuffer(answer.stdout, np.uint8).reshape(-1, height, width, 3)), said


def write(path, pictures, **kwargs):
    with VideoWriter(path, **kwargs) as video:
        for picture in pictures:
            video.append(picture)


@pytest.mark.parametrize("suffix", [".mp4", ".gif", ".GIF"])
def test_pictures_come_back(tmp_path, suffix):
    """After JAX too, which warns of forks; warnings are errors here."""
    jax.block_until_ready(jax.numpy.ones(3) + 1)
    path = tmp_path / "new" / f"episode{suffix}"
    write(path, map(make_picture, COLOURS))
    pictures, _ = read(path)
    assert len(pictures) == len(COLOURS)
    for picture, colour in zip(pictures, COLOURS, strict=True):
        assert picture.shape == (160, 240, 3)
        np.testing.assert_allclose(picture.mean(axis=(0, 1)), colour, atol=12)  # compressed
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_mp4_has_the_rate_and_even_sizes(tmp_path):
    pictures = [make_picture(COLOURS[0], 201, 247)] * 20
    write(tmp_path / "a.mp4", pictures, frames_per_second=10)
    pictures, said = read(tmp_path / "a.mp4")
    assert (len(pictures), pictures[0].shape) == (20, (202, 248, 3))
    np.testing.assert_allclose(pictures[0][-1, -1], COLOURS[0], atol=12)
    assert re.search(r"Duration: 00:00:02\.0", said)
    assert re.search(r"Video: h264 .* yuv420p.* 10 fps", said)


@pytest.mark.parametrize(("rate", "duration"), [(20, 50), (125, 20), (None, 200)])
def test_gif_has_the_rate_and_small_frames_are_enlarged(tmp_path, rate, duration):
    """In milliseconds of a picture; browsers show shorter ones five times as long."""
    grid = np.zeros((60, 150, 3), np.uint8)
    grid[20:40, 0:50] = 255
    write(tmp_path / "a.gif", [grid, 255 - grid], frames_per_second=rate)
    (picture, _), data = read(tmp_path / "a.gif")
    assert picture.shape == (180, 450, 3)
    assert picture[60:120, :150].min() == 255
    assert picture.astype(int).sum() == 60 * 150 * 3 * 255
    assert data["duration"] == duration


def test_appears_only_when_complete(tmp_path, monkeypatch):
    path = tmp_path / "bsuite:catch.mp4"
    path.write_text("an older video")
    monkeypatch.chdir(tmp_path)
    with VideoWriter(path.name) as video:
        video.append(make_picture(COLOURS[0]))
        assert path.read_text() == "an older video"
    assert len(read(path)[0]) == 1


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_an_exception_and_no_frames_leave_nothing(tmp_path, suffix):
    def interrupted():
        yield make_picture(COLOURS[0])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / f"a{suffix}", interrupted())
    with pytest.raises(ValueError, match="No frame was given"):
        write(tmp_path / f"a{suffix}", [])
    (folder := tmp_path / f"b{suffix}").mkdir()
    for path in (folder, f"/proc/a{suffix}", f"/proc/b/a{suffix}"):
        with pytest.raises(OSError, match=f"^{path} cannot be written: "):
            VideoWriter(path).__enter__()
    folder.rmdir()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "rate", "message"),
    [
        *((name, None, r"must end in \.mp4 or \.gif") for name in ("a.avi", "a", "mp4")),
        *(("a.mp4", rate, "frames_per_second must be pos") for rate in (0, -1.0, float("nan"))),
    ],
)
def test_rejects_arguments_before_writing(tmp_path, name, rate, message):
    with pytest.raises(ValueError, match=message):
        VideoWriter(tmp_path / "new" / name, rate)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("picture", "message"),
    [
        *(
            (np.zeros(shape, kind), r"must be uint8 \[height, width, 3\], got")
            for shape, kind in (((4, 4, 3), float), ((4, 4), np.uint8), ((4, 4, 4), np.uint8))
        ),
        (make_picture((0, 0, 0), 16, 16), r"frames are \(160, 240, 3\), got \(16, 16, 3\)"),
    ],
)
def test_rejects_what_is_no_picture_or_comes_outside_the_block(tmp_path, picture, message):
    video, first = VideoWriter(tmp_path / "a.gif"), make_picture(COLOURS[0])
    with pytest.raises(RuntimeError, match="only inside"):
        video.append(first)
    with video:
        video.append(first)
        with pytest.raises(ValueError, match=message):
            video.append(picture)
    with pytest.raises(RuntimeError, match="only inside"):
        video.append(first)
    assert len(read(tmp_path / "a.gif")[0]) == 1


def test_tells_what_ffmpeg_says(tmp_path, monkeypatch):
    """It refuses this size, and has ended before all pictures are given."""
    pictures = [np.zeros((2, 40_000, 3), np.uint8)] * 40
    with pytest.raises(RuntimeError, match=r"ffmpeg failed: .*[Ww]idth"):
        write(tmp_path / "a.mp4", pictures)
    monkeypatch.setattr(imageio_ffmpeg, "get_ffmpeg_exe", lambda: "false")
    with pytest.raises(RuntimeError, match="ffmpeg failed: exit status 1"):
        write(tmp_path / "a.mp4", pictures)
    assert list(tmp_path.iterdir()) == []


def test_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(ImportError, match=r'pip install "retrax\[video\]"'):
        VideoWriter(tmp_path / "a.mp4")
