"""Who is followed through a video: one reference object, and the slot that it is anchored to.

A video is its first window. The paper leaves open which object is followed: here the one with the
largest visible area over the window, the lowest number among equals, whatever the model. It is
edited only if both its reference mask and its slot's support are large enough in the anchoring
frame, and its slot is not that frame's background. All of it is fixed before any edit.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int64

from geoco import edit_maps, metrics
from geoco.data import Clip, ClipBatch
from geoco.errors import GeocoError
from geoco.evaluation.interfaces import Encoded, SlotModel, VideoModel
from geoco.evaluation.reference_objects import split_labels
from geoco.evaluation.windows import Factual, Windows, choose_windows, draw_starting_positions
from geoco.metrics.rgb import psnr
from geoco.models import compositing

NATIVE = 64 * 64  # pixels of the canvas on which a valid object has ten


@dataclass(frozen=True)
class Anchor:
    """Which reference object is followed, in which frame its slot was found, and which it is."""

    label: int
    frame: int
    slot: int


@dataclass(frozen=True)
class ObjectTrack:
    """An object that can be edited throughout its video; the rows of `factual` are frames."""

    video: int  # among the videos that are looked at
    anchor: Anchor
    factual: Factual


def choose_first_windows(dataset: Windows, limit: int | None = None) -> Int64[np.ndarray, " video"]:
    """The first window of every video, or of the first `limit` videos."""
    sources, first = dataset.sources, dict[str, int]()
    for window in choose_windows(dataset, limit):
        first.setdefault(sources[window], int(window))
    return np.array(list(first.values()), dtype=np.int64)


def measure_window_length(dataset: Windows, window: int) -> int:
    """Frames of a window, which all windows of a dataset share."""
    length = dataset.batch([window]).video.shape[1]
    if length < 2:
        raise GeocoError(
            "whole-video editing needs windows of several frames, but those of the dataset have "
            "one: set the length of its window"
        )
    return length


@torch.no_grad()
def track_objects(
    model: SlotModel, dataset: Windows, windows: Int64[np.ndarray, " video"], batch: int
) -> Iterator[ObjectTrack | None]:
    """Video by video its track, None where nothing can be edited; `batch` frames at a time."""
    if not isinstance(model, VideoModel):
        raise GeocoError(
            f"{type(model).__name__} cannot follow slots through a video: whole-video editing "
            "needs a model with a `track` method"
        )
    together = max(1, batch // measure_window_length(dataset, int(windows[0])))
    for first in range(0, len(windows), together):
        some = windows[first : first + together]
        clips = dataset.batch(some.tolist())
        _check_clips(model, clips)
        starts = [draw_starting_positions(int(window), model.slots) for window in some]
        tracked = model.track(clips.images(), torch.stack(starts))
        for row, window in enumerate(some):
            factual = _compute_factual(
                model, tracked.frames(row), _take_clip(clips, row), int(window), batch
            )
            place = find_anchor(factual)
            yield None if place is None else ObjectTrack(first + row, place, factual)


def find_anchor(factual: Factual) -> Anchor | None:
    """The object with the most visible pixels over time, and its slot where it shows the most.

    Hungarian association with all objects of that frame, the earliest of equal frames. None if the
    object is too small there, or its slot is no valid object of the model.
    """
    assert factual.reference is not None
    objects = split_labels(factual.reference)
    area = objects.sum((-2, -1))
    if not area.any():
        return None
    number = int(area.sum(0).argmax())
    frame = int(area[:, number].argmax())
    slot = int(metrics.associate(objects[frame], factual.masks[frame])[number])
    large = area[frame, number] >= count_fewest_pixels(*factual.masks.shape[-2:])
    if slot == metrics.UNASSOCIATED or not large or not factual.valid[frame, slot]:
        return None
    return Anchor(number + 1, frame, slot)


def count_fewest_pixels(height: int, width: int) -> int:
    """Of a valid object, and of a valid target over all frames: ten on 64 x 64, 40 on 128 x 128."""
    return -(-edit_maps.FEWEST_PIXELS * height * width // NATIVE)


def _check_clips(model: SlotModel, clips: ClipBatch) -> None:
    height, width = clips.video.shape[-2:]
    if (height, width) != (model.size, model.size):
        raise GeocoError(
            f"the model works on {model.size} x {model.size} pixels, but the dataset has "
            f"{height} x {width}"
        )
    if clips.masks is None:
        raise GeocoError(
            "whole-video editing follows an object of the reference masks, but the dataset has "
            "none: use one with masks"
        )


def _take_clip(clips: ClipBatch, row: int) -> Clip:
    assert clips.masks is not None
    return Clip(clips.video[row], clips.sources[row], clips.frames[row], clips.masks[row])


def _compute_factual(
    model: SlotModel, encoded: Encoded, clip: Clip, window: int, batch: int
) -> Factual:
    """The frames of a video as evaluation has single ones; validity is scaled to the canvas."""
    parts = []
    for rows in torch.arange(len(clip.video)).split(batch):
        some = encoded.rows(rows)
        rgb, logits = model.decode(some, some.slots)
        alpha = compositing.compute_alpha(logits)
        owners = compositing.compute_masks(logits), compositing.find_measurement_background(alpha)
        parts.append([part.cpu() for part in (*owners, compositing.composite(rgb, alpha).float())])
    masks, background, image = (torch.cat(list(column)) for column in zip(*parts, strict=True))
    large = edit_maps.is_large_enough(masks, count_fewest_pixels(*masks.shape[-2:]))
    return Factual(
        window=np.full(len(masks), window, dtype=np.int64),
        source=(clip.source,) * len(masks),
        slots=encoded.slots,
        attention=encoded.attention,
        masks=masks,
        background=background,
        valid=large & (torch.arange(masks.shape[1]) != background[:, None]),
        frame=clip.video,
        image=image,
        psnr=psnr(image, clip.video.float() / 255),
        reference=clip.masks,
    )
