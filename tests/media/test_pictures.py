"""Pictures of every kind become upright RGB over white; what is too large or no file is refused."""

import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import ROOT, make_png_header
from PIL import Image

from geoco import media
from geoco.errors import GeocoError


def make_picture(height: int = 12, width: int = 16) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


# -- depth and kinds -------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".png", ".bmp", ".tif", ".tiff", ".webp"])
def test_lossless_files(tmp_path: Path, suffix: str) -> None:
    picture = make_picture()
    options = {"lossless": True} if suffix == ".webp" else {}
    Image.fromarray(picture).save(tmp_path / f"a{suffix}", **options)
    assert np.array_equal(media.read_picture(tmp_path / f"a{suffix}"), picture)


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_sixteen_bits_of_grey(tmp_path: Path, suffix: str) -> None:
    values = np.array([[0, 128, 129, 257, 25700], [65535, 65407, 65406, 1, 32896]], np.uint16)
    Image.fromarray(values).save(tmp_path / f"grey{suffix}")
    # One of 255 steps is 257 of 65535: 128 is nearer to none, 129 to one.
    expected = np.array([[0, 0, 1, 1, 100], [255, 255, 254, 0, 128]])
    for source in (tmp_path / f"grey{suffix}", Image.open(tmp_path / f"grey{suffix}"), values):
        picture = media.read_picture(source)
        assert picture.dtype == np.uint8
        assert np.array_equal(picture, expected[..., None].repeat(3, -1))


def test_a_clear_grey_of_sixteen_bits_is_white(tmp_path: Path) -> None:
    values = np.array([[257 * 5, 257 * 9]], np.uint16)
    Image.fromarray(values).save(tmp_path / "grey.png", transparency=257 * 5)
    assert media.read_image(tmp_path / "grey.png")[0, :, 0].tolist() == [255, 9]


def test_floats_in_tiff(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 0.25, 1]], np.float32)).save(tmp_path / "good.tif")
    assert media.read_image(tmp_path / "good.tif")[0, :, 0].tolist() == [0, 64, 255]
    Image.fromarray(np.array([[0, 2.5]], np.float32)).save(tmp_path / "bad.tif")
    with pytest.raises(GeocoError, match=r"bad.tif: a picture of floats must lie in \[0, 1\]"):
        media.read_image(tmp_path / "bad.tif")
    Image.fromarray(np.array([[0, 2**20]], np.int32)).save(tmp_path / "deep.tif")
    with pytest.raises(GeocoError, match=r"deep.tif: a picture must hold bytes, 16 bits or floats"):
        media.read_image(tmp_path / "deep.tif")


# -- transparency ----------------------------------------------------------------------------------

CLEAR = np.array([[[200, 100, 0, 255], [200, 100, 0, 0], [200, 100, 0, 51]]], np.uint8)
# A fifth of the colour, four fifths of white.
OVER_WHITE = [[200, 100, 0], [255, 255, 255], [244, 224, 204]]


def test_transparent_places_are_white(tmp_path: Path) -> None:
    Image.fromarray(CLEAR).save(tmp_path / "a.png")
    Image.fromarray(CLEAR).save(tmp_path / "a.webp", lossless=True, exact=True)
    Image.fromarray(CLEAR).save(tmp_path / "a.tif")
    files = [tmp_path / name for name in ("a.png", "a.webp", "a.tif")]
    for source in (*files, Image.fromarray(CLEAR), CLEAR, CLEAR / 255):
        assert media.read_picture(source)[0].tolist() == OVER_WHITE
    channels_first = torch.tensor(CLEAR.repeat(2, 1)).permute(2, 0, 1)
    assert media.read_picture(channels_first)[0, ::2].tolist() == OVER_WHITE


def test_transparent_grey_and_colour_keys_are_white(tmp_path: Path) -> None:
    grey = Image.fromarray(np.array([[[7, 255], [7, 0]]], np.uint8), "LA")
    assert media.read_picture(grey)[0].tolist() == [[7] * 3, [255] * 3]
    keyed = Image.new("RGB", (2, 1), (1, 2, 3))
    keyed.putpixel((1, 0), (4, 5, 6))
    keyed.save(tmp_path / "keyed.png", transparency=(4, 5, 6))
    assert media.read_image(tmp_path / "keyed.png")[0].tolist() == [[1, 2, 3], [255] * 3]


# -- turned photographs ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [".png", ".jpg", ".webp", ".tif"])
def test_turned_photographs(tmp_path: Path, kind: str) -> None:
    pixels = np.zeros((16, 32, 3), np.uint8)
    pixels[:, :16] = 255  # the left half, which is up once turned clockwise
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).save(tmp_path / f"a{kind}", exif=exif)
    for source in (tmp_path / f"a{kind}", Image.open(tmp_path / f"a{kind}")):
        picture = media.read_picture(source)
        assert picture.shape == (32, 16, 3)
        assert picture[:16].min() > 250
        assert picture[16:].max() < 5


