"""Edits as a Python script with the files that it reads, and films as notebooks show them."""

import os
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from geoco import drawing, media
from geoco.editing.operations import EditRequest
from geoco.editing.recording import Recorded
from geoco.files import write_whole


def to_python(edited: Recorded, picture: str) -> str:
    """The edits as a script to read; donors are files to be named."""
    script = _Script(edited, repr(picture), None)
    return script.text


def save_python(edited: Recorded, path: Path, picture: Path | None = None) -> None:
    """Write a script that runs, with the files that it reads beside it, named after it.

    `picture` is the file that was edited; without one the frames as they were encoded are written,
    too. Films are animated PNG files, which keep every pixel.
    """
    source = None if picture is None else os.path.relpath(picture, path.parent)
    for name, data in list_files(edited, path.stem, source):
        write_whole(path.with_name(name), data)


def list_files(
    edited: Recorded, stem: str, source: str | None = None
) -> Iterator[tuple[str, bytes]]:
    """The names and contents of what `save_python` writes, the script last."""
    script = _Script(edited, None if source is None else f"here / {source!r}", f"{stem}-")
    for name, frames in script.files.items():
        yield name, media.encode_animated_png(list(frames))
    yield f"{stem}.py", script.text.encode()


def to_html(images: np.ndarray, frames_per_second: float, title: str) -> str:
    """A film as a page shows it: enlarged, and playing."""
    frames = [drawing.magnify(image, 4) for image in images]
    data = media.encode_animated_png(frames, 1000 / frames_per_second)
    return f'<img alt="{title}" src="data:image/png;base64,{b64encode(data).decode()}">'


class _Script:
    """A script while it is written; with a prefix for its files it finds them beside itself."""

    def __init__(self, edited: Recorded, source: str | None, prefix: str | None) -> None:
        self.files: dict[str, np.ndarray] = {}
        self._prefix = prefix
        self._names: dict[str, str] = {}  # of donors, by their keys
        self._lines = ["from geoco import Editor", ""]
        if prefix is not None:
            self._lines = ["from pathlib import Path", "", *self._lines]
            self._lines.append("here = Path(__file__).parent")
        self._lines.append(f"editor = Editor.load({edited.editor.name!r})")
        self._add_scene("scene", edited, source)
        out = "edited.mp4" if edited.kind == "Film" else "edited.png"
        # The frames that are written beside a script are of the model's size.
        large = source is not None and edited.own_side > edited.frames.shape[1]
        size = ", size='original'" if large else ""
        self._lines.append(f"scene.save({self._name_file(out)}{size})")

    @property
    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def _add_scene(self, name: str, edited: Recorded, source: str | None) -> None:
        """Lines that encode a scene or film, then its donors, then its edits."""
        if edited.film is not None:
            film, number = edited.film
            self._add_scene(f"{name}_film", film, source)
            self._lines.append(f"{name} = {name}_film.frame({number})")
        else:
            self._lines.append(f"{name} = {self._encode(name, edited, source)}")
        for key, donor in edited.donors.items():
            if key not in self._names:
                self._names[key] = f"donor{len(self._names)}"
                self._add_scene(self._names[key], donor, None)
        self._lines += [_write_line(name, edit, self._names) for edit in edited.history]

    def _encode(self, name: str, edited: Recorded, source: str | None) -> str:
        own = source is None
        if source is None:
            self.files[f"{self._prefix or ''}{name}.png"] = edited.frames
            source = self._name_file(f"{name}.png")
        if edited.kind == "Scene":
            return f"editor.encode({source}, seed={edited.seed})"
        rate = edited.frames_per_second
        more = "" if rate == 12 else f", frames_per_second={rate:g}"
        if own and len(edited.frames) == 1:  # one frame is no animation, but a list of one
            source = f"[{source}]"
        return f"editor.encode_video({source}, seed={edited.seed}{more})"

    def _name_file(self, name: str) -> str:
        return repr(name) if self._prefix is None else f"here / {self._prefix + name!r}"


def _write_line(name: str, edit: EditRequest, donors: dict[str, str]) -> str:
    values = edit.model_dump(exclude_defaults=True, exclude={"op"})
    keys = values.pop("keys", None)
    if keys:
        values["keys"] = {key[0]: key[1] if len(key) == 2 else key[1:] for key in keys}
    first = values.pop("slot", None)
    arguments = [] if first is None else [str(first)]
    if "donor" in values:
        donor = values.pop("donor")
        arguments.append(donors.get(donor, repr(donor)))
    arguments += [f"{key}={value!r}" for key, value in values.items()]
    return f"{name} = {name}.{edit.op}({', '.join(arguments)})"
