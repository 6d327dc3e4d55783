"""Obj3D as published: {train,val,test}/<episode>/test_{1..100}.png, 128 x 128, no masks.

Episodes and frames are in numeric order. Plain frame folders in the same layout are read as well:
any png or jpg whose name holds a number. A frame missing from the sequence is an error, since an
archive that was unpacked halfway would otherwise give videos that jump.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from geoco.config import Obj3DSource, Split
from geoco.data.folder import cut_video, read_images
from geoco.data.source import RawVideo
from geoco.errors import GeocoError
from geoco.media import find_images, list_folder


def list_splits(source: Obj3DSource) -> tuple[Split, ...]:
    """The splits that are there as folders."""
    folders = {entry.name for entry in list_folder(source.path) if entry.is_dir()}
    present = tuple(split for split in get_args(Split) if split in folders)
    if not present:
        shown = ", ".join(sorted(folders)[:5]) or "no folders"
        raise GeocoError(f"{source.path}: expected folders train, val or test, found {shown}")
    return present


def count_videos(source: Obj3DSource, split: Split) -> int:
    return len(_list_episodes(source, split))


def read_videos(source: Obj3DSource, split: Split, skip: int = 0) -> Iterator[RawVideo]:
    episodes = _list_episodes(source, split)
    length = len(_list_frames(episodes[0]))
    return (
        video
        for episode in episodes[skip:]
        for video in _read_episode(episode, f"{split}/{episode.name}", length)
    )


def _list_episodes(source: Obj3DSource, split: Split) -> list[Path]:
    if split not in list_splits(source):
        raise GeocoError(
            f"{source.path}: no split '{split}': it has {', '.join(list_splits(source))}"
        )
    episodes = [entry for entry in list_folder(source.path / split) if entry.is_dir()]
    if not episodes:
        raise GeocoError(f"{source.path / split}: no episodes: expected folders 0, 1, 2, ...")
    return episodes


def _read_episode(episode: Path, name: str, length: int) -> Iterator[RawVideo]:
    frames = _list_frames(episode)
    # Published episodes are equally long, so one cut off at its end shows beside the first.
    if _strip_digits(frames[0]) == "test_" and len(frames) != length:
        raise GeocoError(
            f"{episode}: {len(frames)} frames, but the first episode has {length}: "
            "one of the two is incomplete"
        )
    return cut_video(episode, name, read_images(frames))


def _list_frames(episode: Path) -> list[Path]:
    """The episode's images by number, none missing and none twice."""
    images = find_images(episode)
    if not images:
        raise GeocoError(f"{episode}: no frames: expected images test_1.png, test_2.png, ...")
    numbered: dict[int, Path] = {}
    for image in images:
        digits = _find_digits(image)
        if digits is None:
            raise GeocoError(f"{image}: expected a frame number in the name, as in test_1.png")
        if int(digits) in numbered:
            twin = numbered[int(digits)].name
            raise GeocoError(f"{image}: frame {int(digits)} is there twice, also as {twin}")
        numbered[int(digits)] = image
    numbers = sorted(numbered)
    first = 1 if _strip_digits(numbered[numbers[0]]) == "test_" else numbers[0]
    for number in range(first, numbers[-1]):
        if number not in numbered:
            after = numbered[min(later for later in numbers if later > number)]
            raise GeocoError(f"{episode}: {_renumber(after, number)} is missing")
    return [numbered[number] for number in numbers]


def _find_digits(image: Path) -> str | None:
    """The last number in a name: cam2_0003.png is frame 3."""
    numbers = re.findall(r"[0-9]+", image.stem)
    return numbers[-1] if numbers else None


def _strip_digits(image: Path) -> str:
    return image.stem.rstrip("0123456789")


def _renumber(image: Path, number: int) -> str:
    digits = _find_digits(image) or ""
    width = len(digits) if digits.startswith("0") else 0
    before, _, after = image.name.rpartition(digits)
    return f"{before}{number:0{width}d}{after}"