# -- limits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "height", "said"),
    [
        (60_000, 60_000, "the picture is too large: at most 50,000,000 pixels are read"),
        (10_000, 10_000, "a picture of 10000 x 10000 pixels is too large: at most 50,000,000 pix"),
        (10_000, 5_001, "a picture of 10000 x 5001 pixels is too large"),
    ],
)
def test_sizes_are_read_before_pixels(tmp_path: Path, width: int, height: int, said: str) -> None:
    path = tmp_path / "bomb.png"
    path.write_bytes(make_png_header(width, height))
    with pytest.raises(media.TooLargeError, match=f"bomb.png: {said}") as caught:
        media.read_picture(path)
    assert "\n" not in str(caught.value)
    # Within the limit it is the missing pixels that are in the way.
    path.write_bytes(make_png_header(10_000, 5_000))
    with pytest.raises(GeocoError, match=r"bomb.png: cannot read this image"):
        media.read_picture(path)


def test_other_limits_for_everything() -> None:
    limits = media.Limits(pixels=99)
    for source in (make_picture(10, 10), Image.new("RGB", (10, 10)), torch.zeros(3, 10, 10)):
        with pytest.raises(media.TooLargeError, match=r"10 x 10 pixels .* at most 99 pixels"):
            media.read_picture(source, limits)
    assert media.read_picture(make_picture(9, 11), limits).shape == (9, 11, 3)


# -- what is no picture ----------------------------------------------------------------------------

READ = """
import sys
from pathlib import Path
from geoco import media
from geoco.errors import GeocoError
try:
    media.read_picture(Path(sys.argv[1]))
except GeocoError as error:
    print(error)
"""


def read_in_process(path: Path) -> str:
    """A pipe that is opened would never return: the other process can be ended."""
    script = [sys.executable, "-c", READ, str(path)]
    done = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def test_pipes_and_devices_are_no_pictures(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    assert read_in_process(tmp_path / "pipe.png").endswith(
        "pipe.png: expected a file, but this is a pipe or a device\n"
    )
    with pytest.raises(GeocoError, match="/dev/zero: expected a file, but this is a pipe or a dev"):
        media.read_picture("/dev/zero")
    with pytest.raises(GeocoError, match="expected a file, but this is a folder"):
        media.read_picture(tmp_path)


def test_programs_are_not_started_by_pictures(tmp_path: Path) -> None:
    Image.new("RGB", (16, 16)).save(tmp_path / "a.eps")
    (tmp_path / "a.eps").rename(tmp_path / "a.png")
    with pytest.raises(GeocoError, match=r"a.png: the file is not an image, or is damaged"):
        media.read_picture(tmp_path / "a.png")


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp", ".tif", ".bmp"])
def test_pictures_that_were_cut_off(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"a{suffix}"
    Image.fromarray(make_picture(64, 64)).save(file)
    whole = file.read_bytes()
    for part in (0, 5, 30, len(whole) // 2, len(whole) - 200):
        file.write_bytes(whole[:part])
        with pytest.raises(GeocoError, match=f"a{suffix}: (the file is|cannot read)") as caught:
            media.read_picture(file)
        assert "\n" not in str(caught.value)
    if suffix in (".png", ".jpg", ".bmp"):  # of the others not even the header can be read
        lazy = Image.open(io.BytesIO(whole[: len(whole) // 2]))
        with pytest.raises(GeocoError, match="cannot read this picture"):
            media.read_picture(lazy)


# -- fitting and writing ---------------------------------------------------------------------------


def test_fitting_one_frame_is_fitting_all() -> None:
    frames = np.stack([make_picture(30, 50), make_picture(30, 50)[::-1]])
    fitted = media.fit_frames(frames, 16)
    for frame, expected in zip(frames, fitted, strict=True):
        assert np.array_equal(media.fit_frame(frame, 16), expected)
    # The middle square; only the filter's edge looks beyond it.
    cut = media.fit_frame(np.ascontiguousarray(frames[0, :, 10:40]), 16)
    assert np.array_equal(cut[:, 1:-1], fitted[0, :, 1:-1])
    # Views, as of a turned frame, are fitted as copies are.
    turned = np.rot90(frames[0])
    assert np.array_equal(media.fit_frame(turned, 16), media.fit_frame(turned.copy(), 16))


@pytest.mark.parametrize("suffix", [".jpg", ".jpeg", ".JPG"])
def test_jpeg_out(tmp_path: Path, suffix: str) -> None:
    smooth = np.linspace(0, 255, 64).astype(np.uint8)
    flat = np.uint8(128)
    picture = np.stack(np.broadcast_arrays(smooth[:, None], smooth[None], flat), -1)
    media.save_frames(tmp_path / f"a{suffix}", [picture])
    with Image.open(tmp_path / f"a{suffix}") as image:
        assert image.format == "JPEG"
        difference = np.abs(np.asarray(image).astype(int) - picture)
    assert difference.mean() < 2
    with pytest.raises(GeocoError, match=r"saved as .mp4, .gif or a folder, not as one picture"):
        media.save_frames(tmp_path / "film.jpg", [picture, picture])
    assert not (tmp_path / "film.jpg").exists()
