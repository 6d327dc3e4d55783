"""What is in a dataset: as a table and as a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import numpy as np

from geoco import drawing
from geoco.config import SolidsConfig, Split, StoreConfig
from geoco.data.clip import Clip
from geoco.data.solids import SolidsDataset
from geoco.data.store import INDEX, StoreDataset, read_index
from geoco.errors import GeocoError


def find_stores(path: Path) -> list[Path]:
    """The folder itself if it is a store, else the stores of its splits."""
    if (path / INDEX).is_file():
        return [path]
    stores = [path / split for split in get_args(Split) if (path / split).is_dir()]
    if not stores:
        raise GeocoError(
            f"{path}: there is no store here: run geoco data import <config> with data.path={path}"
        )
    return stores


def describe_splits(data: SolidsConfig | StoreConfig | Sequence[Path]) -> list[tuple[str, ...]]:
    """A table of splits, its head first."""
    head = ("split", "videos", "frames", "size", "masks", "windows")
    if isinstance(data, SolidsConfig):
        return [head, *(_describe_generated(data, split) for split in get_args(Split))]
    if isinstance(data, StoreConfig):
        return [head, *(_describe_stored(path, data) for path in find_stores(data.path))]
    return [head, *(_describe_stored(path, None) for path in data)]


def _describe_generated(config: SolidsConfig, split: Split) -> tuple[str, ...]:
    dataset = SolidsDataset(config, split)
    frames = dataset.episodes * config.frames
    size = f"{config.height} x {config.width}"
    return split, str(dataset.episodes), str(frames), size, "exact", str(len(dataset))


def _describe_stored(path: Path, config: StoreConfig | None) -> tuple[str, ...]:
    index = read_index(path)
    windows = "-"
    if config is not None:
        starts = [config.window.starts(video.frames) for video in index.videos]
        windows = str(sum(len(start) for start in starts))
    return (
        path.name,
        str(len({video.source for video in index.videos})),
        str(sum(video.frames for video in index.videos)),
        f"{index.height} x {index.width}",
        "no" if index.mask_size is None else "{} x {}".format(*index.mask_size),
        windows,
    )


def draw_preview(dataset: SolidsDataset | StoreDataset, out: Path, count: int, zoom: int) -> None:
    """Draw clips spread over the dataset: a sheet of their first frames, or all frames moving."""
    chosen = np.unique(np.linspace(0, len(dataset) - 1, count).astype(int))
    clips = [dataset[int(index)] for index in chosen]
    if out.suffix.lower() != ".gif":
        drawing.save_pictures(out, [_compose_sheet(clips, 0, zoom)])
        return
    drawing.save_pictures(
        out, [_compose_sheet(clips, time, zoom) for time in range(len(clips[0].frames))]
    )


def _compose_sheet(clips: list[Clip], time: int, zoom: int) -> drawing.Picture:
    """Up to eight clips in a row; below each row their masks, where there are any."""
    rows = []
    for first in range(0, len(clips), 8):
        part = clips[first : first + 8]
        frames = [clip.video[time].permute(1, 2, 0).numpy() for clip in part]
        rows.append([drawing.magnify(frame, zoom) for frame in frames])
        masks = [clip.masks[time].numpy() for clip in part if clip.masks is not None]
        if len(masks) == len(part):
            pairs = zip(frames, masks, strict=True)
            rows.append([drawing.overlay_masks(frame, mask, zoom) for frame, mask in pairs])
    return drawing.compose_sheet(rows)
