"""What can be taken away: pictures, videos, the edit list and the code."""

import tempfile
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import numpy as np

from geoco import drawing, media
from geoco.editing.editor import Film
from geoco.errors import GeocoError
from geoco.web.sessions import Edited

LARGEST_SIDE = 2048


class Export(StrEnum):
    """What the files are called."""

    PICTURE = "picture.png"
    ORIGINAL = "original.png"
    ORIGINAL_VIDEO = "original.mp4"
    VIDEO = "video.mp4"
    ANIMATION = "animation.gif"
    EDITS = "edits.json"
    CODE = "edits.py"


TYPES = {
    Export.PICTURE: "image/png",
    Export.ORIGINAL: "image/png",
    Export.ORIGINAL_VIDEO: "video/mp4",
    Export.VIDEO: "video/mp4",
    Export.ANIMATION: "image/gif",
    Export.EDITS: "application/json",
    Export.CODE: "text/x-python; charset=utf-8",
}


def export(made: Edited, what: Export, frame: int, zoom: int) -> bytes:
    """A file's bytes; pictures and videos are magnified, each pixel to a square."""
    if zoom * made.editor.model.size > LARGEST_SIDE:
        raise GeocoError(f"zoom {zoom} makes more than {LARGEST_SIDE} pixels a side: use less")
    check_frame(made, frame)
    match what:
        case Export.EDITS:
            return made.to_json().encode()
        case Export.CODE:
            return _code(made).encode()
        case Export.PICTURE:
            chosen = _images(made)[frame : frame + 1]
        case Export.ORIGINAL:
            chosen = made.frames[frame : frame + 1]
        case Export.ORIGINAL_VIDEO:
            chosen = made.frames
        case Export.VIDEO | Export.ANIMATION:
            chosen = _images(made)
    return _file(what, [drawing.magnify(image, zoom) for image in chosen], made.frames_per_second)


def check_frame(made: Edited, frame: int) -> None:
    if not 0 <= frame < len(made.decoded):
        raise GeocoError(f"there is no frame {frame}: frames go from 0 to {len(made.decoded) - 1}")


def _images(made: Edited) -> np.ndarray:
    return made.images if isinstance(made, Film) else made.image[None]


def _file(what: Export, frames: Sequence[np.ndarray], frames_per_second: float) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / what.value
        media.save_frames(path, frames, frames_per_second)
        return path.read_bytes()


def _code(made: Edited) -> str:
    """The edits in Python; what was edited can be exported beside it."""
    name = (Export.ORIGINAL_VIDEO if isinstance(made, Film) else Export.ORIGINAL).value
    comment = f"# {name} is what was edited, as exported.\n"
    if made.donors:
        comment += f"# The donors are other scenes: {Export.EDITS.value} holds them, too.\n"
    return comment + made.to_python(name)
