"""Edits as records: moves, sizes, appearances, removals.

A record is what the history of a scene, an edit list in JSON and a request to the server hold. Its
numbers are checked when it is made; slot and frame numbers when it is applied to a scene
(`geoco.editing.apply`).
"""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Annotated, Any, Literal, ParamSpec, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from geoco.errors import GeocoError
from geoco.models.slots import LARGEST_SCALE, SMALLEST_SCALE

SlotNumber = Annotated[int, Field(ge=0)]
Pixels = Annotated[float, Field(ge=-4096, le=4096, allow_inf_nan=False)]
Coordinate = Annotated[float, Field(ge=-2, le=2, allow_inf_nan=False)]
Factor = Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)]
Frame = Annotated[int, Field(ge=0)]
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class _Operation(BaseModel):
    """What all edits share: they may be limited to some frames, first and last included."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    frames: tuple[Frame, Frame] | None = None

    @model_validator(mode="after")
    def _check_order(self) -> "_Operation":
        if self.frames is not None and self.frames[0] > self.frames[1]:
            raise ValueError(f"frames {self.frames}: the first comes after the last")
        return self


class Move(_Operation):
    """Shift a slot by pixels; `keys` are (frame, dx, dy), with straight lines in between."""

    op: Literal["move"] = "move"
    slot: SlotNumber
    dx: Pixels = 0.0
    dy: Pixels = 0.0
    keys: tuple[tuple[Frame, Pixels, Pixels], ...] = ()


class MoveTo(_Operation):
    """Put a slot at (x, y) of the grid [-1, 1]."""

    op: Literal["move_to"] = "move_to"
    slot: SlotNumber
    x: Coordinate
    y: Coordinate


class Resize(_Operation):
    """Scale a slot about its position; `keys` are (frame, factor), geometric in between."""

    op: Literal["resize"] = "resize"
    slot: SlotNumber
    factor: Factor = 1.0
    keys: tuple[tuple[Frame, Factor], ...] = ()


class ResizeTo(_Operation):
    """Give a slot a scale, the RMS radius of its attention on the grid."""

    op: Literal["resize_to"] = "resize_to"
    slot: SlotNumber
    scale: Annotated[float, Field(ge=SMALLEST_SCALE, le=LARGEST_SCALE, allow_inf_nan=False)]


class Transplant(_Operation):
    """Give a slot the appearance of a slot of another scene, known by a name."""

    op: Literal["transplant"] = "transplant"
    slot: SlotNumber
    donor: str
    donor_slot: SlotNumber


class Swap(_Operation):
    """Exchange the appearances of two slots."""

    op: Literal["swap"] = "swap"
    slot: SlotNumber
    other: SlotNumber


class Duplicate(_Operation):
    """Draw a slot once more, shifted by pixels, in the place of a slot that is not needed."""

    op: Literal["duplicate"] = "duplicate"
    slot: SlotNumber
    into: SlotNumber | None = None  # the smallest that is empty or removed
    dx: Pixels = 0.0
    dy: Pixels = 0.0


class SetBackground(_Operation):
    """Take the background of another scene."""

    op: Literal["set_background"] = "set_background"
    donor: str


class Remove(_Operation):
    """Take a slot away; the others share its pixels."""

    op: Literal["remove"] = "remove"
    slot: SlotNumber


class Interpolate(_Operation):
    """Go a share of the way to another state of the same slots; scales go geometrically."""

    op: Literal["interpolate"] = "interpolate"
    donor: str
    share: Annotated[float, Field(ge=0, le=1)]


EditRequest = Annotated[
    Move
    | MoveTo
    | Resize
    | ResizeTo
    | Transplant
    | Swap
    | Duplicate
    | SetBackground
    | Remove
    | Interpolate,
    Field(discriminator="op"),
]


def convert_numpy(value: Any) -> Any:
    """The same with numbers of Python in place of NumPy's, with which slots are often found."""
    match value:
        case np.generic():
            return value.item()
        case dict():
            return {key: convert_numpy(item) for key, item in value.items()}
        case list() | tuple():
            return type(value)(map(convert_numpy, value))
        case _:
            return value


def flatten_keys(keys: Mapping[Any, Any] | None) -> tuple[tuple[Any, ...], ...]:
    """Key frames as a record holds them: the frame, then its value or values."""
    return tuple(
        (frame, *value)
        if isinstance(value, Iterable) and not isinstance(value, str)
        else (frame, value)
        for frame, value in (keys or {}).items()
    )


def list_donors(edit: EditRequest) -> tuple[str, ...]:
    """The names of the scenes that an edit takes from."""
    name = getattr(edit, "donor", None)
    return () if name is None else (name,)


def refuse_index(transplant: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A sentence for those who still write `transplant(index, donor, slot=...)`."""

    @wraps(transplant)
    def check_arguments(*arguments: Parameters.args, **keywords: Parameters.kwargs) -> Result:
        if "index" in keywords or (len(arguments) > 1 and "slot" in keywords):
            raise GeocoError(
                "transplant has no `index`, and `slot` is the one that is changed: write "
                "transplant(slot, donor, donor_slot)"
            )
        return transplant(*arguments, **keywords)

    return check_arguments
