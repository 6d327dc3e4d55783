"""Scenes and short videos to begin with: of a model's own data, or of the embedded generator."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8

from geoco.config import SolidsConfig, StoreConfig, WindowConfig
from geoco.data import SolidsDataset, StoreDataset
from geoco.data.store import StoredVideo
from geoco.errors import GeocoError

PICTURES, VIDEOS = 6, 2
CANDIDATES = 16  # episodes to choose from
FIRST_FRAME = 14  # when the struck solid has come into view
VIDEO_FRAMES = 20
EVERY = 2  # of the generator's frames
FEWEST_OBJECTS, MOST_OBJECTS = 3, 5
SMALLEST_SHARE = 1 / 80  # of the picture, for an object to be worth grabbing


@dataclass(frozen=True, eq=False)
class Sample:
    """Frames under a name."""

    id: str
    title: str
    frames: UInt8[np.ndarray, "time height width 3"]
    frames_per_second: float = 12


SampleMaker = Callable[[], Sequence[Sample]]


def make_samples(data: SolidsConfig | StoreConfig, size: int) -> list[Sample]:
    """Of the imported videos that a model was trained on; else of the generator."""
    return make_store_samples(data) if isinstance(data, StoreConfig) else make_solids_samples(size)


def explain_missing_store(data: SolidsConfig | StoreConfig) -> str | None:
    """Why samples of a model's own videos cannot be shown, in a sentence; None if they can."""
    if isinstance(data, SolidsConfig):
        return None
    try:
        _open_store(data)
    except GeocoError as error:
        return str(error)
    return None


def make_store_samples(config: StoreConfig) -> list[Sample]:
    """Frames of a few videos, those that validate first, and how two of them begin."""
    places = [(split, video) for split in _open_store(config) for video in _list_firsts(split)]
    samples = []
    turns = -(-PICTURES // len(places))  # how often each video is shown, at another moment
    for number in range(PICTURES):
        split, video = places[number % len(places)]
        moment = video.frames * (1 + number // len(places)) // (1 + turns)
        frames = split.batch_frames([video.start + moment]).video[0]
        title = f"{video.source}, frame {video.first + moment}"
        samples.append(Sample(f"scene-{number + 1}", title, _move_channels_last(frames)))
    moving = [place for place in places if place[1].frames > 1]
    for number, (split, video) in enumerate(moving[:VIDEOS], 1):
        rows = range(video.start, video.start + min(video.frames, VIDEO_FRAMES))
        frames = split.batch_frames(rows).video[:, 0]
        samples.append(Sample(f"video-{number}", video.source, _move_channels_last(frames)))
    return samples


def make_solids_samples(size: int) -> list[Sample]:
    """Validation scenes in which a few objects are in sight, and two videos."""
    config = SolidsConfig(height=size, width=size, window=WindowConfig(length=1, stride=1))
    dataset = SolidsDataset(config, "val")
    each = len(dataset.starts)
    clips = dataset.render_clips([number * each + FIRST_FRAME for number in range(CANDIDATES)])
    good = [number for number, clip in enumerate(clips) if _is_clear(clip.masks)]
    chosen = (good + [number for number in range(CANDIDATES) if number not in good])[:PICTURES]
    samples = [
        Sample(f"scene-{count}", f"Scene {count}", _move_channels_last(clips[number].video))
        for count, number in enumerate(chosen, 1)
    ]
    for count, number in enumerate(chosen[:VIDEOS], 1):
        frames = range(FIRST_FRAME, FIRST_FRAME + EVERY * VIDEO_FRAMES, EVERY)
        moving = dataset.render_clips([number * each + frame for frame in frames])
        video = np.concatenate([_move_channels_last(clip.video) for clip in moving])
        samples.append(Sample(f"video-{count}", f"Video {count}", video))
    return samples


def _open_store(config: StoreConfig) -> list[StoreDataset]:
    """Its validation and training videos, frame by frame: row n is frame n of the split."""
    single = config.model_copy(update={"window": WindowConfig(length=1, stride=1)})
    splits, problem = [], None
    for split in ("val", "train"):
        try:
            splits.append(StoreDataset(single, split))
        except GeocoError as error:
            problem = error
    if not splits and problem is not None:
        raise problem
    return splits


def _list_firsts(split: StoreDataset) -> list[StoredVideo]:
    """Every video once: of one that was stored in pieces the first."""
    firsts: dict[str, StoredVideo] = {}
    for video in split.index.videos:
        firsts.setdefault(video.source, video)
    return list(firsts.values())


def _is_clear(masks: object) -> bool:
    labels = np.asarray(masks)
    areas = np.unique(labels[labels > 0], return_counts=True)[1]
    large = areas >= SMALLEST_SHARE * labels.size
    return bool(large.all()) and FEWEST_OBJECTS <= len(areas) <= MOST_OBJECTS


def _move_channels_last(video: object) -> UInt8[np.ndarray, "time height width 3"]:
    return np.ascontiguousarray(np.asarray(video).transpose(0, 2, 3, 1))
