"""Target images of edits, made from a frame and its reference masks alone.

The paper's visible-layer oracle (Sec. "Object-Matched Editing and RGB Preservation"): an object is
cut out with a matte, the hole is filled from the floor around it, and the layer is warped and put
back on top. No model is asked, so the targets are the same for all. What the oracle cannot know is
what the object hid, and that its shadow goes with it: see `exact_targets` for the truth.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Float64, Int64, Integer
from torch import Tensor

from geoco import edit_maps
from geoco.edit_maps import AffineMap
from geoco.metrics.rgb import grow_editing_region, grow_mask

REACH = 1 / 32  # of the frame: how far around a hole its filling is taken from, a deviation
NEAR = 1 / 64  # the same for an object's own colour at its rim
FALLBACK = 1e-6  # how much less a source counts that may be mixed with something else
CONTRAST = 8 / 255  # between object and floor; below it colours cannot tell a matte


@dataclass(frozen=True)
class Layer:
    """An object cut out of a frame: layer + (1 - alpha) background gives the frame back."""

    rgb: Float64[Tensor, "object 3 height width"]  # premultiplied by alpha
    alpha: Float64[Tensor, "object height width"]
    background: Float64[Tensor, "object 3 height width"]  # the frame with the hole filled
    support: Bool[Tensor, "object height width"]  # the reference mask

    def rows(self, index: Int64[Tensor, " row"]) -> "Layer":
        parts = (self.rgb, self.alpha, self.background, self.support)
        return Layer(*(part[index] for part in parts))


def cut_out(
    frames: Float[Tensor, "object 3 height width"],
    labels: Integer[Tensor, "object height width"],
    number: Integer[Tensor, " object"],
) -> Layer:
    """Cut one labelled object out of each frame.

    Inside, an object is opaque; where it meets the floor, its alpha is how far the colour lies on
    the way from the floor's colour to its own, at least a half on labelled pixels and at most that
    on the ring of pixels around them. Where it meets another object the edge is hard.
    """
    frames = frames.double()
    mask = labels == number[:, None, None]
    floor = labels == 0
    clean = ~grow_mask(labels != 0)
    fill = _blur(frames, clean + FALLBACK * (floor & ~clean).double(), REACH)
    edge = mask & grow_mask(floor)
    ring = grow_mask(mask) & floor
    own = _blur(frames, (mask & ~edge) + FALLBACK * edge.double(), NEAR)
    way = own - fill
    length = way.square().sum(1)
    share = ((frames - fill) * way).sum(1) / length.clamp_min(CONTRAST**2)
    told = length >= CONTRAST**2
    alpha = mask.double()
    alpha = torch.where(edge & told, share.clamp(0.5, 1.0), alpha)
    alpha = torch.where(ring & told, share.clamp(0.0, 0.5), alpha)
    return _lift_layer(frames, alpha, fill, mask)


def cut_out_matte(
    frames: Float[Tensor, "object 3 height width"],
    matte: Float64[Tensor, "object height width"],
    occupied: Bool[Tensor, "object height width"],
    support: Bool[Tensor, "object height width"],
) -> Layer:
    """Cut out one object of each frame whose matte is known; `occupied` has any object at all."""
    frames = frames.double()
    clean = ~grow_mask(occupied)
    fill = _blur(frames, clean + FALLBACK * (~occupied & ~clean).double(), REACH)
    return _lift_layer(frames, matte, fill, support)


def compose_target(
    layer: Layer,
    edit: AffineMap,
    background: Float64[Tensor, "object 3 height width"] | None = None,
) -> Float64[Tensor, "object 3 height width"]:
    """The layer where an edit puts it, on its own background or, for transplants, on another."""
    below = layer.background if background is None else background
    moved = edit_maps.warp_image(torch.cat((layer.rgb, layer.alpha[:, None]), 1), edit)
    return moved[:, :3] + (1 - moved[:, 3:]) * below


def find_region(
    layer: Layer, ideal: Bool[Tensor, "object height width"]
) -> Bool[Tensor, "object height width"]:
    """Where a move or a resize may change pixels: source and ideal supports, expanded."""
    return grow_editing_region(layer.support | ideal)


def find_transplant_region(
    recipient: Layer, donor: Layer, ideal: Bool[Tensor, "object height width"], edit: AffineMap
) -> Bool[Tensor, "object height width"]:
    """The same for a transplant, with the footprints of both mattes."""
    footprint = edit_maps.warp_image(donor.alpha[:, None], edit)[:, 0] > 0
    return grow_editing_region(recipient.support | ideal | (recipient.alpha > 0) | footprint)


def _lift_layer(frames: Tensor, alpha: Tensor, fill: Tensor, support: Tensor) -> Layer:
    """What an object adds to its filled hole."""
    shown = alpha[:, None]
    rgb = (frames - (1 - shown) * fill).clamp_min(0).minimum(shown)
    return Layer(rgb, alpha, torch.where(shown > 0, fill, frames), support)


def _blur(
    frames: Float64[Tensor, "object 3 height width"],
    weight: Float64[Tensor, "object height width"],
    reach: float,
) -> Float64[Tensor, "object 3 height width"]:
    """Everywhere the mean of weighted pixels, the nearer the more; the frame's mean if none is."""
    height, width = weight.shape[-2:]
    rows, columns = (_weigh_by_distance(size, reach, weight.device) for size in (height, width))
    weight = weight[:, None].double()
    mass = rows @ weight @ columns
    mean = rows @ (frames * weight) @ columns / mass.clamp_min(torch.finfo(torch.float64).tiny)
    return torch.where(mass > 0, mean, frames.mean((-2, -1), keepdim=True))


def _weigh_by_distance(
    size: int, reach: float, device: torch.device
) -> Float64[Tensor, "size size"]:
    """Normal weights of every pixel for every other, along one axis."""
    places = torch.arange(size, dtype=torch.float64, device=device)
    return torch.exp(-((places[:, None] - places) / (reach * size)).square() / 2)
