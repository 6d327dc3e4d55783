"""Decoders: each slot to colours and an alpha logit of its own (paper, Sec. 3.2 and supplement).

Three designs behind one interface. Scale-steered and conventional place a slot's appearance on a
grid in its own frame and refine it on the image plane; the canonical canvas is decoded at the
centre and in one size, and warped into place. `extent` decodes on a larger canvas of the same
spacing.
"""

import itertools
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from geoco import config, geometry
from geoco.models import middle
from geoco.models.slots import Slots
from geoco.ops import ScaleSteeredConv2d, apply_steered_layers, upsample_bilinear

CANONICAL_SCALE = 0.2
CANONICAL_FILL = -20.0  # alpha logits outside the canvas


@dataclass(frozen=True)
class Fields:
    """What a decoder makes of each slot; alpha logits alone if no more was asked for.

    `features` are those after the fusion of field and appearance, and `plain_rgb` the colours
    without the fixed-pixel residual: the selector's evidence. `projected` is all that it reads of
    `features`, and takes their place in fields that are kept (`Model.condense`).
    """

    logits: Float[Tensor, "*slots height width"]
    rgb: Float[Tensor, "*slots 3 height width"] | None = None
    plain_rgb: Float[Tensor, "*slots 3 height width"] | None = None
    features: Float[Tensor, "*slots dim height width"] | None = None
    projected: Float[Tensor, "*slots channel height width"] | None = None

    def map(self, function: Callable[[Tensor], Tensor]) -> "Fields":
        """Every part that is there, changed alike."""
        return Fields(
            function(self.logits),
            *(None if part is None else function(part) for part in self._optional),
        )

    @staticmethod
    def cat(pieces: "Sequence[Fields]") -> "Fields":
        """Several one after the other, along the first dimension."""
        return Fields(
            torch.cat([piece.logits for piece in pieces]),
            *(
                None if parts[0] is None else torch.cat(parts)
                for parts in zip(*(piece._optional for piece in pieces), strict=True)
            ),
        )

    def __getitem__(self, index: Any) -> "Fields":
        """Some of the slots, by their leading dimensions."""
        return self.map(lambda part: part[index])

    def detach(self) -> "Fields":
        return self.map(Tensor.detach)

    def with_logits(self, logits: Float[Tensor, "*slots height width"]) -> "Fields":
        """The same pictures under other alpha logits."""
        return replace(self, logits=logits)

    def with_slot(self, index: int, one: "Fields") -> "Fields":
        """The same scene with one slot decoded anew; `one` has a single slot in its place."""

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
        pairs = zip(self._optional, one._optional, strict=True)
        return Fields(logits, *(put(-4, old, new) for old, new in pairs))

    def with_slots(self, others: "Fields") -> "Fields":
        """One scene of the slots of two."""
        pairs = zip(self._optional, others._optional, strict=True)
        return Fields(
            torch.cat((self.logits, others.logits), -3),
            *(
                None if one is None or two is None else torch.cat((one, two), -4)
                for one, two in pairs
            ),
        )

    @property
    def _optional(self) -> "tuple[Tensor | None, ...]":
        return self.rgb, self.plain_rgb, self.features, self.projected


class Decoder(nn.Module, ABC):
    """What every decoder offers; its forward pass decodes slots, each by itself.

    The selector needs `features` of `dim` channels.
    """

    def __init__(self, settings: config.DecoderConfig, dim: int) -> None:
        super().__init__()
        self.size = settings.layers[-1][0]

    @abstractmethod
    def forward(self, slots: Slots, extent: int = 1, alpha_only: bool = False) -> Fields:
        """Fields of slots with any leading dimensions, on a canvas `extent` times as wide."""

    def decode_middle(self, slots: Slots, extent: int, alpha_only: bool = False) -> Fields:
        """The middle, as large as the usual canvas, of what is decoded on one `extent` as wide.

        `extent` is odd. A decoder that knows what the middle depends on draws no more than that.
        """
        fields = self(slots, extent, alpha_only)
        return cast(Fields, fields.map(lambda part: middle.cut_window(part, self.size, 0)))

    def set_reference_scale(self, value: float) -> None:
        """Move the scale at which steered layers are ordinary convolutions, if there are any."""

    def compile_parts(self) -> None:
        """Compile what has many small operations; the alpha path keeps a backward pass of its own.

        Training goes back through that path separately, which a compiled whole could not.
        """


