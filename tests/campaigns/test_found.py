"""What campaigns found in files, kept as tests of its own."""

from pathlib import Path

import numpy as np

from geoco import media


def test_a_video_whose_title_is_no_text(tmp_path: Path) -> None:
    """Its frames are those of the same video with a title that can be read."""
    frames = list(np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3), dtype=np.uint8))
    media.save_frames(tmp_path / "whole.mp4", frames)
    data = (tmp_path / "whole.mp4").read_bytes()
    assert data.count(b"Lavf") == 1
    (tmp_path / "odd.mp4").write_bytes(data.replace(b"Lavf", b"La\xecf"))
    whole, odd = (list(media.iterate_video(tmp_path / f"{name}.mp4")) for name in ("whole", "odd"))
    assert np.array_equal(whole, odd)
