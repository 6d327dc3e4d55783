"""Reference objects: who they are, which slot each is edited through, and its target images.

All of it follows from frames, reference masks and factual supports. Every model is asked the same
edits of the same objects, and judged by the same images.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float64, Int64, UInt8
from torch import Tensor

from geoco import edit_maps, metrics
from geoco.edit_maps import AffineMap
from geoco.errors import GeocoError
from geoco.evaluation import inpainting
from geoco.evaluation.commands import FACTORS, IDENTITY, MOVES, CommandKind, find_next_windows
from geoco.evaluation.windows import Factual

_CHUNK = 256  # windows that are associated at a time


@dataclass(frozen=True)
class References:
    """Reference objects with at least ten visible pixels, window by window."""

    window: Int64[Tensor, " object"]  # rows of the factual record
    label: Int64[Tensor, " object"]
    slot: Int64[Tensor, " object"]  # fixed by maximum overlap; -1 if no slot shares a pixel
    mask: Bool[Tensor, "object height width"]
    center: Float64[Tensor, "object 2"]
    radius: Float64[Tensor, " object"]

    def __len__(self) -> int:
        return len(self.window)


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
        edit = AffineMap(self.map.factor[chunk], self.map.offset[chunk])
        return AskedEdits(
            self.kind, self.object[chunk], self.command[chunk], self.donor[chunk], edit
        )


@dataclass(frozen=True)
class OracleTargets:
    """What the visible-layer oracle makes of some edits, and where they may change pixels."""

    image: Float64[Tensor, "edit 3 height width"]
    region: Bool[Tensor, "edit height width"]


def find_references(factual: Factual) -> References:
    """All reference objects of an evaluation."""
    if factual.reference is None:
        raise GeocoError("this table needs reference masks, and the dataset has none")
    masks = split_labels(factual.reference)
    pieces = zip(masks.split(_CHUNK), factual.masks.split(_CHUNK), strict=True)
    slot = torch.cat([metrics.associate(*piece) for piece in pieces])
    window, label = edit_maps.is_large_enough(masks).nonzero(as_tuple=True)
    mask = masks[window, label]
    moments = metrics.support_moments(mask)
    return References(window, label + 1, slot[window, label], mask, moments.center, moments.radius)


def split_labels(
    labels: UInt8[Tensor, "window height width"],
) -> Bool[Tensor, "window object height width"]:
    """Each label but background as a mask; empty where a window lacks it."""
    numbers = torch.arange(1, int(labels.max()) + 1)
    return labels[:, None] == numbers[:, None, None]


def ask_moves(objects: References) -> AskedEdits:
    """The four translations of every object."""
    height, width = objects.mask.shape[-2:]
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

    The donor is aligned to the recipient's centroid and RMS radius.
    """
    following = torch.from_numpy(find_next_windows(factual.source))[objects.window]
    counts = torch.bincount(objects.window, minlength=len(factual))
    first = counts.cumsum(0) - counts
    rank = torch.arange(len(objects)) - first[objects.window]
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


def have_valid_images(objects: References, edits: AskedEdits, batch: int) -> Bool[Tensor, " edit"]:
    """Whether each reference mask's ideal image has ten pixels; `batch` of them at a time."""
    pieces = [edits.rows(chunk) for chunk in torch.arange(len(edits)).split(batch)]
    return torch.cat(
        [
            edit_maps.is_large_enough(edit_maps.warp_mask(objects.mask[some.donor], some.map))
            for some in pieces
        ]
    )


def compute_oracle_targets(
    factual: Factual, objects: References, edits: AskedEdits, device: torch.device
) -> OracleTargets:
    """Target images and editing regions of some edits, from frames and reference masks alone."""
    edit = AffineMap(edits.map.factor.to(device), edits.map.offset.to(device))
    source = _cut_layers(factual, objects, edits.object, device)
    if edits.kind != "transplant":
        return OracleTargets(
            inpainting.compose_target(source, edit), inpainting.find_region(source, edit)
        )
    donor = _cut_layers(factual, objects, edits.donor, device)
    return OracleTargets(
        inpainting.compose_target(donor, edit, source.background),
        inpainting.find_transplant_region(source, donor, edit),
    )


def _cut_layers(
    factual: Factual, objects: References, chosen: Tensor, device: Any
) -> inpainting.Layer:
    """The layers of objects, each cut out once and handed to all its edits."""
    assert factual.reference is not None
    once, again = chosen.unique(return_inverse=True)
    window = objects.window[once]
    layer = inpainting.cut_out(
        factual.frame[window].to(device).double() / 255,
        factual.reference[window].to(device),
        objects.label[once].to(device),
    )
    return layer.rows(again.to(device))


def _combine_all(objects: References, commands: Any) -> tuple[Tensor, Tensor]:
    """All commands of all objects."""
    pairs = torch.cartesian_prod(torch.arange(len(objects)), torch.tensor(list(commands)))
    return pairs[:, 0], pairs[:, 1]
