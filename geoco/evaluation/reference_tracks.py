"""Reference tracks: which objects of a video are measured, where, and through which slot.

An object is measured in the frame in which most of it is visible, the earliest of equal ones
(paper, Sec. D). What is left of its mask after one step of erosion, its core, or all of it where
nothing is left, says which slot it is: Hungarian maximum overlap over all tracks of a video, each
in its own frame. All of it is fixed on factual supports, before any edit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64, UInt8
from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]
from torch import Tensor

from geoco import edit_maps, metrics
from geoco.evaluation.canvas import Canvas
from geoco.evaluation.windows import Factual
from geoco.metrics.rgb import grow_mask

FEWEST_PIXELS = 20  # of a track in its reference frame; fewer on canvases of less than 64 x 64
NATIVE = 64 * 64  # pixels of the canvas on which a valid object has ten
AGREEMENT = 0.5  # of core and slot, from which an association is sure


@dataclass(frozen=True)
class Tracks:
    """Objects of videos, window by window and in the order of their labels."""

    row: Int64[Tensor, " track"]  # of the reference frame in the factual record
    label: Int64[Tensor, " track"]
    area: Int64[Tensor, " track"]  # visible over all frames
    mask: Bool[Tensor, "track rows columns"]  # in the reference frame
    slot: Int64[Tensor, " track"]  # -1 if it shares no pixel of a core
    recall: Float64[Tensor, " track"]  # the share of the core that is the slot's
    purity: Float64[Tensor, " track"]  # the share of the slot that is the core's

    @property
    def agrees(self) -> Bool[Tensor, " track"]:
        """Whether core and slot are the same for the better part."""
        return (self.recall >= AGREEMENT) & (self.purity >= AGREEMENT)


@dataclass(frozen=True)
class Anchor:
    """Which reference object is followed, in which frame its slot was found, and which it is."""

    label: int
    frame: int
    slot: int


def split_labels(
    labels: UInt8[Tensor, "window height width"],
) -> Bool[Tensor, "window object height width"]:
    """Each label but background as a mask; empty where a window lacks it."""
    numbers = torch.arange(1, int(labels.max()) + 1)
    return labels[:, None] == numbers[:, None, None]


def count_labels(
    labels: UInt8[Tensor, "window height width"],
) -> Int64[Tensor, "window label"]:
    """How many pixels of each window have each label, from 0 to the largest that there is."""
    count = int(labels.max()) + 1
    rows = count * torch.arange(len(labels))[:, None, None]
    total = torch.bincount((labels + rows).flatten(), minlength=count * len(labels))
    return total.view(len(labels), count)


def find_tracks(factual: Factual) -> Tracks:
    """Those with enough pixels in all windows."""
    assert factual.reference is not None
    starts = range(0, len(factual), factual.length)
    parts = [_track_window(factual, start) for start in starts]
    row, label, area, mask, slot, shared, core, owned = (
        torch.cat(list(column)) for column in zip(*parts, strict=True)
    )
    recall, purity = (shared.double() / part.clamp_min(1) for part in (core, owned))
    return Tracks(row, label, area, mask, slot, recall, purity)


def find_anchors(factual: Factual, clips: Sequence[int]) -> list[Anchor | None]:
    """Of some windows, the track of most visible pixels over all frames, the first of equals.

    None where its slot is no valid object in its frame, or there is no track.
    """
    tracks, canvas = find_tracks(factual), Canvas.of_reference(factual)
    fewest = count_fewest_pixels(*canvas.size)
    whose = torch.from_numpy(factual.clip)[tracks.row]
    anchors: list[Anchor | None] = []
    for clip in clips:
        among = (whose == clip).nonzero()[:, 0]
        if len(among) == 0:
            anchors.append(None)
            continue
        track = among[tracks.area[among].argmax()]
        row, slot = tracks.row[track], tracks.slot[track]
        support = canvas.take_masks(row[None], slot[None])
        closed = factual.active is not None and not factual.active[row, slot]
        lost = slot < 0 or slot == factual.background[row] or closed
        if lost or not edit_maps.is_large_enough(support, fewest):
            anchors.append(None)
            continue
        time = int(row) % factual.length
        anchors.append(Anchor(int(tracks.label[track]), time, int(slot)))
    return anchors


def count_fewest_pixels(height: int, width: int) -> int:
    """Of a valid object, and of a valid target over all frames: ten on 64 x 64, 40 on 128 x 128."""
    return scale_to_canvas(edit_maps.FEWEST_PIXELS, height, width)


def scale_to_canvas(pixels: int, height: int, width: int) -> int:
    """As much of a canvas as so many pixels are of 64 x 64, rounded up."""
    return -(-pixels * height * width // NATIVE)


def shrink_to_core(
    mask: Bool[Tensor, "*masks height width"],
) -> Bool[Tensor, "*masks height width"]:
    """A mask less the pixels that touch something else; the mask itself if that is all of it.

    Nothing is known of what lies beyond the picture's edge, which takes nothing away.
    """
    core = ~grow_mask(~mask)
    return torch.where(core.any(-1).any(-1)[..., None, None], core, mask)


def _track_window(factual: Factual, start: int) -> tuple[Tensor, ...]:
    """One window's tracks: row, label, area, mask, slot, and pixels shared, of core and of slot."""
    assert factual.reference is not None
    labels = factual.reference[start : start + factual.length]
    areas = count_labels(labels)[:, 1:]  # without background
    largest = areas.amax(0)
    fewest = min(FEWEST_PIXELS, scale_to_canvas(FEWEST_PIXELS, *labels.shape[-2:]))
    label = (largest >= fewest).nonzero()[:, 0]
    time = areas[:, label].argmax(0)
    mask = labels[time] == (label + 1)[:, None, None]
    core = shrink_to_core(mask)
    owners = factual.owners[start + time]
    slots = factual.masks.shape[1]
    each = [owner[one] for owner, one in zip(owners, core, strict=True)]
    shared = torch.cat([torch.bincount(one, minlength=slots) for one in each] or [owners[:0, 0, 0]])
    slot, common = _assign_slots(shared.view(-1, slots).long())
    owned = (owners == slot[:, None, None]).sum((-2, -1))
    return (
        start + time,
        label + 1,
        areas.sum(0)[label],
        mask,
        slot,
        common,
        core.sum((-2, -1)),
        owned,
    )


def _assign_slots(shared: Int64[Tensor, "track slot"]) -> tuple[Tensor, Tensor]:
    """One to one, for the most shared pixels in total; no slot to whom none is shared with."""
    rows, columns = linear_sum_assignment(shared.numpy(), maximize=True)
    slot = np.full(len(shared), metrics.UNASSOCIATED, dtype=np.int64)
    common = np.zeros(len(shared), dtype=np.int64)
    taken = shared.numpy()[rows, columns] > 0
    slot[rows[taken]] = columns[taken]
    common[rows] = shared.numpy()[rows, columns]
    return torch.from_numpy(slot), torch.from_numpy(common)
