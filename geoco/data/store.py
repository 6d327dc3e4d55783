"""The memory-mapped store: what real videos are imported into once and trained from.

One folder per split. `frames.u8` is raw uint8 [frame, 3, height, width], `masks.u8` raw uint8
[frame, mask height, mask width] where the source has masks, which may be larger than the frames:
segmentation is measured where the masks were made, not where the model looks. `index.json` says
both sizes, where each video starts, its checksum and the settings of the import. While it is
written, the folder is called `<path>.partial` and a journal takes one line per finished video,
after that video's bytes are on disk; so an import killed at any moment goes on where it stopped.
"""

import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor
from torch.utils.data import Dataset

from geoco.config import Split, StoreConfig
from geoco.config.loading import Section
from geoco.data.clip import Clip, ClipBatch
from geoco.errors import GeocoError
from geoco.files import parse_json

FORMAT = 2
_SAME_SIZE = 1  # the format whose masks had the frames' size
_PIECE = 4096  # frames that go to a device at a time
FRAMES, MASKS, INDEX, JOURNAL = "frames.u8", "masks.u8", "index.json", "journal.jsonl"


class StoredVideo(Section):
    """One video of a store: its frames are `start` to `start + frames` of all."""

    source: str
    first: int  # the number of its first frame within the source
    start: int
    frames: int
    checksum: str  # CRC-32 of the frames' bytes followed by the masks', in hexadecimal
    metadata: dict[str, Any]


class StoreIndex(Section):
    format: int
    height: int
    width: int
    mask_size: tuple[int, int] | None  # height and width; None in a store without masks
    settings: dict[str, Any]
    videos: tuple[StoredVideo, ...]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each file's array."""
        frames = sum(video.frames for video in self.videos)
        shapes: dict[str, tuple[int, ...]] = {FRAMES: (frames, 3, self.height, self.width)}
        return shapes if self.mask_size is None else {**shapes, MASKS: (frames, *self.mask_size)}

    @property
    def recipe(self) -> dict[str, Any]:
        """All that decides what a video becomes in the store."""
        return {"format": self.format, "height": self.height, "width": self.width, **self.settings}


class StoreDataset(Dataset[Clip]):
    """Clips of one split of a store, cut as `config.window` says, in the order of the import."""

    def __init__(self, config: StoreConfig, split: Split) -> None:
        self.path = config.path / split
        self.index = read_index(self.path)
        height, width = self.index.height, self.index.width
        if (height, width) != (config.height, config.width):
            raise GeocoError(
                f"{self.path}: its frames are {height} x {width}, but the configuration asks for "
                f"{config.height} x {config.width}: set data.height={height} and "
                f"data.width={width}, or import into another data.path"
            )
        self._length = config.window.length
        videos = self.index.videos
        windows = [
            (place, offset)
            for place, video in enumerate(videos)
            for offset in config.window.starts(video.frames)
        ]
        if not windows:
            longest = max(video.frames for video in videos)
            raise GeocoError(
                f"{self.path}: no clip of {self._length} frames fits, the longest video has "
                f"{longest}: lower data.window.length, or frames in train.phases where they say so"
            )
        self._video, self._offset = np.array(windows, dtype=np.int64).T
        self._start = np.array([video.start for video in videos], dtype=np.int64)

    @property
    def description(self) -> str:
        """The dataset in a line; it names a published one, by which results are told apart."""
        size = f"{self.index.height} x {self.index.width}"
        kind = f"store{_name_source(self.index.settings)}"
        return f"{kind}, {self.path.name} split: {len(self.index.videos):,} videos, {size}"

    @property
    def sources(self) -> tuple[str, ...]:
        """The name of the video that each clip is cut from."""
        return tuple(self.index.videos[video].source for video in self._video)

    def __len__(self) -> int:
        return len(self._video)

    # What training feeds need.

    @property
    def length(self) -> int:
        """Frames of a clip."""
        return self._length

    @property
    def frame_size(self) -> tuple[int, int]:
        return self.index.height, self.index.width

    @property
    def frame_count(self) -> int:
        return sum(video.frames for video in self.index.videos)

    @cached_property
    def first_frames(self) -> Int64[np.ndarray, " clip"]:
        """Where each clip starts in all frames of the split."""
        return self._start[self._video] + self._offset

    @cached_property
    def frame_numbers(self) -> Int64[np.ndarray, " clip"]:
        """The number of each clip's first frame within its video."""
        first = np.array([video.first for video in self.index.videos], dtype=np.int64)
        return first[self._video] + self._offset

    @cached_property
    def source_numbers(self) -> Int64[np.ndarray, " clip"]:
        """The number of the video that each clip is cut from; its pieces share one."""
        numbers = np.unique(self.sources, return_inverse=True)[1]
        return numbers.astype(np.int64)

    def iterate_frames(
        self, device: torch.device
    ) -> Iterator[UInt8[Tensor, "_frame 3 _height _width"]]:
        """Every frame of the split in order, some at a time."""
        for first in range(0, self.frame_count, _PIECE):
            yield self.read_frames(first, min(_PIECE, self.frame_count - first)).to(device)

    def read_frames(self, first: int, count: int) -> UInt8[Tensor, "{count} 3 _height _width"]:
        """Some frames of the split, by their places among all of them."""
        return torch.from_numpy(self._frames[first : first + count].copy())

    def __getitem__(self, index: int) -> Clip:
        return self.batch([index])[0]

    def batch(self, indices: Sequence[int]) -> ClipBatch:
        """The clips `indices`, stacked: one gather from the memory map."""
        rows = np.asarray(indices, dtype=np.int64)
        masks = None if self._masks is None else torch.from_numpy(self._masks[self._locate(rows)])
        metadata = tuple(self.index.videos[video].metadata for video in self._video[rows])
        return replace(self.batch_frames(indices), masks=masks, metadata=metadata)

    def batch_frames(self, indices: Sequence[int]) -> ClipBatch:
        """The same for training: masks are not read."""
        if len(indices) == 0:
            raise GeocoError("a batch needs at least one clip, got none")
        rows = np.asarray(indices, dtype=np.int64)
        frames = self.frame_numbers[rows, None] + np.arange(self._length)
        return ClipBatch(
            video=torch.from_numpy(self._frames[self._locate(rows)]),
            sources=tuple(self.index.videos[video].source for video in self._video[rows]),
            frames=torch.from_numpy(frames),
            source_numbers=torch.from_numpy(self.source_numbers[rows]),
        )

    def _locate(self, rows: Int64[np.ndarray, " clip"]) -> Int64[np.ndarray, "clip time"]:
        """Where the frames of clips are among all frames of the store."""
        return self.first_frames[rows, None] + np.arange(self._length)

    # Memory maps open on first use in each process, so that workers get a path and not the bytes.

    @cached_property
    def _frames(self) -> UInt8[np.ndarray, "frame 3 height width"]:
        return _open_map(self.path / FRAMES, self.index.shapes[FRAMES])

    @cached_property
    def _masks(self) -> UInt8[np.ndarray, "frame mask_height mask_width"] | None:
        shape = self.index.shapes.get(MASKS)
        return None if shape is None else _open_map(self.path / MASKS, shape)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_frames", "_masks")}


