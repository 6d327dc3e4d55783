"""`geoco data import`: real videos, cropped and resized once, into one store per split.

An import can be stopped at any moment and run again: finished splits are kept, an unfinished one
goes on after its last whole video. Of a video's metadata only what is small is kept, since the
index is read whole: labels of objects stay, their positions in every frame do not.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from geoco.config import FolderSource, Split, StoreConfig
from geoco.data import folder, movi, obj3d
from geoco.data.source import RawVideo
from geoco.data.store import StoredVideo, StoreIndex, read_index
from geoco.data.store_writer import StoreWriter, check_recipe
from geoco.errors import GeocoError
from geoco.instances import find_instances
from geoco.media import center_box

MOST_CHARACTERS = 500  # of one value of the metadata, written as JSON


@dataclass(frozen=True)
class ImportProgress:
    """Videos of `split` that are in the store, of `total` where that is known beforehand."""

    split: Split
    done: int
    total: int | None


def import_data(
    config: StoreConfig,
    progress: Callable[[ImportProgress], None],
    tell: Callable[[str], None] = lambda sentence: None,
) -> dict[Split, Path]:
    """Import every split that the source has; returns where each store is.

    `tell` gets what was decided about the data, before the work begins.
    """
    source = config.source
    if source is None:
        raise GeocoError("data.source: required to import, but not given")
    loader = {"obj3d": obj3d, "folder": folder, "movi": movi}[source.kind]
    stores = {split: config.path / split for split in loader.list_splits(source)}
    if isinstance(source, FolderSource) and not all(path.exists() for path in stores.values()):
        folder.check_videos(source)
        if source.split == "auto":
            tell(folder.describe_division(source))
    for split, path in stores.items():
        if path.exists():
            settings = _collect_settings(config)
            recipe = _complete_recipe(read_index(path), settings)
            check_recipe(path, recipe, {**recipe, **settings})
            _check_division(config, split, read_index(path).videos)
        else:
            _import_split(config, loader, split, progress)
    return stores


def fit_video(video: RawVideo, config: StoreConfig) -> RawVideo:
    """The video at the store's size: frames by antialiased bilinear, masks by nearest pixel.

    Masks are cut as the frames are, but keep their own pixels if `config.masks` says so.
    Instances are found at the frames' size, so that their edges are those of the stored frames. A
    piece of a long video is taken by itself, as it is when windows are cut.
    """
    size = (config.width, config.height)
    box = _choose_box(video.frames, config)
    frames = _resize_frames(video.frames, size, Image.Resampling.BILINEAR, box)
    masks = None
    if video.masks is not None:
        left, top, right, bottom = box = _choose_box(video.masks, config)
        if config.masks == "native":
            masks = video.masks[:, top:bottom, left:right]
        else:
            masks = _resize_frames(video.masks, size, Image.Resampling.NEAREST, box)
    elif config.instances:
        try:
            masks = find_instances(frames)
        except GeocoError as error:
            raise GeocoError(f"{video.source}: {error}: set data.instances=false") from None
    return RawVideo(video.source, frames, masks, _keep_small(video.metadata), video.first)


def _choose_box(
    frames: UInt8[np.ndarray, "time height width *_channels"], config: StoreConfig
) -> tuple[int, int, int, int]:
    """What is kept of each frame: left, top, right, bottom."""
    height, width = frames.shape[1:3]
    if config.crop == "center":
        return center_box(height, width, config.height, config.width)
    return 0, 0, width, height


def _resize_frames(
    frames: UInt8[np.ndarray, "time ..."],
    size: tuple[int, int],
    resampling: Image.Resampling,
    box: tuple[int, int, int, int],
) -> UInt8[np.ndarray, "time ..."]:
    images = (Image.fromarray(frame).resize(size, resampling, box) for frame in frames)
    return np.stack([np.asarray(image) for image in images])


def _keep_small(metadata: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in metadata.items():
        if isinstance(value, Mapping):
            kept[name] = _keep_small(value)
        elif len(json.dumps(value, default=str)) <= MOST_CHARACTERS:
            kept[name] = value
    return kept


def _collect_settings(config: StoreConfig) -> dict[str, Any]:
    settings = config.model_dump(
        mode="json", include={"height", "width", "crop", "masks", "instances", "source"}
    )
    if isinstance(config.source, FolderSource) and config.source.split != "auto":
        for name in ("validation", "seed"):  # which then say nothing
            del settings["source"][name]
    return settings


def _complete_recipe(index: StoreIndex, settings: Mapping[str, Any]) -> dict[str, Any]:
    """A store's recipe with what older ones do not say.

    They have no instances, and MOVi's masks, which alone are a source's own, at the frames' size.
    """
    source = index.settings.get("source") or {}
    masks = "frames" if source.get("kind") == "movi" else settings["masks"]
    return {"instances": False, "masks": masks, **index.recipe}


def _import_split(
    config: StoreConfig,
    loader: ModuleType,
    split: Split,
    progress: Callable[[ImportProgress], None],
) -> None:
    total = loader.count_videos(config.source, split)
    path = config.path / split
    with StoreWriter(path, config.height, config.width, _collect_settings(config)) as writer:
        progress(ImportProgress(split, len(writer), total))
        _check_division(config, split, writer.videos, finished=False)
        videos = loader.read_videos(config.source, split, max(0, len(writer) - 1))
        if writer.last is not None:
            again = next(videos)
            if (again.source, again.first) != (writer.last.source, writer.last.first):
                raise GeocoError(_describe_change(path))
        for video in videos:
            writer.append(fit_video(video, config))
            progress(ImportProgress(split, len(writer), total))
        if total is not None and len(writer) != total:
            raise GeocoError(_describe_change(path))
        writer.finish()


def _check_division(
    config: StoreConfig, split: Split, videos: Sequence[StoredVideo], finished: bool = True
) -> None:
    """Another set of files would be divided otherwise: what has trained must not validate."""
    source = config.source
    if not isinstance(source, FolderSource) or source.split != "auto":
        return
    if finished and not source.path.exists():
        return  # the videos need not stay
    division = folder.divide_videos(source)
    expected = set(division.val if split == "val" else division.train)
    stored = {video.source for video in videos}
    changed = sorted(stored ^ expected if finished else stored - expected)
    if changed:
        raise GeocoError(
            f"{source.path}: its videos are not those of the import before, which divided them "
            f"otherwise (first {changed[0]}): delete {config.path} and import again, or choose "
            "another data.path"
        )


def _describe_change(path: Path) -> str:
    return f"{path}: its source changed during the import: delete {path}.partial and import again"
