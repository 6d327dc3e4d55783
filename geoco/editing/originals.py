"""The pictures that were brought, at their own size: what is kept of them.

Of a picture its centred square is kept, as PNG, at most `LARGEST_SIDE` pixels a side; larger ones
are reduced. Of a video file only the path is kept, of one in memory its bytes, and its frames are
read again one at a time.
"""

from collections.abc import Iterator
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
Stamp = tuple[tuple[int, int], ...]  # of files: when they last changed, and their sizes


@dataclass(frozen=True, eq=False)
class KeptPictures:
    """Squares in memory, as PNG."""

    pictures: tuple[bytes, ...]
    side: int

    @property
    def nbytes(self) -> int:
        return sum(len(picture) for picture in self.pictures)

    def iterate(self) -> Iterator[Picture]:
        """The frames, one at a time."""
        for picture in self.pictures:
            yield media.decode_image(picture, ("PNG",))


@dataclass(frozen=True, eq=False)
class VideoFile:
    """Squares of the frames of a video file, or of a folder, which stay where they are."""

    path: Path
    side: int
    count: int
    stamp: Stamp

    nbytes = 0

    def iterate(self) -> Iterator[Picture]:
        """The frames, one at a time, if they are still those that were read."""
        if _stamp(self.path) != self.stamp:
            raise GeocoError(
                f"{self.path}: changed or gone since it was read: encode it again to have its own "
                "size"
            )
        # The limits were kept when it was read for the first time.
        for frame in islice(media.iterate_video(self.path, media.ANY_LENGTH), self.count):
            yield media.fit_frame(frame, self.side)


@dataclass(frozen=True, eq=False)
class VideoBytes:
    """Squares of some frames of a video in memory, which stays as it came."""

    data: bytes
    kind: str  # of the container, see `media.decode_video_bytes`
    side: int
    numbers: tuple[int, ...]  # of the frames, in their order

    @property
    def nbytes(self) -> int:
        return len(self.data)

    def iterate(self) -> Iterator[Picture]:
        """The frames, one at a time."""
        numbers = iter(self.numbers)
        wanted = next(numbers)
        # The limits were kept when it was read for the first time.
        every = media.iterate_video_bytes(self.data, self.kind, media.ANY_LENGTH)
        for number, frame in enumerate(every):
            if number == wanted:
                yield media.fit_frame(frame, self.side)
                wanted = next(numbers, -1)


Originals = KeptPictures | VideoFile | VideoBytes


def fit_picture(
    picture: Any, size: int
) -> tuple[UInt8[np.ndarray, "1 size size 3"], Originals | None]:
    """A picture at a model's size, and at its own if that is larger."""
    brought = media.read_picture(picture)
    side = choose_side(brought.shape[1], brought.shape[0], size)
    return media.fit_frame(brought, size)[None], None if side is None else keep([brought], side)


def fit_video(
    video: Any, size: int
) -> tuple[UInt8[np.ndarray, "time size size 3"], Originals | None]:
    """The frames of a video at a model's size, and what it takes to have them at their own."""
    path = Path(video).absolute() if isinstance(video, str | Path) else None
    stamp = () if path is None else _stamp(path)
    frames: list[Picture] = []
    kept: list[bytes] = []
    side: int | None = None
    for frame in media.iterate_video(video):  # one by one: all at once would not fit into memory
        frames.append(media.fit_frame(frame, size))
        side = choose_side(frame.shape[1], frame.shape[0], size)
        if side is not None and path is None:
            kept += keep([frame], side).pictures
    if side is None:
        return np.stack(frames), None
    if path is None:
        return np.stack(frames), KeptPictures(tuple(kept), side)
    return np.stack(frames), VideoFile(path, side, len(frames), stamp)


def keep(frames: list[media.Picture], side: int) -> KeptPictures:
    """Their squares, compressed."""
    squares = (media.fit_frame(frame, side) for frame in frames)
    return KeptPictures(tuple(media.encode_png(square) for square in squares), side)


def choose_side(width: int, height: int, size: int) -> int | None:
    """The side of the square that is kept of a frame; none if it is no larger than the model's."""
    side = min(width, height, LARGEST_SIDE)
    return side if side > size else None


def _stamp(path: Path) -> Stamp:
    if not path.exists():
        return ()
    files = media.find_images(path) if path.is_dir() else [path]
    return tuple((status.st_mtime_ns, status.st_size) for status in (file.stat() for file in files))
