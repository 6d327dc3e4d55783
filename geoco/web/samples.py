"""Scenes and short videos to begin with, from the embedded generator."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8

from geoco.config import SolidsConfig, WindowConfig
from geoco.data import SolidsDataset

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


def _is_clear(masks: object) -> bool:
    labels = np.asarray(masks)
    areas = np.unique(labels[labels > 0], return_counts=True)[1]
    large = areas >= SMALLEST_SHARE * labels.size
    return bool(large.all()) and FEWEST_OBJECTS <= len(areas) <= MOST_OBJECTS


def _move_channels_last(video: object) -> UInt8[np.ndarray, "time height width 3"]:
    return np.ascontiguousarray(np.asarray(video).transpose(0, 2, 3, 1))
