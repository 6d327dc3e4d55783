"""Any folder of videos (mp4, webm, gif, mov, mkv, avi) or of frame folders, as a user brings it.

Subfolders are searched. A video file is one video; a folder that holds images is one video, its
frames in natural order of their names (2 before 10). A folder that holds both is refused, since
the images could be frames or thumbnails. Names that start with a dot are ignored.

With `frame_rate` the output times are those of the first frame + k / frame_rate up to the end of
the video, and each takes the frame nearest to it, the earlier of two equally near. Videos longer
than `max_frames` come in pieces of that length (the last may be shorter), so that memory stays
bounded; one piece may take at most MOST_FRAMES frames and MOST_BYTES decoded.

Which videos `split: auto` sets aside follows from their names and the seed alone, so that an import
divides a folder as the one before did. Of a single video the last frames are set aside.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Division:
    """What `split: auto` makes of a folder: names of videos, and frames of an only one."""

    train: tuple[str, ...]
    val: tuple[str, ...]
    last_frames: tuple[int, int] | None = None  # of an only video: how many validate, of how many


def list_splits(source: FolderSource) -> tuple[Split, ...]:
    """The splits there are: one, unless the folder is to be divided."""
    return ("train", "val") if source.split == "auto" else (source.split,)


def count_videos(source: FolderSource, split: Split) -> int | None:
    paths = _list_videos(source, split)
    if source.max_frames is None:
        return len(paths)
    if not all(path.is_dir() for path in paths) or _is_divided_within(source, paths):
        return None  # only decoding tells how many pieces a video file gives
    return sum(-(-len(find_images(path)) // source.max_frames) for path in paths)


def read_videos(source: FolderSource, split: Split, skip: int = 0) -> Iterator[RawVideo]:
    paths = _list_videos(source, split)
    if _is_divided_within(source, paths):
        return islice(_read_part(source, paths[0], split), skip, None)
    if source.max_frames is None:
        paths, skip = paths[skip:], 0
    return islice((video for path in paths for video in _read_video(source, path)), skip, None)


def divide_videos(source: FolderSource) -> Division:
    """Which videos train and which validate, the same ones for the same names and seed."""
    paths = _search_all(source.path)
    names = [_name_video(source, path) for path in paths]
    if len(paths) == 1:
        total = sum(1 for _ in _decode_frames(source, paths[0]))
        if total < 2:
            raise GeocoError(
                f"{paths[0]}: one video of a single frame leaves nothing to validate on: add more"
            )
        validating = min(max(1, round(source.validation * total)), total - 1)
        return Division((names[0],), (names[0],), (validating, total))

    def draw(name: str) -> bytes:
        return hashlib.sha256(f"{source.seed} {name}".encode()).digest()

    count = min(max(1, round(source.validation * len(names))), len(names) - 1)
    chosen = set(sorted(names, key=draw)[:count])
    return Division(
        tuple(name for name in names if name not in chosen),
        tuple(name for name in names if name in chosen),
    )


def describe_division(source: FolderSource) -> str:
    """What of a folder trains and what validates, in a sentence."""
    division = divide_videos(source)
    if division.last_frames is not None:
        validating, total = division.last_frames
        return (
            f"one video: its last {validating:,} of {total:,} frames validate, which look much "
            "like those before; another video would test more"
        )
    total = len(division.train) + len(division.val)
    return (
        f"{len(division.val):,} of {total:,} videos validate, the others train "
        f"(data.source.validation={source.validation:g}, drawn by data.source.seed={source.seed}): "
        f"{_list_names(division.val)}"
    )


def check_videos(source: FolderSource) -> None:
    """Refuse a folder with videos whose first frame cannot be read, before an hour is spent."""
    broken: dict[str, str] = {}
    for path in _search_all(source.path):
        try:
            next(_decode_frames(source, path))
        except GeocoError as error:
            broken[path.name] = str(error)
    if broken:
        first, *others = broken
        more = f" (also {_list_names(others)})" if others else ""
        raise GeocoError(f"{broken[first]}{more}: move such files out of {source.path}")


# -- frame folders: shared with obj3d.py -----------------------------------------------------------


def read_images(paths: list[Path]) -> Iterator[tuple[str, Picture]]:
    """Each image under its name, read when it is asked for."""
    return ((path.name, read_image(path)) for path in paths)


def cut_video(
    path: Path,
    name: str,
    frames: Iterator[tuple[str, Picture]],
    most: int | None = None,
    number: int = 0,
) -> Iterator[RawVideo]:
    """The labelled frames of the video at `path` as one RawVideo, or pieces of `most` frames.

    `number` is that of the first frame within the video.
    """
    first = ahead = next(frames, None)
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
    """Video files and frame folders of a split, in natural order."""
    if split not in list_splits(source):
        raise GeocoError(
            f"{source.path}: this folder is the split '{source.split}' (data.source.split), "
            f"so there is no split '{split}'"
        )
    videos = _search_all(source.path)
    if source.split != "auto" or len(videos) == 1:
        return videos
    division = divide_videos(source)
    chosen = division.val if split == "val" else division.train
    return [path for path in videos if _name_video(source, path) in chosen]


def _search_all(folder: Path) -> list[Path]:
    videos = _search_videos(folder)
    if not videos:
        kinds = {path.suffix or path.name for path in folder.rglob("*") if path.is_file()}
        only = f"only {', '.join(sorted(kinds)[:5])} files" if kinds else "the folder is empty"
        raise GeocoError(
            f"{folder}: no videos ({' '.join(VIDEOS)}) or images ({' '.join(IMAGES)}): {only}"
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
    frames = _decode_frames(source, path)
    return cut_video(path, _name_video(source, path), frames, source.max_frames)


def _read_part(source: FolderSource, path: Path, split: Split) -> Iterator[RawVideo]:
    """The only video's first or last frames."""
    last = divide_videos(source).last_frames
    assert last is not None
    begin = last[1] - last[0]
    frames, name = _decode_frames(source, path), _name_video(source, path)
    if split == "train":
        return cut_video(path, name, islice(frames, begin), source.max_frames)
    return cut_video(path, name, islice(frames, begin, None), source.max_frames, begin)


def _decode_frames(source: FolderSource, path: Path) -> Iterator[tuple[str, Picture]]:
    """Every frame of a video with its label."""
    if not path.is_dir():
        return decode_video(path, source.frame_rate)
    if source.frame_rate is not None:
        raise GeocoError(
            f"{path}: a folder of images has no frame rate to resample: "
            "leave out data.source.frame_rate"
        )
    return read_images(find_images(path))


def _is_divided_within(source: FolderSource, paths: Sequence[Path]) -> bool:
    """Whether an only video gives both splits."""
    return source.split == "auto" and len(paths) == 1 and len(_search_all(source.path)) == 1


def _name_video(source: FolderSource, path: Path) -> str:
    return path.relative_to(source.path).as_posix() if path != source.path else path.resolve().name


def _list_names(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def _format_size(frame: Picture) -> str:
    return f"{frame.shape[1]} x {frame.shape[0]} pixels"
