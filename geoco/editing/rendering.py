"""Edits at the picture's own size: layers of original pixels, put where the edits say.

Every slot's layer goes by the map that its state went: moved as its position was, scaled as its
scale was, about the middle of what is seen of it. Looks that were taken from elsewhere come with
the donor's pixels, fitted to the place and size of what they replace. Who is in front is asked of
the model's edited alpha. Where nothing changes, the picture stays as it is, to the bit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64
from torch import Tensor

from geoco.edit_maps import AffineMap
from geoco.editing.decoded import DecodedFrames
from geoco.editing.layers import FrameLayers, enlarge, to_edges
from geoco.editing.origins import FrameOrigins, Origin, SourceSlot

SAME = 1e-6  # of the picture: closer than this, a slot has not moved
STEP = 1 / 255
FADE = 5 * STEP  # a change beyond which the picture loses what its layers do not explain

Picture = Float[Tensor, "3 side side"]
Cut = Callable[[SourceSlot], FrameLayers]  # the layers of the frame that a slot is of


@dataclass(frozen=True)
class _Placed:
    """A slot's layer where it belongs, drawn whenever it is needed: all at once are large."""

    slot: int
    draw: Callable[[], Float[Tensor, "4 side side"]]  # premultiplied colours, and alpha


@torch.no_grad()
def compose_frame(
    own: FrameLayers, edited: DecodedFrames, origins: FrameOrigins, cut: Cut
) -> Picture:
    """One frame after its edits; `own` are its layers, `edited` is what the model makes of it."""
    slots = [slot for slot in range(len(origins)) if slot != own.background]
    unmoved = [_Placed(slot, partial(_draw_unmoved, own, slot)) for slot in slots]
    before = _compose(own.rest, unmoved, own.model_alpha)
    share = enlarge(edited.logits[0].float(), own.side).softmax(0)
    placed = [
        _Placed(slot, partial(_draw_edited, slot, origins[slot], edited, share[slot], cut))
        for slot in slots
        if edited.present[0, slot]
    ]
    after = _compose(
        _place_background(own, edited, origins[own.background], cut), placed, edited.alpha[0]
    )
    change = (after - before).abs().amax(0)
    result = after + torch.exp(-change / FADE) * (own.frame - before)
    return torch.where(change < STEP / 2, own.frame, result).clamp(0, 1)


def _draw_unmoved(own: FrameLayers, slot: int) -> Float[Tensor, "4 side side"]:
    return _fill_hidden(own.take(slot), own.share[slot], own.model_colors[slot])


def _draw_edited(
    slot: int, origin: Origin, edited: DecodedFrames, share: Tensor, cut: Cut
) -> Float[Tensor, "4 side side"]:
    """A slot's layer after its edits; of several looks, their mean."""
    parts = []
    for weight, given in origin.looks:
        edit = _map_slot(slot, origin, given, edited, cut)
        parts.append(weight * _warp(cut(given).take(given.slot), edit, len(share)))
    assert edited.fields.rgb is not None
    layer = torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]
    return _fill_hidden(layer, share, edited.fields.rgb[0, slot].float())


def _place_background(own: FrameLayers, edited: DecodedFrames, origin: Origin, cut: Cut) -> Picture:
    """What lies below all layers; the model's own picture where no other picture has it."""
    slot = own.background
    if not edited.present[0, slot]:
        return enlarge(edited.image[0].float(), own.side)
    assert edited.fields.rgb is not None
    painted = edited.fields.rgb[0, slot].float()
    floor = torch.zeros_like(own.rest)
    for share, given in origin.looks:
        layers = cut(given)
        if given.slot == layers.background:
            edit = _map_slot(slot, origin, given, edited, cut, by_body=False)
            floor += share * _warp(layers.rest, edit, own.side, beyond="border")
        else:
            floor += share * enlarge(painted, own.side)
    return floor


def _map_slot(
    slot: int,
    origin: Origin,
    given: SourceSlot,
    edited: DecodedFrames,
    cut: Cut,
    by_body: bool = True,
) -> AffineMap | None:
    """From where the given looks are to where the slot is now, from edge to edge; None: the same.

    Place and size are those of bodies, which are nearer to the truth than the slot's own; how they
    changed is what the slot's own say.
    """
    layers, giver = cut(origin.place), cut(given)
    place, size = origin.place.slot, edited.model.size
    moved = to_edges(edited.slots.position[0, slot], size) - layers.position[place]
    scaled = to_edges(edited.slots.scale[0, slot], size) / layers.scale[place]
    if given == origin.place and moved.abs().max() < SAME and (scaled - 1).abs() < SAME:
        return None
    center, radius = layers.position[place], layers.scale[place]
    given_center, given_radius = giver.position[given.slot], giver.scale[given.slot]
    if by_body and layers.radius[place] > 0 and giver.radius[given.slot] > 0:
        center, radius = layers.center[place], layers.radius[place]
        given_center, given_radius = giver.center[given.slot], giver.radius[given.slot]
    return AffineMap.from_transplant(center + moved, scaled * radius, given_center, given_radius)


