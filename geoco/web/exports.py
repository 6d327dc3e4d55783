"""What can be taken away: pictures, videos, the edit list and the code."""

import tempfile
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import numpy as np

from geoco import drawing, media
from geoco.editing.editor import Film
from geoco.errors import GeocoError
from geoco.web.sessions import SceneOrFilm

LARGEST_SIDE = 2048


class Export(StrEnum):
    """What the files are called."""

    PICTURE = "picture.png"
    OWN_SIZE = "own-size.png"
    ORIGINAL = "original.png"
    ORIGINAL_VIDEO = "original.mp4"
    VIDEO = "video.mp4"
    ANIMATION = "animation.gif"
    EDITS = "edits.json"
    CODE = "edits.py"


MEDIA_TYPES = {
    Export.PICTURE: "image/png",
    Export.OWN_SIZE: "image/png",
    Export.ORIGINAL: "image/png",
    Export.ORIGINAL_VIDEO: "video/mp4",
    Export.VIDEO: "video/mp4",
    Export.ANIMATION: "image/gif",
    Export.EDITS: "application/json",
    Export.CODE: "text/x-python; charset=utf-8",
}


NAMES = {  # of the files, after the name of what was opened
    Export.PICTURE: "edited.png",
    Export.ORIGINAL: "original.png",
    Export.ORIGINAL_VIDEO: "original.mp4",
    Export.VIDEO: "edited.mp4",
    Export.ANIMATION: "edited.gif",
    Export.EDITS: "edits.json",
    Export.CODE: "edits.py",
}


def name_file(scene: SceneOrFilm, what: Export, name: str, frame: int = 0, zoom: int = 1) -> str:
    """What a file is saved as: the name of what was opened, if it has one, and what the file is."""
    if not name:
        return what.value
    stem, suffix = NAMES[what].split(".")
    single = isinstance(scene, Film) and what in (Export.PICTURE, Export.ORIGINAL)
    number = f"-frame-{frame}" if single else ""
    size = f"-x{zoom}" if zoom > 1 else ""
    return f"{name}{number}-{stem}{size}.{suffix}"


def export_file(scene: SceneOrFilm, what: Export, frame: int, zoom: int, name: str = "") -> bytes:
    """A file's bytes; pictures and videos are magnified, each pixel to a square."""
    side = scene.own_side if what == Export.OWN_SIZE else scene.editor.model.size
    if zoom * side > LARGEST_SIDE:
        raise GeocoError(f"zoom {zoom} makes more than {LARGEST_SIDE} pixels a side: use less")
    check_frame(scene, frame)
    match what:
        case Export.EDITS:
            return scene.to_json().encode()
        case Export.CODE:
            return _write_code(scene, name).encode()
        case Export.PICTURE:
            chosen = _get_images(scene)[frame : frame + 1]
        case Export.OWN_SIZE:
            one = scene.frame(frame) if isinstance(scene, Film) else scene
            chosen = one.render("original")[None]
        case Export.ORIGINAL:
            chosen = scene.frames[frame : frame + 1]
        case Export.ORIGINAL_VIDEO:
            chosen = scene.frames
        case Export.VIDEO | Export.ANIMATION:
            chosen = _get_images(scene)
    return _encode_file(
        what, [drawing.magnify(image, zoom) for image in chosen], scene.frames_per_second
    )


def check_frame(scene: SceneOrFilm, frame: int) -> None:
    if not 0 <= frame < len(scene.decoded):
        raise GeocoError(f"there is no frame {frame}: frames go from 0 to {len(scene.decoded) - 1}")


def _get_images(scene: SceneOrFilm) -> np.ndarray:
    return scene.images if isinstance(scene, Film) else scene.image[None]


def _encode_file(what: Export, frames: Sequence[np.ndarray], frames_per_second: float) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / what.value
        media.save_frames(path, frames, frames_per_second)
        return path.read_bytes()


def _write_code(scene: SceneOrFilm, name: str) -> str:
    """The edits in Python; what was edited can be exported beside it."""
    what = Export.ORIGINAL_VIDEO if isinstance(scene, Film) else Export.ORIGINAL
    original = name_file(scene, what, name)
    comment = f"# {original} is what was edited, as exported.\n"
    if scene.donors:
        edits = name_file(scene, Export.EDITS, name)
        comment += f"# The donors are other scenes: {edits} holds them, too.\n"
    return comment + scene.to_python(original)
