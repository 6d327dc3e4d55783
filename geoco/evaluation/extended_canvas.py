"""Drawing on a canvas three times as wide, for the covariance diagnostic (`ExtendedModel`)."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from geoco.errors import GeocoError
from geoco.evaluation.interfaces import ExtendedModel, SlotModel
from geoco.models.decoders import Fields
from geoco.models.slots import Slots

EXTENT = 3  # how many times as wide


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


def require_extended(model: SlotModel) -> ExtendedModel:
    """The model as one that draws on the larger canvas."""
    if isinstance(model, ExtendedModel):
        return model
    raise GeocoError(
        f"{type(model).__name__} cannot draw on a larger canvas, which the covariance table needs: "
        "leave the table out, or implement ExtendedModel"
    )


def draw_extended(model: ExtendedModel, slots: Slots, tile: int) -> Fields:
    """Extended fields of any number of slots, at most `tile` at a time."""
    tiles = torch.arange(len(slots.scale)).split(tile)
    return Fields.cat([model.extended_fields(slots[some]) for some in tiles])
