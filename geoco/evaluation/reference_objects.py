"""Reference objects: who they are, which slot each is edited through, and its target images.

All of it follows from frames, reference masks and factual supports. Every model is asked the same
edits of the same objects, and judged by the same images. Objects of single frames are those with
ten visible pixels, of videos their tracks (`reference_tracks`), each in its own frame.
"""

from dataclasses import dataclass, fields
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from geoco import edit_maps, metrics
from geoco.edit_maps import AffineMap
from geoco.errors import GeocoError
from geoco.evaluation import inpainting
from geoco.evaluation.canvas import Canvas
from geoco.evaluation.commands import FACTORS, IDENTITY, MOVES, CommandKind, find_next_windows
from geoco.evaluation.reference_tracks import find_tracks, split_labels
from geoco.evaluation.windows import Factual
from geoco.metrics.rgb import grow_square

_CHUNK = 256  # windows that are associated at a time


@dataclass(frozen=True)
class References:
    """Reference objects, window by window; centers and radii are in the canvas' coordinates."""

    canvas: tuple[int, int]  # the model's
    window: Int64[Tensor, " object"]  # rows of the factual record
    label: Int64[Tensor, " object"]
    slot: Int64[Tensor, " object"]  # fixed by maximum overlap; -1 if no slot shares a pixel
    mask: Bool[Tensor, "object rows columns"]  # at the reference masks' own size
    center: Float64[Tensor, "object 2"]
    radius: Float64[Tensor, " object"]
    agrees: Bool[Tensor, " object"]  # whether what an edit changes beyond the object is measured

    def __len__(self) -> int:
        return len(self.window)

    def where(self, kept: Bool[Tensor, " object"]) -> "References":
        parts = [getattr(self, part.name)[kept] for part in fields(self)[1:]]
        return References(self.canvas, *parts)


@dataclass(frozen=True)
class AskedEdits:
    """Edits of reference objects of one kind; objects are rows of `References`."""

    kind: CommandKind
    object: Int64[Tensor, " edit"]
    command: Int64[Tensor, " edit"]  # which of MOVES or FACTORS; 0 for transplants
    donor: Int64[Tensor, " edit"]  # the object itself but for transplants
    map: AffineMap

    def __len__(self) -> int:
        return len(self.object)

    def rows(self, chunk: Int64[Tensor, " edit"]) -> "AskedEdits":
        return AskedEdits(
            self.kind,
            self.object[chunk],
            self.command[chunk],
            self.donor[chunk],
            self.map.rows(chunk),
        )


@dataclass(frozen=True)
class OracleTargets:
    """What the visible-layer oracle makes of some edits, and where they may change pixels."""

    image: Float64[Tensor, "edit 3 height width"]
    region: Bool[Tensor, "edit height width"]
    touched: Bool[Tensor, "edit height width"]  # beyond it nothing should change


def find_references(factual: Factual) -> References:
    """All reference objects of an evaluation: of single frames, or the tracks of videos."""
    if factual.reference is None:
        raise GeocoError("this table needs reference masks, and the dataset has none")
    if factual.length > 1:
        tracks = find_tracks(factual)
        which = tracks.row, tracks.label, tracks.slot
        return _describe_objects(factual, *which, tracks.mask, tracks.agrees)
    masks, canvas = split_labels(factual.reference), Canvas.of_reference(factual)
    slot = torch.cat(
        [
            metrics.associate(masks[rows], canvas.take_scenes(rows))
            for rows in torch.arange(len(factual)).split(_CHUNK)
        ]
    )
    fewest = canvas.fewest_pixels
    window, label = edit_maps.is_large_enough(masks, fewest).nonzero(as_tuple=True)
    mask, slot = masks[window, label], slot[window, label]
    return _describe_objects(factual, window, label + 1, slot, mask, slot >= 0)


def _describe_objects(
    factual: Factual, window: Tensor, label: Tensor, slot: Tensor, mask: Tensor, agrees: Tensor
) -> References:
    moments = metrics.support_moments(mask)
    canvas, size = factual.canvas, Canvas.of_reference(factual).size
    # Canvases are square, so that a radius is converted as a coordinate is.
    across = moments.radius[:, None].expand(-1, 2)
    center, radius = (
        edit_maps.convert_points(part, size, canvas) for part in (moments.center, across)
    )
    return References(canvas, window, label, slot, mask, center, radius[:, 0], agrees)


def ask_moves(objects: References) -> AskedEdits:
    """The four translations of every object."""
    height, width = objects.canvas
    number, command = _combine_all(objects, range(len(MOVES)))
    return AskedEdits(
        "position",
        number,
        command,
        number,
        AffineMap.from_move(torch.tensor(MOVES)[command], height, width),
    )


