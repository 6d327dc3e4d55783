"""Decoders: each slot to colours and an alpha logit of its own (paper, Sec. 3.2 and supplement).

Three of them behind one interface. Scale-steered and conventional place a slot's appearance on a
grid in its own frame and refine it on the image plane; the canonical canvas is drawn at the centre
and in one size, and warped into place. `extent` decodes on a larger canvas of the same spacing.
"""

import itertools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from geoco import geometry
from geoco.models.slots import Slots
from geoco.ops import ScaleSteeredConv2d, enlarge, steered_layers

DecoderKind = str

CANONICAL_SCALE = 0.2
CANONICAL_FILL = -20.0  # alpha logits outside the canvas


@dataclass(frozen=True)
class Fields:
    """What a decoder draws for each slot; alpha logits alone if no more was asked for.

    `features` are those after the fusion of field and appearance, and `plain_rgb` the colours
    without the fixed-pixel residual: the selector's evidence.
    """

    logits: Float[Tensor, "*slots height width"]
    rgb: Float[Tensor, "*slots 3 height width"] | None = None
    plain_rgb: Float[Tensor, "*slots 3 height width"] | None = None
    features: Float[Tensor, "*slots dim height width"] | None = None

    def each(self, change: Callable[[Tensor], Tensor]) -> "Fields":
        """Every part that is there, changed alike."""

        def changed(part: Tensor | None) -> Tensor | None:
            return None if part is None else change(part)

        rgb, plain, features = (changed(p) for p in (self.rgb, self.plain_rgb, self.features))
        return Fields(change(self.logits), rgb, plain, features)

    @staticmethod
    def cat(pieces: "Sequence[Fields]") -> "Fields":
        """Several one after the other, along the first dimension."""

        def together(name: str) -> Tensor | None:
            parts = [getattr(piece, name) for piece in pieces]
            return None if parts[0] is None else torch.cat(parts)

        logits = torch.cat([piece.logits for piece in pieces])
        return Fields(logits, together("rgb"), together("plain_rgb"), together("features"))

    def __getitem__(self, index: Any) -> "Fields":
        """Some of the slots, by their leading dimensions."""
        return self.each(lambda part: part[index])

    def detached(self) -> "Fields":
        return self.each(Tensor.detach)

    def with_logits(self, logits: Float[Tensor, "*slots height width"]) -> "Fields":
        """The same pictures under other alpha logits."""
        return replace(self, logits=logits)

    def with_slot(self, index: int, one: "Fields") -> "Fields":
        """The same scene with one slot drawn anew; `one` has a single slot in its place."""

        def put(axis: int, old: Tensor | None, new: Tensor | None) -> Tensor | None:
            if old is None or new is None:
                return None
            after = old.shape[axis] - index - 1
            parts = (
                old.narrow(axis, 0, index),
                new.to(old.dtype),
                old.narrow(axis, index + 1, after),
            )
            return torch.cat(parts, axis)

        logits = put(-3, self.logits, one.logits)
        assert logits is not None
        return Fields(
            logits,
            put(-4, self.rgb, one.rgb),
            put(-4, self.plain_rgb, one.plain_rgb),
            put(-4, self.features, one.features),
        )

    def joined(self, others: "Fields") -> "Fields":
        """One scene of the slots of two."""

        def cat(axis: int, one: Tensor | None, two: Tensor | None) -> Tensor | None:
            return None if one is None or two is None else torch.cat((one, two), axis)

        return Fields(
            torch.cat((self.logits, others.logits), -3),
            cat(-4, self.rgb, others.rgb),
            cat(-4, self.plain_rgb, others.plain_rgb),
            cat(-4, self.features, others.features),
        )


