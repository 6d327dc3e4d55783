"""Models from stored weights, which may come from anyone: checked before anything large is made.

The model is built without memory first, on PyTorch's `meta` device; only if the stored tensors are
what it has it is built for good.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from geoco.errors import GeocoError
from geoco.models import checkpoints
from geoco.models.build import build
from geoco.models.checkpoints import ModelWeights
from geoco.models.interface import Model
from geoco.models.tensor_checks import check_match

MOST_CELLS = 2**23  # slots x height x width of what is decoded for a frame
MOST_NUMBERS = 2**31  # that a model may have


def build_stored(weights: ModelWeights, where: str) -> Model:
    """The model that weights belong to, with these weights."""
    _check_size(weights, where)
    model = build(weights.config.model, pretrained=False)
    checkpoints.load_into(model, weights.tensors, where)
    return model


def _check_size(weights: ModelWeights, where: str) -> None:
    try:
        with torch.device("meta"):
            model = build(weights.config.model, pretrained=False)
    except GeocoError:
        raise
    except (RuntimeError, ValueError, TypeError, OverflowError, AssertionError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise GeocoError(
            f"{where}: no model can be built from its configuration: {reason[0]:.200}"
        ) from None
    cells = model.slot_count * model.size**2
    if cells > MOST_CELLS:
        raise GeocoError(
            f"{where}: {model.slot_count} slots of {model.size} x {model.size} pixels are too "
            f"many: at most {MOST_CELLS} pixels of slots are decoded for a frame"
        )
    own = model.state_dict()
    if sum(tensor.numel() for tensor in own.values()) > MOST_NUMBERS:
        raise GeocoError(f"{where}: its model is too large: at most {MOST_NUMBERS} numbers")
    check_match(_leave_out_pretrained(model, own, weights.tensors), weights.tensors, where)


def _leave_out_pretrained(
    model: Model, own: Mapping[str, Tensor], tensors: Mapping[str, Tensor]
) -> Mapping[str, Tensor]:
    """Without what was trained elsewhere, where the weights come without it."""
    part = f"{model.pretrained_part}."
    if model.pretrained_part is None or any(name.startswith(part) for name in tensors):
        return own
    return {name: value for name, value in own.items() if not name.startswith(part)}
