"""Pictures for people: pixels known by hand, files whole or absent."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from geoco import drawing
from geoco.errors import GeocoError


def plain(value: int, height: int = 4, width: int = 6) -> drawing.Picture:
    return np.full((height, width, 3), value, dtype=np.uint8)


def test_overlay_tints_and_outlines_instances() -> None:
    masks = np.zeros((4, 6), dtype=np.uint8)
    masks[:, 3:] = 2
    picture = drawing.overlay_masks(plain(100), masks, zoom=3)
    assert picture.shape == (12, 18, 3)
    assert (picture[:, :9] == 100).all()
    np.testing.assert_array_equal(picture[5, 9], drawing.COLORS[1])  # the edge, in full colour
    np.testing.assert_array_equal(picture[5, 13], np.rint(55 + 0.45 * drawing.COLORS[1]))


def test_finer_masks_are_drawn_in_their_own_pixels() -> None:
    """Each drawn pixel shows the mask at its middle: row 0 of 2 lies in row 1 of 4."""
    masks = np.arange(1, 9, dtype=np.uint8).reshape(4, 2).repeat(2, 1)
    fine = drawing.overlay_masks(plain(100, 2, 2), masks, zoom=2)
    assert fine.shape == (4, 4, 3)
    np.testing.assert_array_equal(fine, drawing.overlay_masks(plain(100, 4, 4), masks))
    coarse = drawing.overlay_masks(plain(100, 2, 2), masks)
    np.testing.assert_array_equal(
        coarse, drawing.overlay_masks(plain(100, 2, 2), masks[1::2, 1::2])
    )


def test_colours_repeat_after_ten() -> None:
    masks = np.full((4, 6), 11, dtype=np.uint8)
    masks[0] = 1
    picture = drawing.overlay_masks(plain(0), masks)
    np.testing.assert_array_equal(picture[0, 3], picture[1, 3])


def test_magnifying_repeats_pixels() -> None:
    picture = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    large = drawing.magnify(picture, 3)
    np.testing.assert_array_equal(large[3:, :3], np.broadcast_to(picture[1, 0], (3, 3, 3)))


def test_sheets_have_margins_and_room_for_short_rows() -> None:
    sheet = drawing.compose_sheet([[plain(10), plain(20)], [plain(30)]])
    assert sheet.shape == (2 * 8 + 4, 2 * 10 + 4, 3)
    assert (sheet[4:8, 4:10] == 10).all()
    assert (sheet[4:8, 14:20] == 20).all()
    assert (sheet[12:16, 4:10] == 30).all()
    assert (sheet[12:16, 14:20] == 255).all()
    assert (sheet[:4] == 255).all()


def test_png_and_gif(tmp_path: Path) -> None:
    drawing.save_pictures(tmp_path / "new" / "a.png", [plain(50)])
    with Image.open(tmp_path / "new" / "a.png") as image:
        np.testing.assert_array_equal(np.asarray(image), plain(50))
    drawing.save_pictures(
        tmp_path / "a.gif", [plain(0), plain(128), plain(255)], frames_per_second=10
    )
    with Image.open(tmp_path / "a.gif") as image:
        assert image.n_frames == 3  # type: ignore[attr-defined]
        assert image.info["duration"] == 100
        image.seek(1)
        np.testing.assert_array_equal(np.asarray(image.convert("RGB")), plain(128))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.gif", "new"]


@pytest.mark.parametrize(("name", "count"), [("a.jpg", 1), ("a", 1), ("a.png", 2)])
def test_other_formats_are_refused(tmp_path: Path, name: str, count: int) -> None:
    with pytest.raises(GeocoError, match=r"written as .png \(one\) or .gif"):
        drawing.save_pictures(tmp_path / name, [plain(0)] * count)
    assert not list(tmp_path.iterdir())


def test_nothing_is_left_when_writing_fails(tmp_path: Path) -> None:
    (tmp_path / "a.png").mkdir()
    with pytest.raises(GeocoError, match=r"a\.png: cannot write this file: Is a directory"):
        drawing.save_pictures(tmp_path / "a.png", [plain(0)])
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]
    (tmp_path / "file").write_text("")
    with pytest.raises(GeocoError, match="cannot write this file"):
        drawing.save_pictures(tmp_path / "file" / "a.png", [plain(0)])
