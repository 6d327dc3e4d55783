"""The renderer: a picture is a clean background plus one layer per object, each put in its place.

A layer is an object's own picture over the clean floor: its body, with the reflections and shadows
that the rest of its scene throws on it, and its own shadow. `Placement` says which layers a canvas
shows and where. A frame is the placement that leaves everything where it is; an edit is another
placement, drawn by the same code. So an edit that changes nothing gives the same bytes, and a moved
layer is traced anew at its new place instead of being resampled.

Bodies are sampled `supersample`^2 times per pixel; shadows, which are soft, once per pixel and all
below the bodies.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float32, Int64, UInt8
from torch import Tensor

from geoco.solids.bodies import compute_body_colors
from geoco.solids.floor import apply_shadows, compute_shadows, render_clean_floor
from geoco.solids.scenes import Scenes
from geoco.solids.tracing import Canvas, Hits, Placement, trace_rays


@dataclass(frozen=True)
class Pictures:
    """Drawn canvases. In `masks` 0 is background and i + 1 slot i; `amodal` only if asked for.

    A pixel belongs to the slot that covers most of its samples; an amodal mask holds the pixels of
    which a layer covers half, hidden or not, and all that are visibly its own.
    """

    frames: UInt8[Tensor, "canvas 3 height width"]
    masks: UInt8[Tensor, "canvas height width"]
    amodal: Bool[Tensor, "canvas slot height width"] | None


@dataclass(frozen=True)
class Layers:
    """Each object's own picture in linear light, per sample, and what lies below it.

    `shadow` is the share of the background's light that the object takes, at pixel centres.
    """

    background: Float32[Tensor, "scene 3 rows columns"]
    color: Float32[Tensor, "scene object 3 rows columns"]
    covers: Bool[Tensor, "scene object rows columns"]
    shadow: Float32[Tensor, "scene object 3 height width"]

    def composite(self, canvas: Canvas, order: Tensor) -> UInt8[Tensor, "scene 3 height width"]:
        """Put the layers together, the object with the largest `order` first."""
        taken = self.shadow.permute(2, 0, 1, 3, 4)
        picture = torch.stack(apply_shadows(list(self.background.unbind(1)), taken, canvas), dim=1)
        for place in range(order.shape[1] - 1, -1, -1):
            scene, item = torch.nonzero(order == place).unbind(-1)
            body = torch.where(
                self.covers[scene, item, None], self.color[scene, item], picture[scene]
            )
            picture[scene] = body
        return _encode_srgb(_average_samples(picture, canvas))


def render_scenes(
    scenes: Scenes, canvas: Canvas, placement: Placement | None = None, amodal: bool = False
) -> Pictures:
    """Draw scenes as they are, or their layers as `placement` arranges them, in bounded memory."""
    frames, masks, whole = [], [], []
    for piece in _split_placement(scenes, canvas, placement):
        samples = _find_visible(scenes, canvas, piece)
        frames.append(_render_frames(scenes, canvas, piece, samples))
        masks.append(_render_masks(canvas, piece, samples))
        if amodal:
            whole.append(_render_amodal_masks(canvas, piece, samples, masks[-1]))
    return Pictures(torch.cat(frames), torch.cat(masks), torch.cat(whole) if amodal else None)


def render_frames(
    scenes: Scenes, canvas: Canvas, placement: Placement | None = None
) -> UInt8[Tensor, "canvas 3 height width"]:
    """The frames of `render_scenes` alone, for training, which has no use for masks."""
    frames = [
        _render_frames(scenes, canvas, piece, _find_visible(scenes, canvas, piece))
        for piece in _split_placement(scenes, canvas, placement)
    ]
    return torch.cat(frames)


def render_layers(scenes: Scenes, canvas: Canvas) -> Layers:
    """Every object's layer. Large: about 0.6 MB times supersample^2 for a scene at 64 x 64."""
    placement = Placement.from_scenes(scenes)
    count, objects = placement.shown.shape
    hits = trace_rays(scenes, canvas, placement)
    shape = (count * objects, canvas.rows, canvas.columns)
    color = torch.zeros(3, *shape, device=hits.layer.device)
    covers = torch.zeros(shape, dtype=torch.bool, device=hits.layer.device)
    covers[hits.layer, hits.row, hits.column] = True
    for channel, values in zip(color, compute_body_colors(scenes, hits), strict=True):
        channel[hits.layer, hits.row, hits.column] = values
    background = torch.stack(render_clean_floor(scenes, canvas, placement.background), dim=1)
    return Layers(
        background=background.expand(count, -1, -1, -1),
        color=color.view(3, count, objects, *shape[1:]).permute(1, 2, 0, 3, 4),
        covers=covers.view(count, objects, *shape[1:]),
        shadow=compute_shadows(scenes, canvas, placement).permute(1, 2, 0, 3, 4),
    )