class BroadcastDecoder(Decoder):
    """A broadcast grid in each slot's own frame, refining layers, and the heads.

    Where the size of layers changes, the field is upsampled first. Sizes are of the usual canvas;
    on a larger one they grow with it.
    """

    on_image_plane = True  # whether layers work where pixels are
    compiled: tuple[str, ...] = ("_predict_logits", "_fuse_style", "_predict_colors")

    def __init__(self, settings: config.DecoderConfig, dim: int) -> None:
        super().__init__(settings, dim)
        self.broadcast = settings.broadcast
        self.sizes = tuple(size for size, _ in settings.layers)
        self.micro_bound = settings.micro_bound
        self.place = nn.Linear(2, dim)
        self.refine = nn.ModuleList(
            self._build_layer(settings, dim, dim, kernel) for _, kernel in settings.layers
        )
        self.alpha = nn.Conv2d(dim, 1, 1)
        self.style = nn.Linear(dim, dim)
        self.fuse = nn.Conv2d(2 * dim, dim, 1)
        self.color = self._build_layer(settings, dim, 3, 3)
        self.micro = nn.Conv2d(dim, 3, 3, padding=1) if settings.micro else None
        if self.micro is not None:
            nn.init.zeros_(self.micro.weight)
            assert self.micro.bias is not None
            nn.init.zeros_(self.micro.bias)

    def compile_parts(self) -> None:
        for name in self.compiled:
            setattr(self, name, torch.compile(getattr(self, name), dynamic=False))

    def forward(self, slots: Slots, extent: int = 1, alpha_only: bool = False) -> Fields:
        leading = slots.scale.shape
        fields = self._decode(slots.flatten(), extent, alpha_only)
        return fields.map(lambda part: part.unflatten(0, leading))

    def decode_middle(self, slots: Slots, extent: int, alpha_only: bool = False) -> Fields:
        leading, flat = slots.scale.shape, slots.flatten()
        # The fixed-pixel residual reads one pixel away.
        reach = middle.measure_reach(self.color, flat.scale).clamp_min(1)
        seen = torch.zeros_like(reach) if alpha_only else reach
        margins = middle.plan_margins(self._group_layers(), flat.scale, seen, extent)
        # Slots that reach alike are drawn together.
        plans, which = torch.cat((margins, seen[:, None]), 1).unique(dim=0, return_inverse=True)
        alike = [(which == number).nonzero()[:, 0] for number in range(len(plans))]
        pieces = [
            self._decode_window(flat[chosen], extent, plan, alpha_only)
            for chosen, plan in zip(alike, plans.tolist(), strict=True)
        ]
        fields = Fields.cat(pieces)[torch.cat(alike).argsort()]
        return fields.map(lambda part: part.unflatten(0, leading))

    # -- what the designs differ in ----------------------------------------------------------------

    @abstractmethod
    def _build_layer(
        self, settings: config.DecoderConfig, inputs: int, outputs: int, kernel: int
    ) -> nn.Module:
        """A convolution that keeps the size."""

    @abstractmethod
    def _refine_field(self, field: Tensor, layers: Sequence[nn.Module], scale: Tensor) -> Tensor:
        """Layers on one grid, each rectified."""

    @abstractmethod
    def _color_logits(self, features: Tensor, scale: Tensor) -> Tensor:
        """Of the colours that follow the scale."""

    def _decode(self, slots: Slots, extent: int, alpha_only: bool) -> Fields:
        """Flat slots, decoded on the image plane."""
        return self._read_out(self._build_field(slots, extent), slots, alpha_only)

    def _decode_window(
        self, slots: Slots, extent: int, plan: Sequence[int], alpha_only: bool
    ) -> Fields:
        """The middle alone, from windows of the margins planned; the last is what heads look at."""
        *margins, seen = plan
        field = middle.cut_window(self._build_field(slots, extent, margins), self.size, seen)
        fields = self._read_out(field, slots, alpha_only)
        return fields.map(lambda part: middle.cut_window(part, self.size, 0))

    def _read_out(self, field: Tensor, slots: Slots, alpha_only: bool) -> Fields:
        """What the heads make of a refined field."""
        logits = self._predict_logits(field)
        if alpha_only:
            return Fields(logits)
        features = self._fuse_style(field, slots.appearance)
        plain, residual = self._predict_colors(features, slots.scale)
        return Fields(logits, torch.sigmoid(plain + residual), torch.sigmoid(plain), features)

    # -- what they share ---------------------------------------------------------------------------

    def _group_layers(self) -> list[tuple[int, list[nn.Module]]]:
        """The refining layers of each size, one after the other."""
        layers = zip(self.sizes, self.refine, strict=True)
        return [
            (size, [layer for _, layer in alike])
            for size, alike in itertools.groupby(layers, key=operator.itemgetter(0))
        ]

    def _build_field(
        self, slots: Slots, extent: int, margins: Sequence[int] | None = None
    ) -> Float[Tensor, "slot dim rows columns"]:
        """The refined field, channels last. Coordinates are embedded before anything is rounded.

        With margins, of each size of layers, its middle and those.
        """
        points = _grid(self.broadcast, extent, slots)
        device = points.device
        with torch.autocast(device.type, enabled=False):
            place = self.place(geometry.to_slot_frame(points, slots.position, slots.scale))
            field = (slots.appearance[:, None, None] + place).permute(0, 3, 1, 2)
        if torch.is_autocast_enabled(device.type):
            field = field.to(torch.get_autocast_dtype(device.type))
        side = geometry.count_samples(self.broadcast, extent)
        for number, (size, layers) in enumerate(self._group_layers()):
            field = middle.put_back(field, side)
            side = geometry.count_samples(size, extent)
            field = upsample_bilinear(field, side, side)
            if margins is not None:
                field = middle.cut_window(field, size, margins[number])
            field = self._refine_field(field, layers, slots.scale)
        return field

    def _predict_logits(self, field: Tensor) -> Tensor:
        """Alpha logits, in float32 at least."""
        if not torch.compiler.is_compiling():
            return _widen(self.alpha(field)[:, 0])
        # A product and a sum become one pass over the field; by themselves they would be two. With
        # channels last in the product, too, the gradient comes back in the layout of the field.
        assert self.alpha.bias is not None
        pixels = _widen(field).permute(0, 2, 3, 1)
        return (pixels * self.alpha.weight[0, :, 0, 0]).sum(-1) + self.alpha.bias

    def _fuse_style(self, field: Tensor, appearance: Tensor) -> Tensor:
        """The field and a constant style through one pointwise layer, the style not spread out."""
        dim = field.shape[1]
        weight = self.fuse.weight
        style = F.linear(self.style(appearance), weight[:, dim:, 0, 0], self.fuse.bias)
        fused = F.conv2d(field, weight[:, :dim]) + style[:, :, None, None]
        return torch.relu(fused)

    def _predict_colors(self, features: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        """Colour logits in float32: those that follow the scale, and the bounded residual."""
        plain = _widen(self._color_logits(features, scale))
        if self.micro is None:
            return plain, torch.zeros_like(plain)
        return plain, self.micro_bound * torch.tanh(_widen(self.micro(features)))


class SteeredDecoder(BroadcastDecoder):
    """Scale-steered convolutions, whose taps spread with the commanded scale."""

    def _build_layer(
        self, settings: config.DecoderConfig, inputs: int, outputs: int, kernel: int
    ) -> nn.Module:
        steering = (settings.reference_scale, settings.most_gain)
        return ScaleSteeredConv2d(inputs, outputs, kernel, *steering)

    def _refine_field(self, field: Tensor, layers: Sequence[nn.Module], scale: Tensor) -> Tensor:
        return apply_steered_layers(field, cast(list[ScaleSteeredConv2d], layers), scale)

    def _color_logits(self, features: Tensor, scale: Tensor) -> Tensor:
        logits: Tensor = self.color(features, scale)
        return logits

    def set_reference_scale(self, value: float) -> None:
        for module in self.modules():
            if isinstance(module, ScaleSteeredConv2d):
                module.reference_scale.fill_(value)


class ConventionalDecoder(BroadcastDecoder):
    """Ordinary convolutions on the image plane."""

    # Steered layers are single kernels already; these have small operations between them.
    compiled = (*BroadcastDecoder.compiled, "_refine_field")

    def _build_layer(
        self, settings: config.DecoderConfig, inputs: int, outputs: int, kernel: int
    ) -> nn.Module:
        return nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2)

    def _refine_field(self, field: Tensor, layers: Sequence[nn.Module], scale: Tensor) -> Tensor:
        for layer in layers:
            field = torch.relu(layer(field))
        return field

    def _color_logits(self, features: Tensor, scale: Tensor) -> Tensor:
        logits: Tensor = self.color(features)
        return logits


