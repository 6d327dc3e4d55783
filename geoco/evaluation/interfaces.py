"""What a model must offer to be evaluated: slots from frames, and pictures from edited slots.

A stranger's model implements `SlotModel`, two attributes and two methods. One that draws each slot
by itself can also implement `OneSlotModel`, and every edit then costs one slot instead of all. One
that has its own way of moving and resizing implements `CommandModel`; its slots may then lack an
explicit position and scale (`make_unplaced_slots`). Whole videos need a `VideoModel`, the
covariance table an `ExtendedModel`. Tensors arrive on the CPU or where the model last answered,
frames wherever their dataset has them; a model moves them where it likes and answers from there.
"""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from geoco.models.decoders import Fields
from geoco.models.slots import Slots

Decoded = tuple[
    Float[Tensor, "batch slot 3 height width"], Float[Tensor, "batch slot height width"]
]


@dataclass(frozen=True)
class Encoded:
    """Slots of single frames, and where they attend, if the model has an attention at all.

    `active` are the slots that a model with a gate has open in a frame: the others are no objects,
    and their attention counts nowhere.
    """

    slots: Slots
    attention: Float[Tensor, "batch slot token"] | None
    active: Bool[Tensor, "batch slot"] | None = None

    def rows(self, index: Any) -> "Encoded":
        """The frames `index`, repeated where it repeats, or of each frame some of its slots."""
        return Encoded(
            self.slots[index],
            None if self.attention is None else self.attention[index],
            None if self.active is None else self.active[index],
        )

    def to(self, device: torch.device | str) -> "Encoded":
        return Encoded(
            self.slots.to(device),
            None if self.attention is None else self.attention.to(device),
            None if self.active is None else self.active.to(device),
        )


@dataclass(frozen=True)
class TrackedSlots:
    """Slots of videos, frame by frame, and where they attend, if the model has an attention."""

    slots: Slots  # [batch time slot ...]
    attention: Float[Tensor, "batch time slot token"] | None
    active: Bool[Tensor, "batch time slot"] | None = None

    def flatten(self) -> Encoded:
        """The frames of all videos as single ones, video after video."""
        return Encoded(
            self.slots.map(lambda part: part.flatten(0, 1)),
            None if self.attention is None else self.attention.flatten(0, 1),
            None if self.active is None else self.active.flatten(0, 1),
        )


@runtime_checkable
class SlotModel(Protocol):
    """Slots with appearance, position and scale that can be read off a frame and drawn again."""

    @property
    def slots(self) -> int:
        """How many slots a frame gets."""

    @property
    def size(self) -> int:
        """The side of the square frames that the model reads and draws."""

    def encode(
        self,
        frames: Float[Tensor, "batch 3 height width"],
        starts: Float[Tensor, "batch slot 2"],
    ) -> Encoded:
        """Slots of frames in [0, 1]; where slots start is given, so that it can be repeated."""

    def decode(self, encoded: Encoded, slots: Slots) -> Decoded:
        """Colours and alpha logits of `slots`, an edit of the factual `encoded.slots`.

        Whatever else the model knows of the scene stays factual, the attention above all. Must
        work for scenes of any number of slots: stability draws an object and a background alone.
        """


@runtime_checkable
class OneSlotModel(SlotModel, Protocol):
    """A model whose slots are drawn one by one, before they interact.

    `decode` is then `compose` of `fields`, and a scene in which one slot changes costs one slot.
    """

    def fields(self, slots: Slots) -> Fields:
        """Slots as each is drawn by itself."""

    def compose(self, encoded: Encoded, fields: Fields) -> Decoded:
        """The scene of drawn slots; all but they stays factual, as in `decode`."""


@runtime_checkable
class CommandModel(SlotModel, Protocol):
    """A model that is told to move and resize, where others have their slots' geometry set."""

    def command(
        self,
        encoded: Encoded,
        index: int,
        move: Float[Tensor, "batch 2"],
        factor: Float[Tensor, " batch"],
    ) -> Decoded:
        """The factual scene with slot `index` moved on the grid [-1, 1]^2 and resized by a factor.

        Resizing is about the slot's position, or its decoded centroid if it has none.
        """


@runtime_checkable
class VideoModel(SlotModel, Protocol):
    """A model whose slots keep their places through a video.

    One that was trained on single frames and binds every frame anew may say `carries = False`: its
    slots then start where they do in the single-frame protocol.
    """

    def track(
        self,
        video: Float[Tensor, "batch time 3 height width"],
        starts: Float[Tensor, "batch slot 2"],
    ) -> TrackedSlots:
        """Slots of every frame of videos in [0, 1]; `starts` is where those of the first start."""


@runtime_checkable
class ExtendedModel(Protocol):
    """One that can draw on a canvas three times as wide, slots as a list, each by itself.

    The wider canvas has the same spacing, weights and kernel offsets, so that on its middle, the
    usual canvas, the edge plays no part.
    """

    def native_logits(self, slots: Slots) -> Float[Tensor, "slot height width"]:
        """Raw alpha logits, as drawn for a picture."""

    def extended_fields(self, slots: Slots) -> Fields:
        """Raw fields drawn on [-3, 3]^2 and then cropped to [-1, 1]^2; colours may be left out."""

    def final_logits(
        self, fields: Fields, attention: Float[Tensor, "batch slot token"]
    ) -> Float[Tensor, "batch slot height width"]:
        """The logits of whole scenes from cropped raw fields and the factual attention."""

    def validity(self, scale: Float[Tensor, " slot"]) -> Float64[Tensor, "slot size"]:
        """How far `native_logits` are free of the canvas' edge, along either axis."""


@runtime_checkable
class KnownModel(SlotModel, Protocol):
    """A model that can be told from others of the same name."""

    @property
    def fingerprint(self) -> str:
        """Another one for other weights; a checksum of them, say."""


def make_unplaced_slots(appearance: Float[Tensor, "*batch slot dim"]) -> Slots:
    """Slots of a model that knows no position and no scale."""
    nowhere = torch.full((*appearance.shape[:-1], 2), torch.nan, device=appearance.device)
    return Slots(appearance, nowhere, nowhere[..., 0])