@dataclass(frozen=True)
class _Samples:
    """What a placement's layers cover: an entry for each layer and sample of a canvas."""

    different: Placement  # the layers that are traced,
    which: Int64[Tensor, " layer"] | None  # and which of them each layer is; None: they themselves
    layer: Int64[Tensor, " entry"]  # counts slots through all canvases
    place: Int64[Tensor, " entry"]  # counts samples through all canvases
    visible: Int64[Tensor, " visible"]  # entries in front
    shown: Hits  # whose colours are needed
    color: Int64[Tensor, " visible"] | None  # which of those an entry in front shows; in order


def _split_placement(
    scenes: Scenes, canvas: Canvas, placement: Placement | None
) -> Iterator[Placement]:
    """As many canvases at a time as memory allows; the scenes as they are without a placement."""
    placement = Placement.from_scenes(scenes) if placement is None else placement
    at_once = (1024 if scenes.present.is_cuda else 8) * 192 * 192
    step = max(1, at_once // (canvas.rows * canvas.columns))
    for start in range(0, max(1, len(placement)), step):
        yield placement[start : start + step]


def _find_visible(scenes: Scenes, canvas: Canvas, placement: Placement) -> _Samples:
    count, slots = placement.shown.shape
    different, which = placement.find_layers()
    hits = trace_rays(scenes, canvas, different)
    if which is None:
        layer, entry = hits.layer, None
        row, column = hits.row, hits.column
    else:
        layer, entry = _repeat_hits(hits.layer, which, len(different))
        row, column = hits.row[entry], hits.column[entry]
    place = (layer // slots * canvas.rows + row) * canvas.columns + column
    order = placement.order.flatten()[layer]
    front = torch.full((count * canvas.rows * canvas.columns,), slots, device=order.device)
    front.scatter_reduce_(0, place, order, "amin")
    visible = torch.nonzero(front[place] == order).squeeze(1)
    if entry is None:
        return _Samples(different, which, layer, place, visible, hits[visible], None)
    in_front = entry[visible]
    seen = torch.zeros_like(hits.layer, dtype=torch.bool)
    seen[in_front] = True
    shown, color = hits[seen.nonzero()[:, 0]], (seen.long().cumsum(0) - 1)[in_front]
    return _Samples(different, which, layer, place, visible, shown, color)


def _repeat_hits(
    layer: Int64[Tensor, " hit"], which: Int64[Tensor, " layer"], different: int
) -> tuple[Int64[Tensor, " entry"], Int64[Tensor, " entry"]]:
    """Every layer of all canvases as often as it has hits, and which hit each entry is."""
    order = layer.argsort(stable=True)
    count = torch.bincount(layer, minlength=different)
    own = count[which]
    repeated = torch.repeat_interleave(own)
    # From the first entry of a layer on, its hits one after the other.
    shift = (count.cumsum(0) - count)[which] - (own.cumsum(0) - own)
    return repeated, order[torch.arange(len(repeated), device=layer.device) + shift[repeated]]


def _render_frames(
    scenes: Scenes, canvas: Canvas, placement: Placement, samples: _Samples
) -> UInt8[Tensor, "canvas 3 height width"]:
    floor = _render_floors(scenes, canvas, placement)
    shadows = compute_shadows(scenes, canvas, samples.different)
    if samples.which is not None:
        shadows = shadows[:, samples.which, 0].unflatten(1, placement.shown.shape)
    picture = apply_shadows(floor, shadows, canvas)
    place = samples.place[samples.visible]
    for channel, color in zip(picture, compute_body_colors(scenes, samples.shown), strict=True):
        channel.view(-1)[place] = color if samples.color is None else color[samples.color]
    return torch.stack(
        [_encode_srgb(_average_samples(channel, canvas)) for channel in picture], dim=1
    )


def _render_floors(scenes: Scenes, canvas: Canvas, placement: Placement) -> list[Tensor]:
    """The clean floor of every canvas, or one for all; those of a scene drawn once."""
    if not placement.repeated:
        return render_clean_floor(scenes, canvas, placement.background)
    background, which = placement.background.unique(return_inverse=True)
    floor = render_clean_floor(scenes, canvas, background)
    return [channel if len(channel) == 1 else channel[which] for channel in floor]


def _render_masks(
    canvas: Canvas, placement: Placement, samples: _Samples
) -> UInt8[Tensor, "canvas height width"]:
    count, slots = placement.shown.shape
    shape = (count, canvas.rows, canvas.columns)
    label = torch.zeros(shape, dtype=torch.uint8, device=samples.place.device)
    visible = samples.visible
    label.view(-1)[samples.place[visible]] = (samples.layer[visible] % slots + 1).to(torch.uint8)
    most = _count_samples(label == 0, canvas)
    owner = torch.zeros_like(most)
    for number in range(1, slots + 1):
        owned = _count_samples(label == number, canvas)
        owner.masked_fill_(owned > most, number)  # of equals the first
        most = torch.maximum(most, owned)
    return owner


def _render_amodal_masks(
    canvas: Canvas,
    placement: Placement,
    samples: _Samples,
    masks: UInt8[Tensor, "canvas height width"],
) -> Bool[Tensor, "canvas slot height width"]:
    count, slots = placement.shown.shape
    covers = torch.zeros(
        (count * slots, canvas.rows * canvas.columns), dtype=torch.bool, device=masks.device
    )
    covers[samples.layer, samples.place % covers.shape[1]] = True
    pixels = _count_samples(covers.unflatten(1, (canvas.rows, canvas.columns)), canvas)
    most = 2 * pixels >= canvas.supersample**2
    own = masks[:, None] == torch.arange(1, slots + 1, device=masks.device)[:, None, None]
    return most.view(own.shape) | own


def _average_samples(samples: Tensor, canvas: Canvas) -> Tensor:
    """The mean of each pixel's samples, added one after the other: the order is part of it."""
    every = canvas.supersample
    total = samples[..., ::every, ::every].clone()
    for number in range(1, every * every):
        total += samples[..., number // every :: every, number % every :: every]
    return total / every**2


def _count_samples(samples: Bool[Tensor, "..."], canvas: Canvas) -> UInt8[Tensor, "..."]:
    """How many of each pixel's samples are true."""
    every = canvas.supersample
    parts = samples.view(torch.uint8).unflatten(-2, (-1, every)).unflatten(-1, (-1, every))
    return parts.sum((-3, -1), dtype=torch.uint8)


def _encode_srgb(linear: Tensor) -> UInt8[Tensor, "..."]:
    """Linear light to 8-bit sRGB by looking the value up among the 255 thresholds between codes."""
    code = (torch.arange(255, dtype=torch.float64) + 0.5) / 255
    threshold = torch.where(code <= 0.04045, code / 12.92, ((code + 0.055) / 1.055) ** 2.4)
    threshold = threshold.float().to(linear.device)
    return torch.bucketize(linear.contiguous(), threshold, out_int32=True).to(torch.uint8)
