"""The slots of one or more frames with what they decode to, and how one slot is changed in them.

A scene has one frame, a film has many; time is the leading dimension of everything.
Only a changed slot is decoded again. A removed one keeps its place and owns nothing.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from geoco import edit_maps
from geoco.models import compositing
from geoco.models.decoders import Fields
from geoco.models.interface import Model
from geoco.models.slots import Slots

ABSENT = -1e4  # the alpha logit of a slot that is not there: its share of a pixel is exactly zero
FRAMES_AT_ONCE = 8


@dataclass(frozen=True)
class SlotView:
    """What a slot holds in one frame: numbers of the grid [-1, 1], pixels and a box in pixels."""

    index: int
    position: tuple[float, float]
    scale: float
    area: int
    is_background: bool
    is_present: bool
    box: tuple[int, int, int, int] | None  # left, top, right, bottom; None where it owns nothing


@dataclass(frozen=True, eq=False)
class DecodedFrames:
    """Slots of consecutive frames, the factual attention, and every slot decoded by itself."""

    model: Model
    slots: Slots  # [time slot ...]
    bound: Slots  # the same before all edits, or what a slot took the place of
    attention: Float[Tensor, "time slot token"]
    fields: Fields  # [time slot ...], before the selector, condensed for it
    present: Bool[Tensor, "time slot"]

    @staticmethod
    @torch.no_grad()
    def decode(
        model: Model, slots: Slots, attention: Float[Tensor, "time slot token"]
    ) -> "DecodedFrames":
        """Decode bound slots, a few frames at a time."""
        present = torch.ones_like(slots.scale, dtype=torch.bool)
        fields = _decode_slots(model, slots, slots)
        return DecodedFrames(model, slots, slots, attention, fields, present)

    def __len__(self) -> int:
        return len(self.present)

    @cached_property
    @torch.no_grad()
    def logits(self) -> Float[Tensor, "time slot height width"]:
        """Alpha logits of the slots that are there, after the selector."""
        fields = self.fields.with_logits(
            self.fields.logits.masked_fill(~self.present[..., None, None], ABSENT)
        )
        parts = [
            self.model.refine(fields[rows], self.attention[rows]).logits
            for rows in _split_rows(len(self), FRAMES_AT_ONCE)
        ]
        return torch.cat(parts)

    @cached_property
    def alpha(self) -> Float[Tensor, "time slot height width"]:
        return compositing.compute_alpha(self.logits)

    @cached_property
    def background(self) -> int:
        """The slot that owns most, over all frames."""
        return int(compositing.find_measurement_background(self.alpha.mean(0)))

    @cached_property
    def masks(self) -> Bool[Tensor, "time slot height width"]:
        return compositing.compute_masks(self.logits)

    @cached_property
    def image(self) -> Float[Tensor, "time 3 height width"]:
        assert self.fields.rgb is not None
        return compositing.composite(self.fields.rgb, self.alpha)

    @torch.no_grad()
    def with_slot(
        self,
        index: int,
        slot: Slots,
        attention: Float[Tensor, "time token"] | None = None,
        bound: Slots | None = None,
    ) -> "DecodedFrames":
        """These frames with one slot exchanged for another, given as [time 1 ...], and present.

        One that comes from elsewhere brings its attention, and what it was where it was bound.
        """
        before = self.bound if bound is None else self.bound.with_slot(index, bound)
        one = before[:, index : index + 1]
        fields = self.fields.with_slot(index, _decode_slots(self.model, slot, one))
        present = self.present.clone()
        present[:, index] = True
        where = self.attention
        if attention is not None:
            where = where.clone()
            where[:, index] = attention
        slots = self.slots.with_slot(index, slot)
        return DecodedFrames(self.model, slots, before, where, fields, present)

    def without_slot(self, index: int, frames: Bool[Tensor, " time"]) -> "DecodedFrames":
        """These frames without a slot in some of them."""
        present = self.present.clone()
        present[frames, index] = False
        return replace(self, present=present)

    def slot(self, index: int) -> Slots:
        """One slot's states as [time 1 ...]."""
        return self.slots[:, index : index + 1]

    def frame(self, time: int) -> "DecodedFrames":
        """One of the frames."""
        rows = slice(time, time + 1)
        return DecodedFrames(
            self.model,
            self.slots[rows],
            self.bound[rows],
            self.attention[rows],
            self.fields[rows],
            self.present[rows],
        )

    def view_slots(self, time: int) -> tuple[SlotView, ...]:
        """What each slot holds in a frame."""
        return tuple(self._view_slot(time, index) for index in range(self.present.shape[1]))

    def _view_slot(self, time: int, index: int) -> SlotView:
        state, mask = self.slots, self.masks[time, index]
        bounds = edit_maps.compute_cell_bounds(mask)
        box = None if bounds.isnan().any() else tuple((bounds + 0.5).int().tolist())
        x, y = state.position[time, index].tolist()
        return SlotView(
            index=index,
            position=(x, y),
            scale=float(state.scale[time, index]),
            area=int(mask.sum()),
            is_background=index == self.background,
            is_present=bool(self.present[time, index]),
            box=box,
        )


def _decode_slots(model: Model, slots: Slots, bound: Slots) -> Fields:
    pieces = [
        model.condense(model.decode_edited(slots[rows], bound[rows]))
        for rows in _split_rows(len(slots.scale), FRAMES_AT_ONCE)
    ]
    return pieces[0] if len(pieces) == 1 else Fields.cat(pieces)


def _split_rows(count: int, size: int) -> list[slice]:
    return [slice(first, min(first + size, count)) for first in range(0, count, size)]