class CanonicalDecoder(ConventionalDecoder):
    """Decodes at the centre and in one size, then warps into place."""

    on_image_plane = False

    def decode_middle(self, slots: Slots, extent: int, alpha_only: bool = False) -> Fields:
        # What is at a place is the same on canvases of every extent.
        return cast(Fields, self(slots, 1, alpha_only))

    def _decode(self, slots: Slots, extent: int, alpha_only: bool) -> Fields:
        centered = Slots(
            slots.appearance,
            torch.zeros_like(slots.position),
            torch.full_like(slots.scale, CANONICAL_SCALE),
        )
        field = self._build_field(centered, 1)
        points = _grid(self.size, extent, slots)
        size = (slots.scale / CANONICAL_SCALE)[:, None, None, None]
        where = (points - slots.position[:, None, None]) / size
        logits = _widen(self.alpha(field))
        logits = _sample(logits - CANONICAL_FILL, where)[:, 0] + CANONICAL_FILL
        if alpha_only:
            return Fields(logits)
        features = self._fuse_style(field, slots.appearance)
        plain, residual = self._predict_colors(features, centered.scale)
        plain, full = _sample(plain, where), _sample(plain + residual, where)
        warped = _sample(features, where)
        return Fields(logits, torch.sigmoid(full), torch.sigmoid(plain), warped)


