"""The pictures that were brought, at their own size: what is kept of them, and from where to where.

Of a picture its centred square is kept, as PNG, at most `LARGEST_SIDE` pixels a side; larger ones
are reduced. Of a video file only the path is kept, and its frames are read again one at a time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from geoco import media
from geoco.errors import GeocoError

LARGEST_SIDE = 1024
Picture = UInt8[np.ndarray, "side side 3"]


@dataclass(frozen=True, eq=False)
class KeptPictures:
    """Squares in memory, as PNG."""

    pictures: tuple[bytes, ...]
    side: int

    @classmethod
    def keep(cls, frames: Sequence[media.Picture], size: int) -> "KeptPictures | None":
        """The squares of frames; nothing of frames no larger than the model's `size`."""
        side = choose_side(frames[0], size)
        if side is None:
            return None
        squares = (media.fit_frames(frame[None], side)[0] for frame in frames)
        return cls(tuple(media.encode_png(square) for square in squares), side)

    @property
    def nbytes(self) -> int:
        return sum(len(picture) for picture in self.pictures)

    def iterate(self) -> Iterator[Picture]:
        """The frames, one at a time."""
        for picture in self.pictures:
            yield media.decode_image(picture, ("PNG",))


@dataclass(frozen=True, eq=False)
class VideoFile:
    """Squares of a video's frames, or of a folder's, which stay where they are."""

    path: Path
    side: int
    count: int
    stamp: tuple[tuple[int, int], ...]  # when what was read had changed last, and its size

    nbytes = 0

    @classmethod
    def keep(cls, path: Path, first: media.Picture, count: int, size: int) -> "VideoFile | None":
        """What is needed to read frames again that were read just now."""
        side = choose_side(first, size)
        return None if side is None else cls(path.absolute(), side, count, _stamp(path, count))

    def iterate(self) -> Iterator[Picture]:
        """The frames, one at a time, if they are still those that were read."""
        changed = GeocoError(
            f"{self.path}: changed or gone since it was read: encode it again to have its own size"
        )
        if not self.path.exists() or _stamp(self.path, self.count) != self.stamp:
            raise changed
        number = -1
        for number, frame in enumerate(islice(_read_frames(self.path), self.count)):  # noqa: B007
            yield media.fit_frames(np.ascontiguousarray(frame)[None], self.side)[0]
        if number + 1 != self.count:
            raise changed


Originals = KeptPictures | VideoFile


def keep_originals(video: Any, frames: media.Pictures, size: int) -> Originals | None:
    """What is needed of a video to have its frames again, just read from `video`."""
    if isinstance(video, str | Path):
        return VideoFile.keep(Path(video), frames[0], len(frames), size)
    return KeptPictures.keep(list(frames), size)


def choose_side(frame: media.Picture, size: int) -> int | None:
    """The side of the square that is kept of a frame; none if it is no larger than the model's."""
    side = min(*frame.shape[:2], LARGEST_SIDE)
    return side if side > size else None


def _read_frames(path: Path) -> Iterator[media.Picture]:
    if path.is_dir():
        return (media.read_image(image) for image in media.find_images(path))
    return (frame for _, frame in media.decode_video(path))


def _stamp(path: Path, count: int) -> tuple[tuple[int, int], ...]:
    files = media.find_images(path)[:count] if path.is_dir() else [path]
    return tuple((status.st_mtime_ns, status.st_size) for status in (file.stat() for file in files))
