"""What a model must offer to be evaluated: slots from frames, and pictures from edited slots.

A stranger's model implements `SlotModel`, two attributes and two methods. One that draws each slot
by itself can also implement `OneSlotModel`, and every edit then costs one slot instead of all. One
that has its own way of moving and resizing implements `CommandModel`; its slots may then lack an
explicit position and scale (`unplaced`). Tensors arrive on the CPU, frames wherever their dataset
has them; a model moves them where it likes and answers from wherever it is.
"""

import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from geoco.models.decoders import Fields
from geoco.models.geoco import GeoCo
from geoco.models.slots import Slots

Drawn = tuple[Float[Tensor, "batch slot 3 height width"], Float[Tensor, "batch slot height width"]]


@dataclass(frozen=True)
class Encoded:
    """Slots of single frames, and where they attend, if the model has an attention at all."""

    slots: Slots
    attention: Float[Tensor, "batch slot token"] | None

    def rows(self, index: Int64[Tensor, " row"]) -> "Encoded":
        """The frames `index`, repeated where it repeats."""
        return Encoded(
            self.slots[index],
            None if self.attention is None else self.attention[index],
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

    def decode(self, encoded: Encoded, slots: Slots) -> Drawn:
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

    def compose(self, encoded: Encoded, fields: Fields) -> Drawn:
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
    ) -> Drawn:
        """The factual scene with slot `index` moved on the grid [-1, 1]^2 and resized by a factor.

        Resizing is about the slot's position, or its decoded centroid if it has none.
        """


@runtime_checkable
class KnownModel(SlotModel, Protocol):
    """A model that can be told from others of the same name."""

    @property
    def fingerprint(self) -> str:
        """Another one for other weights; a checksum of them, say."""


def unplaced(appearance: Float[Tensor, "*batch slot dim"]) -> Slots:
    """Slots of a model that knows no position and no scale."""
    nowhere = torch.full((*appearance.shape[:-1], 2), torch.nan, device=appearance.device)
    return Slots(appearance, nowhere, nowhere[..., 0])


class GeoCoModel:
    """Ours. Under an edit the selector runs again, with the factual attention."""

    def __init__(self, model: GeoCo) -> None:
        self.model = model
        weight = next(model.parameters())
        self._kind, self._device = weight.dtype, weight.device

    @property
    def slots(self) -> int:
        return self.model.settings.slots.count

    @cached_property
    def fingerprint(self) -> str:
        """Of weights and buffers, and of how the selector is used."""
        selector = self.model.settings.selector
        found = zlib.crc32(selector.model_dump_json().encode() if selector.enabled else b"")
        for name, value in sorted(self.model.state_dict().items()):
            found = zlib.crc32(name.encode(), found)
            found = zlib.crc32(value.cpu().contiguous().numpy().tobytes(), found)
        return f"{found:08x}"

    @property
    def size(self) -> int:
        return self.model.size

    @torch.no_grad()
    def encode(
        self,
        frames: Float[Tensor, "batch 3 height width"],
        starts: Float[Tensor, "batch slot 2"],
    ) -> Encoded:
        bound = self.model.bind(self._to(frames)[:, None], self._to(starts))
        return Encoded(bound.slots[:, 0], bound.attention[:, 0])

    def decode(self, encoded: Encoded, slots: Slots) -> Drawn:
        return self.compose(encoded, self.fields(slots))

    @torch.no_grad()
    def fields(self, slots: Slots) -> Fields:
        drawn: Fields = self.model.decoder(self._slots(slots))
        return drawn

    @torch.no_grad()
    def compose(self, encoded: Encoded, fields: Fields) -> Drawn:
        logits = fields.logits
        if self.model.selector is not None:
            assert encoded.attention is not None
            logits = self.model.selector.refine(fields, self._to(encoded.attention))
        assert fields.rgb is not None
        return fields.rgb, logits

    def _to(self, value: Tensor) -> Tensor:
        return value.to(self._device, self._kind)

    def _slots(self, slots: Slots) -> Slots:
        return Slots(self._to(slots.appearance), self._to(slots.position), self._to(slots.scale))
