"""Whose pixels a slot shows: followed through edits, so that they can be drawn at their own size.

An appearance comes from a slot of a frame that was encoded, or, in between two, from several with
shares. Place and size are told apart from it: a transplant changes looks, and no place.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import UInt8

from geoco.editing.apply import find_spare_slot
from geoco.editing.decoded import DecodedFrames
from geoco.editing.operations import (
    Duplicate,
    EditRequest,
    Interpolate,
    SetBackground,
    Swap,
    Transplant,
)
from geoco.editing.originals import Originals


@dataclass(frozen=True, eq=False)
class Source:
    """Frames as they were encoded, and as they were brought."""

    frames: UInt8[np.ndarray, "time height width 3"]
    seed: int
    originals: Originals | None

    @property
    def side(self) -> int:
        """The size that pictures of it have."""
        return self.frames.shape[1] if self.originals is None else self.originals.side

    def iterate(self) -> Iterator[UInt8[np.ndarray, "side side 3"]]:
        """Its frames as they were brought, one at a time."""
        return iter(self.frames) if self.originals is None else self.originals.iterate()


@dataclass(frozen=True)
class SourceSlot:
    """A slot of a frame, before all edits."""

    source: Source
    frame: int
    slot: int


@dataclass(frozen=True)
class Origin:
    """Where a slot has its looks from, with shares, and what its place and size began as."""

    looks: tuple[tuple[float, SourceSlot], ...]
    place: SourceSlot


FrameOrigins = tuple[Origin, ...]  # of the slots of one frame


@dataclass(frozen=True, eq=False)
class Provenance:
    """Which frames were edited, and where all their slots have their pixels from."""

    source: Source
    first: int  # of the source's frames
    frames: tuple[FrameOrigins, ...]

    @classmethod
    def begin(cls, source: Source, slots: int) -> "Provenance":
        """Every slot shows itself."""

        def begin(frame: int, slot: int) -> Origin:
            own = SourceSlot(source, frame, slot)
            return Origin(((1.0, own),), own)

        times = range(len(source.frames))
        return cls(source, 0, tuple(tuple(begin(t, slot) for slot in range(slots)) for t in times))

    def frame(self, number: int) -> "Provenance":
        """Of one of the frames."""
        return Provenance(self.source, self.first + number, (self.frames[number],))

    def follow(
        self,
        edit: EditRequest,
        before: DecodedFrames,
        donors: "Mapping[str, tuple[Provenance, int]]",
    ) -> "Provenance":
        """After an edit of the frames `before`; donors come with the slot of their background."""
        if not isinstance(edit, Transplant | Swap | Duplicate | SetBackground | Interpolate):
            return self
        first, last = edit.frames or (0, len(self.frames) - 1)
        changed = []
        for time, slots in enumerate(self.frames):
            if first <= time <= last:
                given: FrameOrigins = ()
                background = -1
                if not isinstance(edit, Swap | Duplicate):
                    known, background = donors[edit.donor]
                    given = known.frames[min(time, len(known.frames) - 1)]
                slots = _exchange(slots, edit, before, given, background)
            changed.append(slots)
        return Provenance(self.source, self.first, tuple(changed))


def _exchange(
    slots: FrameOrigins,
    edit: Transplant | Swap | Duplicate | SetBackground | Interpolate,
    before: DecodedFrames,
    given: FrameOrigins,
    background: int,
) -> FrameOrigins:
    """The origins of a frame's slots after an edit that takes from the slots `given`, if any."""
    new = list(slots)
    match edit:
        case Transplant():
            new[edit.slot] = replace(slots[edit.slot], looks=given[edit.donor_slot].looks)
        case Swap():
            one, two = slots[edit.slot], slots[edit.other]
            new[edit.slot] = replace(one, looks=two.looks)
            new[edit.other] = replace(two, looks=one.looks)
        case Duplicate():
            into = find_spare_slot(before, edit.slot) if edit.into is None else edit.into
            assert into is not None  # or the edit would have been refused
            new[into] = slots[edit.slot]
        case SetBackground():
            new[before.background] = given[background]
        case Interpolate():
            for slot, (own, goal) in enumerate(zip(slots, given, strict=True)):
                new[slot] = replace(own, looks=_blend(own.looks, goal.looks, edit.share))
    return tuple(new)


def _blend(
    own: Sequence[tuple[float, SourceSlot]], goal: Sequence[tuple[float, SourceSlot]], share: float
) -> tuple[tuple[float, SourceSlot], ...]:
    """Looks on the way from one to another."""
    weights: dict[SourceSlot, float] = {}
    for part, looks in ((1 - share, own), (share, goal)):
        for weight, slot in looks:
            weights[slot] = weights.get(slot, 0) + part * weight
    return tuple((weight, slot) for slot, weight in weights.items() if weight > 0)