def _name_source(settings: Mapping[str, Any]) -> str:
    """' of Obj3D' or ' of MOVi-C', as published; nothing for other imports."""
    match settings.get("source"):
        case {"kind": "obj3d"}:
            return " of Obj3D"
        case {"kind": "movi", "name": str(name)}:
            return f" of MOVi-{name[-1].upper()}"
        case _:
            return ""


def read_index(path: Path) -> StoreIndex:
    """Read and check the index of the store at `path`: its version and the sizes of its files."""
    again = f"delete {path} and run geoco data import <config> again"
    if not path.is_dir():
        others = ", ".join(sorted(index.parent.name for index in path.parent.glob(f"*/{INDEX}")))
        reason = f"there is no store here{f', only {others} beside it' if others else ''}"
        if get_partial_path(path).is_dir():
            reason = "its import did not finish"
        raise GeocoError(f"{path}: {reason}: run geoco data import <config>")
    try:
        raw = parse_json((path / INDEX).read_text(encoding="utf-8"))
        version = raw["format"]
        if version == _SAME_SIZE:
            raw["mask_size"] = [raw["height"], raw["width"]] if raw.pop("has_masks") else None
        if version in (_SAME_SIZE, FORMAT):
            index = StoreIndex.model_validate_json(json.dumps(raw))
    except FileNotFoundError:
        raise GeocoError(f"{path}: not a store, it has no {INDEX}") from None
    except OSError as error:
        raise GeocoError(f"{path / INDEX}: cannot read this file: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise GeocoError(f"{path / INDEX}: not a store's index, or damaged: {again}") from None
    if version not in (_SAME_SIZE, FORMAT):
        raise GeocoError(
            f"{path}: a store of format {str(version)[:20]}, but this version of geoco-savi reads "
            f"formats {_SAME_SIZE} and {FORMAT}: install the version that wrote it, or {again}"
        )
    lengths = [video.frames for video in index.videos]
    starts = [video.start for video in index.videos]
    if not lengths or min(lengths) < 1 or starts != [0, *accumulate(lengths)][:-1]:
        raise GeocoError(f"{path / INDEX}: its videos do not follow each other: {again}")
    for name, shape in index.shapes.items():
        file, expected = path / name, prod(shape)
        size = file.stat().st_size if file.is_file() else 0
        if size != expected:
            raise GeocoError(f"{file}: expected {expected} bytes, found {size}: {again}")
    return index


def verify_store(path: Path, progress: Callable[[int, int], None]) -> None:
    """Recompute the checksum of every video of the store at `path`; `progress(done, total)`."""
    index = read_index(path)
    maps = {name: _open_map(path / name, shape) for name, shape in index.shapes.items()}
    frames, masks = maps[FRAMES], maps.get(MASKS)
    damaged = []
    for done, video in enumerate(index.videos, start=1):
        place = slice(video.start, video.start + video.frames)
        if (
            compute_checksum(frames[place], None if masks is None else masks[place])
            != video.checksum
        ):
            damaged.append(video.source)
        progress(done, len(index.videos))
    if damaged:
        raise GeocoError(
            f"{path}: {len(damaged)} of {len(index.videos)} videos do not match their checksum, "
            f"first '{damaged[0]}': delete {path} and run geoco data import <config> again"
        )


def get_partial_path(path: Path) -> Path:
    return path.with_name(path.name + ".partial")


def _open_map(path: Path, shape: tuple[int, ...]) -> UInt8[np.ndarray, "..."]:
    # A plain array over the map: indexing a np.memmap itself costs more than the copy.
    return np.asarray(np.memmap(path, dtype=np.uint8, mode="r")).reshape(shape)


def compute_checksum(
    frames: UInt8[np.ndarray, "time 3 height width"],
    masks: UInt8[np.ndarray, "time mask_height mask_width"] | None,
) -> str:
    value = zlib.crc32(frames.data)
    return f"{value if masks is None else zlib.crc32(masks.data, value):08x}"
