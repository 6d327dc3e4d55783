"""What can be taken away: pictures, videos, the edit list and the code."""

import io
import tempfile
import zipfile
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from geoco import drawing, media
from geoco.editing import scripts
from geoco.editing.editor import Film, Scene
from geoco.errors import GeocoError
from geoco.web.sessions import SceneOrFilm

LARGEST_SIDE = 2048


class Export(StrEnum):
    """What the files are called."""

    PICTURE = "picture.png"
    OWN_SIZE = "own-size.png"
    OWN_SIZE_VIDEO = "own-size.mp4"
    ORIGINAL = "original.png"
    ORIGINAL_VIDEO = "original.mp4"
    VIDEO = "video.mp4"
    ANIMATION = "animation.gif"
    EDITS = "edits.json"
    CODE = "edits.py"
    SCRIPT = "edits.zip"


MEDIA_TYPES = {
    Export.PICTURE: "image/png",
    Export.OWN_SIZE: "image/png",
    Export.OWN_SIZE_VIDEO: "video/mp4",
    Export.ORIGINAL: "image/png",
    Export.ORIGINAL_VIDEO: "video/mp4",
    Export.VIDEO: "video/mp4",
    Export.ANIMATION: "image/gif",
    Export.EDITS: "application/json",
    Export.CODE: "text/x-python; charset=utf-8",
    Export.SCRIPT: "application/zip",
}


NAMES = {  # of the files, after the name of what was opened
    Export.PICTURE: "edited.png",
    Export.OWN_SIZE: "edited-own-size.png",
    Export.OWN_SIZE_VIDEO: "edited-own-size.mp4",
    Export.ORIGINAL: "original.png",
    Export.ORIGINAL_VIDEO: "original.mp4",
    Export.VIDEO: "edited.mp4",
    Export.ANIMATION: "edited.gif",
    Export.EDITS: "edits.json",
    Export.CODE: "edits.py",
    Export.SCRIPT: "edits.zip",
}


SINGLE = (Export.PICTURE, Export.OWN_SIZE, Export.ORIGINAL)  # one frame of a video
OWN_SIZES = (Export.OWN_SIZE, Export.OWN_SIZE_VIDEO)


def name_file(scene: SceneOrFilm, what: Export, name: str, frame: int = 0, zoom: int = 1) -> str:
    """What a file is saved as: the name of what was opened, if it has one, and what the file is."""
    if not name:
        return what.value
    stem, suffix = NAMES[what].split(".")
    single = isinstance(scene, Film) and what in SINGLE
    number = f"-frame-{frame}" if single else ""
    size = f"-x{zoom}" if zoom > 1 else ""
    return f"{name}{number}-{stem}{size}.{suffix}"


def export_file(scene: SceneOrFilm, what: Export, frame: int, zoom: int, name: str = "") -> bytes:
    """A file's bytes; pictures and videos are magnified, each pixel to a square."""
    side = scene.own_side if what in OWN_SIZES else scene.editor.model.size
    if zoom * side > LARGEST_SIDE:
        raise GeocoError(f"zoom {zoom} makes more than {LARGEST_SIDE} pixels a side: use less")
    check_frame(scene, frame)
    match what:
        case Export.EDITS:
            return scene.to_json().encode()
        case Export.CODE:
            return _write_code(scene, name).encode()
        case Export.SCRIPT:
            return _pack_script(scene, Path(name_file(scene, what, name)).stem)
    # One by one, as they are written: all of them enlarged are large.
    frames = (drawing.magnify(image, zoom) for image in _choose_frames(scene, what, frame))
    return _encode_file(what, frames, scene.frames_per_second)


def count_drawing_bytes(scene: SceneOrFilm, what: Export, frame: int) -> int:
    """Memory that one of `OWN_SIZES` takes at most while it is drawn."""
    check_frame(scene, frame)
    drawn = _choose_frame(scene, frame) if what in SINGLE else scene
    return drawn.drawing_bytes


def _choose_frame(scene: SceneOrFilm, frame: int) -> Scene:
    return scene.frame(frame) if isinstance(scene, Film) else scene


def check_frame(scene: SceneOrFilm, frame: int) -> None:
    if not 0 <= frame < len(scene.decoded):
        raise GeocoError(f"there is no frame {frame}: frames go from 0 to {len(scene.decoded) - 1}")


def _choose_frames(scene: SceneOrFilm, what: Export, frame: int) -> Iterable[media.Picture]:
    match what:
        case Export.ORIGINAL:
            return scene.frames[frame : frame + 1]
        case Export.ORIGINAL_VIDEO:
            return scene.frames
        case Export.OWN_SIZE:
            return _choose_frame(scene, frame).render_frames("original")
        case Export.OWN_SIZE_VIDEO:
            return scene.render_frames("original")
    images = scene.images if isinstance(scene, Film) else scene.image[None]
    return images[frame : frame + 1] if what == Export.PICTURE else images


def _encode_file(what: Export, frames: Iterable[media.Picture], frames_per_second: float) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / what.value
        media.save_frames(path, frames, frames_per_second)
        return path.read_bytes()


def _write_code(scene: SceneOrFilm, name: str) -> str:
    """The edits in Python; what was edited can be exported beside it."""
    what = Export.ORIGINAL_VIDEO if isinstance(scene, Film) else Export.ORIGINAL
    original = name_file(scene, what, name)
    comment = f"# {original} is what was edited, as exported.\n"
    if scene.own_side > scene.editor.model.size:
        comment += "# It has the model's size: for the own size, name the file that was opened.\n"
    if scene.donors:
        script = name_file(scene, Export.SCRIPT, name)
        comment += f"# The donors are other scenes: {script} has them, too.\n"
    return comment + scene.to_python(original)


def _pack_script(scene: SceneOrFilm, stem: str) -> bytes:
    """A script that runs where it is unpacked, in a folder with all that it reads."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in scripts.list_files(scene, stem):
            archive.writestr(f"{stem}/{name}", data)
    return buffer.getvalue()