def ask_resizes(objects: References) -> AskedEdits:
    """The four factors that change anything, about the reference centroid."""
    number, command = _combine_all(objects, [k for k in range(len(FACTORS)) if k != IDENTITY])
    factor = torch.tensor(FACTORS, dtype=torch.float64)[command]
    return AskedEdits(
        "scale", number, command, number, AffineMap.from_resize(factor, objects.center[number])
    )


def ask_transplants(factual: Factual, objects: References) -> AskedEdits:
    """Every object with a donor of the next video, by rank modulo the number of objects there.

    Tracks of videos are asked for in their own frames, whichever these are.

    The donor is aligned to the recipient's centroid and RMS radius.
    """
    clip = torch.from_numpy(factual.clip)[objects.window]
    following = torch.from_numpy(find_next_windows(factual.source[:: factual.length]))[clip]
    counts = torch.bincount(clip, minlength=len(factual) // factual.length)
    first = counts.cumsum(0) - counts
    rank = torch.arange(len(objects)) - first[clip]
    there = following.clamp_min(0)
    known = (following >= 0) & (counts[there] > 0)
    recipient = known.nonzero()[:, 0]
    donor = (first[there] + rank % counts[there].clamp_min(1))[known]
    edit = AffineMap.from_transplant(
        objects.center[recipient],
        objects.radius[recipient],
        objects.center[donor],
        objects.radius[donor],
    )
    return AskedEdits("transplant", recipient, torch.zeros_like(recipient), donor, edit)


def have_valid_images(
    canvas: Canvas, objects: References, edits: AskedEdits, batch: int
) -> Bool[Tensor, " edit"]:
    """Whether each reference mask's ideal image has ten pixels; `batch` of them at a time."""
    device = canvas.factual.device

    def judge(some: AskedEdits) -> Tensor:
        edit = canvas.adapt(some.map).to(device)
        ideal = edit_maps.warp_mask(objects.mask[some.donor].to(device), edit)
        return edit_maps.is_large_enough(ideal, canvas.fewest_pixels).cpu()

    return torch.cat([judge(edits.rows(chunk)) for chunk in torch.arange(len(edits)).split(batch)])


def compute_oracle_targets(
    factual: Factual, objects: References, edits: AskedEdits, device: torch.device
) -> OracleTargets:
    """Target images and editing regions of some edits, from frames and reference masks alone."""
    edit, canvas = edits.map.to(device), Canvas.of_reference(factual)
    source = _cut_layers(factual, objects, edits.object, device)
    masks = objects.mask[edits.donor.to(objects.mask.device)].to(device)
    ideal = _shrink_masks(edit_maps.warp_mask(masks, canvas.adapt(edit)), factual.canvas)
    if edits.kind != "transplant":
        region = inpainting.find_region(source, ideal)
        # In videos all but a square around both supports should stay, in single frames the region.
        touched = grow_square(source.support | ideal) if factual.length > 1 else region
        return OracleTargets(inpainting.compose_target(source, edit), region, touched)
    donor = _cut_layers(factual, objects, edits.donor, device)
    region = inpainting.find_transplant_region(source, donor, ideal, edit)
    return OracleTargets(inpainting.compose_target(donor, edit, source.background), region, region)


def _cut_layers(
    factual: Factual, objects: References, chosen: Tensor, device: Any
) -> inpainting.Layer:
    """The layers of objects, each cut out once and handed to all its edits.

    The matte of a mask that is finer than the frame is its share of each pixel; else colours tell.
    """
    assert factual.reference is not None
    once, again = chosen.unique(return_inverse=True)
    again = again.to(device)
    window = objects.window[once]
    frames = factual.frame[window].to(device).double() / 255
    labels, number = factual.reference[window].to(device), objects.label[once].to(device)
    if labels.shape[-2:] == factual.canvas:
        return inpainting.cut_out(frames, labels, number).rows(again)
    mask = labels == number[:, None, None]
    matte, anything = (
        F.interpolate(part[:, None].double(), size=factual.canvas, mode="area")[:, 0]
        for part in (mask, labels != 0)
    )
    support = _shrink_masks(mask, factual.canvas)
    return inpainting.cut_out_matte(frames, matte, anything > 0, support).rows(again)


def _shrink_masks(mask: Tensor, size: tuple[int, int]) -> Tensor:
    """Masks at the size of frames, by their nearest pixels."""
    if mask.shape[-2:] == size:
        return mask
    return F.interpolate(mask[:, None].float(), size=size, mode="nearest")[:, 0] > 0


def _combine_all(objects: References, commands: Any) -> tuple[Tensor, Tensor]:
    """All commands of all objects."""
    pairs = torch.cartesian_prod(torch.arange(len(objects)), torch.tensor(list(commands)))
    return pairs[:, 0], pairs[:, 1]