def _warp(
    planes: Float[Tensor, "plane rows columns"],
    edit: AffineMap | None,
    side: int,
    beyond: str = "zeros",
) -> Float[Tensor, "plane side side"]:
    """Planes after a map from edge to edge; what gets smaller is averaged."""
    if edit is None and planes.shape[-1] == side:
        return planes
    if edit is None:
        return enlarge(planes, side)
    inverse = edit.inverse()
    factor = float(inverse.factor)
    samples = max(1, ceil(factor * planes.shape[-1] / side - 0.01))
    samples = min(samples, max(side, planes.shape[-1]))  # fewer where all of it is in one pixel
    fine = torch.arange(side * samples, dtype=torch.float64, device=planes.device)
    places = (2 * fine + 1) / (side * samples) - 1
    columns, rows = (
        (factor * places + float(inverse.offset[axis])).view(side, samples) for axis in (0, 1)
    )
    left, top = (_find_picture(axis, planes.shape[-1]) for axis in (columns, rows))
    # Some pixels at a time: the samples of all are many times the picture where it gets small.
    across = max(1, min(left.stop - left.start, side**2 // samples**2))
    down = max(1, side**2 // (across * samples**2))
    warped = torch.cat(
        [
            torch.cat([_sample(planes, x, y, beyond) for x in columns[left].split(across)], 2)
            for y in rows[top].split(down)
        ],
        1,
    )
    margins = (left.start, side - left.stop, top.start, side - top.stop)
    return F.pad(warped[None], margins, mode="replicate")[0] if any(margins) else warped


def _find_picture(places: Float64[Tensor, "pixel sample"], side: int) -> slice:
    """The pixels on which something of a picture falls, and one more on each side.

    All that lies further out is as that one is, and need not be sampled.
    """
    near = (places.abs() < 1 + 2 / side).any(1).nonzero()[:, 0].tolist() or [0]
    return slice(max(0, near[0] - 1), min(len(places), near[-1] + 2))


def _sample(
    planes: Float[Tensor, "plane rows columns"],
    columns: Float64[Tensor, "across sample"],
    rows: Float64[Tensor, "down sample"],
    beyond: str,
) -> Float[Tensor, "plane down across"]:
    """Pixels as the mean of their samples, at these places of the planes."""
    grid = torch.stack(torch.broadcast_tensors(columns.view(1, -1), rows.view(-1, 1)), -1)[None]
    sampled = F.grid_sample(
        planes[None], grid.to(planes), mode="bilinear", padding_mode=beyond, align_corners=False
    )
    return F.avg_pool2d(sampled, columns.shape[1])[0]


def _fill_hidden(
    layer: Float[Tensor, "5 side side"],
    share: Float[Tensor, "side side"],
    painted: Float[Tensor, "3 rows columns"],
) -> Float[Tensor, "4 side side"]:
    """A layer that goes on, as the model paints it, where others hid it and no longer do."""
    color, alpha, hidden = layer[:3], layer[3:4].clamp(0, 1), layer[4].clamp(0, 1)
    more = hidden * share * (1 - alpha)
    return torch.cat((color + more * enlarge(painted, len(share)), alpha + more))


def _compose(
    floor: Picture, placed: Sequence[_Placed], model_alpha: Float[Tensor, "slot rows columns"]
) -> Picture:
    """Layers over the floor, those behind first."""
    picture = floor
    for layer in _order_by_depth(placed, model_alpha):
        drawn = layer.draw()
        picture = picture * (1 - drawn[3]) + drawn[:3]
    return picture


def _order_by_depth(
    placed: Sequence[_Placed], model_alpha: Float[Tensor, "slot rows columns"]
) -> list[_Placed]:
    """From back to front. Of two that meet, the one is in front to which the model gives more."""
    if not placed:
        return []
    size = model_alpha.shape[-2:]
    alpha = torch.cat(
        [F.interpolate(layer.draw()[None, 3:], size, mode="area")[0] for layer in placed]
    )
    owned = model_alpha[[layer.slot for layer in placed]].float()
    # Of each pair: by how much the one owns more of the pixels that both would cover.
    ahead = torch.einsum("ihw,jhw,ihw->ij", alpha, alpha, owned)
    ahead = (ahead - ahead.T).fill_diagonal_(-torch.inf)
    order, remaining = [], list(range(len(placed)))
    while remaining:
        behind = min(remaining, key=lambda one: float(ahead[one, remaining].max()))
        order.append(placed[behind])
        remaining.remove(behind)
    return order