# By `model.decoder.design`; a new one also joins `geoco.config.DECODER_DESIGNS`.
DECODERS: dict[str, type[Decoder]] = {
    "steered": SteeredDecoder,
    "conventional": ConventionalDecoder,
    "canonical": CanonicalDecoder,
}


def continue_reference_scale(
    step: int, cold: float, final: float = 0.2, start: int = 2000, length: int = 8000
) -> float:
    """The reference scale at a training step: cold first, then to its final value, log-linearly."""
    share = min(max((step - start + 1) / length, 0.0), 1.0)
    return cold ** (1 - share) * final**share


def _grid(size: int, extent: int, slots: Slots) -> Float[Tensor, "rows columns 2"]:
    kind, device = slots.scale.dtype, slots.scale.device
    return geometry.build_grid(size, size, extent, dtype=kind, device=device)


def _sample(field: Tensor, where: Float[Tensor, "slot rows columns 2"]) -> Tensor:
    """Bilinear samples of fields on the usual canvas, zeros outside."""
    with torch.autocast(field.device.type, enabled=False):
        field = _widen(field)
        return F.grid_sample(field, where.to(field.dtype), align_corners=True)


def _widen(value: Tensor) -> Tensor:
    """In float32 at least."""
    return value if value.dtype == torch.float64 else value.float()
