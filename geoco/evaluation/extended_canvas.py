"""Drawing on a canvas three times as wide: what the covariance diagnostic asks of a model.

The wider canvas has the same spacing, weights and kernel offsets, so that on its middle, the usual
canvas, the edge plays no part. Ours can do it; a stranger's model can implement `ExtendedModel`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from geoco import geometry
from geoco.errors import GeocoError
from geoco.evaluation.interfaces import GeoCoModel, SlotModel
from geoco.models import receptive_field
from geoco.models.decoders import Fields
from geoco.models.geoco import GeoCo
from geoco.models.slots import Slots

EXTENT = 3  # how many times as wide


@runtime_checkable
class ExtendedModel(Protocol):
    """What the diagnostic needs beyond `SlotModel`; slots come as a list, each drawn by itself."""

    def native_logits(self, slots: Slots) -> Float[Tensor, "slot height width"]:
        """Raw alpha logits, as drawn for a picture."""

    def extended_fields(self, slots: Slots) -> Fields:
        """Raw fields drawn on [-3, 3]^2 and then cropped to [-1, 1]^2; colours may be left out."""

    def final_logits(
        self, drawn: Fields, attention: Float[Tensor, "batch slot token"]
    ) -> Float[Tensor, "batch slot height width"]:
        """The logits of whole scenes from cropped raw fields and the factual attention."""

    def validity(self, scale: Float[Tensor, " slot"]) -> Float64[Tensor, "slot size"]:
        """How far `native_logits` are free of the canvas' edge, along either axis."""


class ExtendedGeoCo:
    """Ours. The selector looks at the usual canvas, at features that the edge has no part in."""

    def __init__(self, model: GeoCo) -> None:
        self.model = model
        weight = next(model.parameters())
        self._kind, self._device = weight.dtype, weight.device

    def native_logits(self, slots: Slots) -> Float[Tensor, "slot height width"]:
        drawn: Fields = self.model.decoder(self._slots(slots), alpha_only=True)
        return drawn.logits

    def extended_fields(self, slots: Slots) -> Fields:
        alpha_only = self.model.selector is None
        drawn: Fields = self.model.decoder(self._slots(slots), EXTENT, alpha_only)
        first = (geometry.count_samples(self.model.size, EXTENT) - self.model.size) // 2
        middle = slice(first, first + self.model.size)
        return replace(drawn, rgb=None)[..., middle, middle]

    def final_logits(
        self, drawn: Fields, attention: Float[Tensor, "batch slot token"]
    ) -> Float[Tensor, "batch slot height width"]:
        selector = self.model.selector
        return drawn.logits if selector is None else selector.refine(drawn, self._to(attention))

    def validity(self, scale: Float[Tensor, " slot"]) -> Float64[Tensor, "slot size"]:
        return receptive_field.alpha_line(self.model.decoder, self._to(scale))

    def _to(self, value: Tensor) -> Tensor:
        return value.to(self._device, self._kind)

    def _slots(self, slots: Slots) -> Slots:
        return Slots(self._to(slots.appearance), self._to(slots.position), self._to(slots.scale))


@contextmanager
def full_precision() -> Iterator[None]:
    """Neither TF32 nor autocast, whatever is switched on outside, which comes back afterwards."""
    matrices, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    try:
        with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(matrices)
        torch.backends.cudnn.allow_tf32 = convolutions


def extended(model: SlotModel) -> ExtendedModel:
    """The model as one that draws on the larger canvas."""
    if isinstance(model, ExtendedModel):
        return model
    if isinstance(model, GeoCoModel):
        return ExtendedGeoCo(model.model)
    raise GeocoError(
        f"{type(model).__name__} cannot draw on a larger canvas, which the covariance table needs: "
        "leave the table out, or implement ExtendedModel"
    )


def extended_in_tiles(model: ExtendedModel, slots: Slots, tile: int) -> Fields:
    """Extended fields of any number of slots, at most `tile` at a time."""
    drawn = [
        model.extended_fields(slots[some]) for some in torch.arange(len(slots.scale)).split(tile)
    ]
    return Fields.cat(drawn)
