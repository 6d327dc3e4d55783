"""What campaigns found in files, kept as tests of its own."""

import json
from pathlib import Path

import numpy as np
import pytest

from geoco import config, media
from geoco.data.store import read_index
from geoco.errors import GeocoError


def test_a_video_whose_title_is_no_text(tmp_path: Path) -> None:
    """Its frames are those of the same video with a title that can be read."""
    frames = list(np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3), dtype=np.uint8))
    media.save_frames(tmp_path / "whole.mp4", frames)
    data = (tmp_path / "whole.mp4").read_bytes()
    assert data.count(b"Lavf") == 1
    (tmp_path / "odd.mp4").write_bytes(data.replace(b"Lavf", b"La\xecf"))
    whole, odd = (list(media.iterate_video(tmp_path / f"{name}.mp4")) for name in ("whole", "odd"))
    assert np.array_equal(whole, odd)


def test_a_store_of_a_long_format(tmp_path: Path) -> None:
    (tmp_path / "index.json").write_text(json.dumps({"format": "x" * 5000}))
    with pytest.raises(GeocoError, match=r"a store of format x{20}, but this version"):
        read_index(tmp_path)


@pytest.mark.parametrize("text", ["data." + "x" * 5000, f"data.height=1e999\0{'9' * 5000}"])
def test_a_long_override(text: str) -> None:
    with pytest.raises(GeocoError, match=r"^override 'data\.[^']{30,60}\.\.\.: ") as raised:
        config.load(None, [text])
    assert len(str(raised.value)) < 300


def test_many_phases() -> None:
    phases = ", ".join(["{name: a, terms: [rec]}", "{name: b, start: 5}", *["{name: c}"] * 2000])
    said = r"start at 0 and be in order, got \[0, 5, 0, .*\.\.\."
    with pytest.raises(GeocoError, match=said) as raised:
        config.load(None, [f"train.phases=[{phases}]"])
    assert len(str(raised.value)) < 300