class Decoder(nn.Module):
    """A broadcast grid, refining layers, and the heads.

    `layers` are (size, kernel): where the size changes, the field is enlarged bilinearly first.
    Sizes are of the usual canvas; on a larger one they grow with it.
    """

    def __init__(
        self,
        kind: str = "steered",
        dim: int = 64,
        broadcast: int = 16,
        layers: Sequence[tuple[int, int]] = ((32, 5), (64, 3), (64, 3), (64, 3), (64, 3)),
        micro: bool = True,
        micro_bound: float = 0.5,
        reference_scale: float = 0.2,
        most_gain: float = 2.0,
    ) -> None:
        super().__init__()
        self.kind = kind
        self._steering = (reference_scale, most_gain)
        self.broadcast = broadcast
        self.sizes = tuple(size for size, _ in layers)
        self.micro_bound = micro_bound
        self.place = nn.Linear(2, dim)
        self.refine = nn.ModuleList(self._layer(dim, dim, kernel) for _, kernel in layers)
        self.alpha = nn.Conv2d(dim, 1, 1)
        self.style = nn.Linear(dim, dim)
        self.fuse = nn.Conv2d(2 * dim, dim, 1)
        self.color = self._layer(dim, 3, 3)
        self.micro = nn.Conv2d(dim, 3, 3, padding=1) if micro else None
        if self.micro is not None:
            nn.init.zeros_(self.micro.weight)
            assert self.micro.bias is not None
            nn.init.zeros_(self.micro.bias)

    def _layer(self, inputs: int, outputs: int, kernel: int) -> nn.Module:
        if self.kind == "steered":
            return ScaleSteeredConv2d(inputs, outputs, kernel, *self._steering)
        return nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2)

    def set_reference_scale(self, value: float) -> None:
        """Move the scale at which steered layers are ordinary convolutions."""
        for module in self.modules():
            if isinstance(module, ScaleSteeredConv2d):
                module.reference_scale.fill_(value)

    def compile_parts(self) -> None:
        """Compile the heads, and plain layers; steered ones are single kernels already.

        Training walks the alpha path back by itself, which a compiled whole could not.
        """
        layers = () if self.kind == "steered" else ("_refined",)
        for name in ("_logits", "_fused", "_colors", *layers):
            setattr(self, name, torch.compile(getattr(self, name), dynamic=False))

    def forward(self, slots: Slots, extent: int = 1, alpha_only: bool = False) -> Fields:
        """Draw slots with any leading dimensions; each slot by itself."""
        leading = slots.scale.shape
        flat = Slots(
            slots.appearance.flatten(0, -2), slots.position.flatten(0, -2), slots.scale.flatten()
        )
        draw = self._canonical if self.kind == "canonical" else self._in_place
        return draw(flat, extent, alpha_only).each(lambda part: part.unflatten(0, leading))

    def _in_place(self, slots: Slots, extent: int, alpha_only: bool) -> Fields:
        """Draw on the image plane, in each slot's own frame."""
        field = self._trunk(slots, extent)
        logits = self._logits(field)
        if alpha_only:
            return Fields(logits)
        features = self._fused(field, slots.appearance)
        plain, residual = self._colors(features, slots.scale)
        return Fields(logits, torch.sigmoid(plain + residual), torch.sigmoid(plain), features)

    def _canonical(self, slots: Slots, extent: int, alpha_only: bool) -> Fields:
        """Draw at the centre and in the canonical size, then warp into place."""
        centered = Slots(
            slots.appearance,
            torch.zeros_like(slots.position),
            torch.full_like(slots.scale, CANONICAL_SCALE),
        )
        field = self._trunk(centered, 1)
        side = self.sizes[-1]
        points = self._points(side, extent, slots)
        size = (slots.scale / CANONICAL_SCALE)[:, None, None, None]
        where = (points - slots.position[:, None, None]) / size
        logits = _wide(self.alpha(field))
        logits = _sampled(logits - CANONICAL_FILL, where)[:, 0] + CANONICAL_FILL
        if alpha_only:
            return Fields(logits)
        features = self._fused(field, slots.appearance)
        plain, residual = self._colors(features, centered.scale)
        plain, full = _sampled(plain, where), _sampled(plain + residual, where)
        warped = _sampled(features, where)
        return Fields(logits, torch.sigmoid(full), torch.sigmoid(plain), warped)

    def _trunk(self, slots: Slots, extent: int) -> Float[Tensor, "slot dim rows columns"]:
        """The refined field, channels last. Coordinates are embedded before anything is rounded."""
        points = self._points(self.broadcast, extent, slots)
        device = points.device
        with torch.autocast(device.type, enabled=False):
            place = self.place(geometry.to_slot_frame(points, slots.position, slots.scale))
            field = (slots.appearance[:, None, None] + place).permute(0, 3, 1, 2)
        if torch.is_autocast_enabled(device.type):
            field = field.to(torch.get_autocast_dtype(device.type))
        layers = zip(self.sizes, self.refine, strict=True)
        for size, alike in itertools.groupby(layers, key=operator.itemgetter(0)):
            side = geometry.count_samples(size, extent)
            field = enlarge(field, side, side)
            field = self._refined(field, [layer for _, layer in alike], slots.scale)
        return field

    def _refined(self, field: Tensor, layers: Sequence[nn.Module], scale: Tensor) -> Tensor:
        """Layers on one grid, each rectified."""
        if self.kind == "steered":
            return steered_layers(field, cast(list[ScaleSteeredConv2d], layers), scale)
        for layer in layers:
            field = torch.relu(layer(field))
        return field

    def _logits(self, field: Tensor) -> Tensor:
        """Alpha logits, in float32 at least."""
        if not torch.compiler.is_compiling():
            return _wide(self.alpha(field)[:, 0])
        # A product and a sum become one pass over the field; by themselves they would be two. With
        # channels last in the product, too, the gradient comes back in the layout of the field.
        assert self.alpha.bias is not None
        pixels = _wide(field).permute(0, 2, 3, 1)
        return (pixels * self.alpha.weight[0, :, 0, 0]).sum(-1) + self.alpha.bias

    def _fused(self, field: Tensor, appearance: Tensor) -> Tensor:
        """The field and a constant style through one pointwise layer, the style not spread out."""
        dim = field.shape[1]
        weight = self.fuse.weight
        style = F.linear(self.style(appearance), weight[:, dim:, 0, 0], self.fuse.bias)
        fused = F.conv2d(field, weight[:, :dim]) + style[:, :, None, None]
        return torch.relu(fused)

    def _colors(self, features: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        """Colour logits in float32: those that follow the scale, and the bounded residual."""
        plain = _wide(self._run(self.color, features, scale))
        if self.micro is None:
            return plain, torch.zeros_like(plain)
        return plain, self.micro_bound * torch.tanh(_wide(self.micro(features)))

    @staticmethod
    def _points(size: int, extent: int, slots: Slots) -> Float[Tensor, "rows columns 2"]:
        kind, device = slots.scale.dtype, slots.scale.device
        return geometry.build_grid(size, size, extent, dtype=kind, device=device)

    @staticmethod
    def _run(layer: nn.Module, field: Tensor, scale: Tensor) -> Tensor:
        result: Tensor = (
            layer(field, scale) if isinstance(layer, ScaleSteeredConv2d) else layer(field)
        )
        return result


def continued_reference(
    step: int, cold: float, final: float = 0.2, start: int = 2000, length: int = 8000
) -> float:
    """The reference scale at a training step: cold first, then to its final value, log-linearly."""
    share = min(max((step - start + 1) / length, 0.0), 1.0)
    return cold ** (1 - share) * final**share


def _sampled(field: Tensor, where: Float[Tensor, "slot rows columns 2"]) -> Tensor:
    """Bilinear samples of fields on the usual canvas, zeros outside."""
    with torch.autocast(field.device.type, enabled=False):
        field = _wide(field)
        return F.grid_sample(field, where.to(field.dtype), align_corners=True)


def _wide(value: Tensor) -> Tensor:
    """In float32 at least."""
    return value if value.dtype == torch.float64 else value.float()
