"""Are tensors what a model has? Names, shapes, types, and finite numbers."""

from collections.abc import Mapping

import torch
from torch import Tensor

from geoco.errors import GeocoError

# What is turned into a model's own float type: half as many bits hold the same numbers.
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def check_match(own: Mapping[str, Tensor], tensors: Mapping[str, Tensor], where: str) -> None:
    """Refuse `tensors` that are not those of a model that has `own`, which may be on `meta`."""
    problem = _find_difference(own, tensors)
    if problem is not None:
        raise GeocoError(
            f"{where}: these are weights of another model, {problem}: build the model from the "
            "configuration that is stored with them"
        )


def check_finite(own: Mapping[str, Tensor], tensors: Mapping[str, Tensor], where: str) -> None:
    """Refuse `tensors` that are not finite in the types of `own`."""
    for name, value in own.items():
        if value.is_floating_point() and not tensors[name].to(value.dtype).isfinite().all():
            raise GeocoError(
                f"{where}: '{name}' holds numbers that are not finite: use another checkpoint"
            )


def _find_difference(own: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> str | None:
    for name in own:
        if name not in tensors:
            return f"'{name}' is missing from them"
    for name in tensors:
        if name not in own:
            return f"'{name:.100}' is not in the model"
    for name, value in own.items():
        given = tensors[name]
        if given.shape != value.shape:
            shapes = f"{list(given.shape)} and not {list(value.shape)}"
            return f"'{name}' is {shapes} as in the model"
        if given.dtype != value.dtype and not (given.dtype in FLOATS and value.dtype in FLOATS):
            return f"'{name}' is of {_name(given)} and not {_name(value)} as in the model"
    return None


def _name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
