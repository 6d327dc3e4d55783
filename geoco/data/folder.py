"""Any folder of videos (mp4, webm, gif, mov, mkv, avi) or of frame folders, as a user brings it.

Subfolders are searched. A video file is one video; a folder that holds images is one video, its
frames in natural order of their names (2 before 10). A folder that holds both is refused, since
the images could be frames or thumbnails. Names that start with a dot are ignored.

With `frame_rate` the output times are those of the first frame + k / frame_rate up to the end of
the video, and each takes the frame nearest to it, the earlier of two equally near. Videos longer
than `max_frames` come in pieces of that length (the last may be shorter), so that memory stays
bounded; one piece may take at most MOST_FRAMES frames and MOST_BYTES decoded.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from geoco.config import FolderSource, Split
from geoco.data.source import RawVideo
from geoco.errors import GeocoError
from geoco.media import (
    IMAGES,
    VIDEOS,
    Picture,
    decode_video,
    find_images,
    is_file,
    list_folder,
    read_image,
)

MOST_FRAMES = 10_000
MOST_BYTES = 4 * 2**30


def list_splits(source: FolderSource) -> tuple[Split, ...]:
    """The splits there are: a folder is one, the one its configuration says."""
    return (source.split,)


def count_videos(source: FolderSource, split: Split) -> int | None:
    paths = _list_videos(source, split)
    if source.max_frames is None:
        return len(paths)
    if not all(path.is_dir() for path in paths):
        return None  # only decoding tells how many pieces a video file gives
    return sum(-(-len(find_images(path)) // source.max_frames) for path in paths)


def read_videos(source: FolderSource, split: Split, skip: int = 0) -> Iterator[RawVideo]:
    paths = _list_videos(source, split)
    if source.max_frames is None:
        paths, skip = paths[skip:], 0
    return islice((video for path in paths for video in _read_video(source, path)), skip, None)


# -- frame folders: shared with obj3d.py -----------------------------------------------------------


def read_images(paths: list[Path]) -> Iterator[tuple[str, Picture]]:
    """Each image under its name, read when it is asked for."""
    return ((path.name, read_image(path)) for path in paths)


def cut_video(
    path: Path, name: str, frames: Iterator[tuple[str, Picture]], most: int | None = None
) -> Iterator[RawVideo]:
    """The labelled frames of the video at `path` as one RawVideo, or pieces of `most` frames."""
    first = ahead = next(frames, None)
    number = 0
    while ahead is not None and first is not None:
        piece: list[Picture] = []
        while ahead is not None and len(piece) != most:
            label, frame = ahead
            if frame.shape != first[1].shape:
                sizes = (
                    f"{label} is {_format_size(frame)}, but {first[0]} is {_format_size(first[1])}"
                )
                raise GeocoError(f"{path}: frames of different sizes: {sizes}")
            if len(piece) == MOST_FRAMES or (len(piece) + 1) * frame.nbytes > MOST_BYTES:
                raise GeocoError(
                    f"{path}: more than {len(piece)} frames of {_format_size(frame)} do not fit "
                    "into memory at once: set data.source.max_frames, for example to 100"
                )
            piece.append(frame)
            ahead = next(frames, None)
        yield RawVideo(name, np.stack(piece), first=number)
        number += len(piece)


# -- finding and decoding --------------------------------------------------------------------------


def _list_videos(source: FolderSource, split: Split) -> list[Path]:
    """Video files and frame folders, in natural order."""
    if split != source.split:
        raise GeocoError(
            f"{source.path}: this folder is the split '{source.split}' (data.source.split), "
            f"so there is no split '{split}'"
        )
    videos = _search_videos(source.path)
    if not videos:
        kinds = {path.suffix or path.name for path in source.path.rglob("*") if path.is_file()}
        only = f"only {', '.join(sorted(kinds)[:5])} files" if kinds else "the folder is empty"
        raise GeocoError(
            f"{source.path}: no videos ({' '.join(VIDEOS)}) or images ({' '.join(IMAGES)}): {only}"
        )
    return videos


def _search_videos(folder: Path) -> list[Path]:
    videos: list[Path] = []
    images: list[Path] = []
    for entry in list_folder(folder):
        if entry.is_dir():
            videos += _search_videos(entry)
        elif is_file(entry, VIDEOS):
            videos.append(entry)
        elif is_file(entry, IMAGES):
            images.append(entry)
    if images and videos:
        raise GeocoError(
            f"{folder}: holds images ({images[0].name}) beside videos ({videos[0].name}): move the "
            "images elsewhere or, if they are a video's frames, into a subfolder of their own"
        )
    return [folder] if images else videos


def _read_video(source: FolderSource, path: Path) -> Iterator[RawVideo]:
    name = path.relative_to(source.path).as_posix() if path != source.path else path.resolve().name
    if not path.is_dir():
        return cut_video(path, name, decode_video(path, source.frame_rate), source.max_frames)
    if source.frame_rate is not None:
        raise GeocoError(
            f"{path}: a folder of images has no frame rate to resample: "
            "leave out data.source.frame_rate"
        )
    return cut_video(path, name, read_images(find_images(path)), source.max_frames)


def _format_size(frame: Picture) -> str:
    return f"{frame.shape[1]} x {frame.shape[0]} pixels"
