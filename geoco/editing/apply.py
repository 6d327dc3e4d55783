"""What edits do to a take.

Every edit answers with the changed take and with warnings: what the model was not trained for, or
cannot show. What cannot be done at all is refused in a sentence.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from geoco import edit_maps
from geoco.edit_maps import FEWEST_PIXELS, AffineMap
from geoco.editing.decoded import Take
from geoco.editing.operations import (
    Duplicate,
    Edit,
    Interpolate,
    Move,
    MoveTo,
    Remove,
    Resize,
    ResizeTo,
    SetBackground,
    Swap,
    Transplant,
)
from geoco.errors import GeocoError
from geoco.models.slots import LARGEST_SCALE, SMALLEST_SCALE, Slots

Range = tuple[float, float]


@dataclass(frozen=True)
class Changed:
    """A take after an edit, and what to be careful about."""

    take: Take
    warnings: tuple[str, ...]


def apply(take: Take, edit: Edit, donors: Mapping[str, Take], trained: Range) -> Changed:
    """Carry out an edit; `trained` is the range of scales that the model has seen objects in."""
    frames = _frames(take, edit)
    match edit:
        case Move():
            return _moved(take, edit, frames, trained)
        case MoveTo():
            goal = torch.tensor([edit.x, edit.y]).expand(len(take), 2)
            return _replaced(take, edit.slot, frames, trained, position=goal)
        case Resize():
            keys = [(frame, (factor,)) for frame, factor in edit.keys]
            factors = _between_keys(take, keys, (edit.factor,), geometric=True)
            scale = _slot(take, edit.slot).scale[:, 0] * factors[:, 0]
            return _replaced(take, edit.slot, frames, trained, scale=scale)
        case ResizeTo():
            scale = torch.full((len(take),), edit.scale)
            return _replaced(take, edit.slot, frames, trained, scale=scale)
        case Transplant():
            donor = _donor(donors, edit.donor)
            given = _slot(donor, edit.donor_slot, "the donor").appearance[:, 0]
            changed = _replaced(
                take, edit.slot, frames, trained, appearance=_over_time(given, len(take))
            )
            return Changed(changed.take, changed.warnings + _donor_warnings(donor, edit.donor_slot))
        case Swap():
            return _swapped(take, edit, frames, trained)
        case Duplicate():
            return _duplicated(take, edit, frames, trained)
        case SetBackground():
            return _with_background(take, _donor(donors, edit.donor), frames)
        case Remove():
            return _removed(take, edit.slot, frames)
        case Interpolate():
            return _interpolated(take, _donor(donors, edit.donor), edit.share, frames, trained)


def empty_slots(take: Take) -> list[int]:
    """Slots that own fewer pixels than an object has, or were removed."""
    largest = take.masks.sum((-2, -1)).amax(0)
    return (largest < FEWEST_PIXELS).nonzero()[:, 0].tolist()


# -- single edits ----------------------------------------------------------------------------------


def _moved(take: Take, edit: Move, frames: Tensor, trained: Range) -> Changed:
    keys = [(frame, (dx, dy)) for frame, dx, dy in edit.keys]
    pixels = _between_keys(take, keys, (edit.dx, edit.dy), geometric=False)
    position = _slot(take, edit.slot).position[:, 0]
    return _replaced(
        take, edit.slot, frames, trained, position=position + pixels.to(position) * _pitch(take)
    )


def _swapped(take: Take, edit: Swap, frames: Tensor, trained: Range) -> Changed:
    if edit.slot == edit.other:
        raise GeocoError(f"slot {edit.slot} cannot be swapped with itself: name another slot")
    one, two = (_slot(take, index).appearance[:, 0] for index in (edit.slot, edit.other))
    first = _replaced(take, edit.slot, frames, trained, appearance=two)
    second = _replaced(first.take, edit.other, frames, trained, appearance=one)
    return Changed(second.take, first.warnings + second.warnings)


def _duplicated(take: Take, edit: Duplicate, frames: Tensor, trained: Range) -> Changed:
    source = _slot(take, edit.slot)
    spare = [index for index in empty_slots(take) if index != edit.slot]
    into = edit.into if edit.into is not None else next(iter(spare), None)
    if into is None:
        raise GeocoError(
            f"slot {edit.slot} cannot be duplicated: no slot is empty; remove one first, or name "
            "the one to give up with `into`"
        )
    if into == edit.slot:
        raise GeocoError(f"slot {into} cannot be duplicated into itself: name another slot")
    _slot(take, into, removed=True)
    shift = torch.tensor([edit.dx, edit.dy]) * _pitch(take)
    moved = Slots(source.appearance, source.position + shift.to(source.position), source.scale)
    warnings = _geometry_warnings(take, edit.slot, moved, frames, trained)
    if into not in spare:
        warnings = (f"slot {into} was not empty: the duplicate takes its place", *warnings)
    changed = take.with_slot(into, moved, take.attention[:, edit.slot])
    return Changed(_only(take, changed, frames), warnings)


def _with_background(take: Take, donor: Take, frames: Tensor) -> Changed:
    own, other = take.background, donor.background
    state, where = donor.slot(other), donor.attention[:, other]
    slot = Slots(
        *(_over_time(part, len(take)) for part in (state.appearance, state.position, state.scale))
    )
    changed = take.with_slot(own, slot, _over_time(where, len(take)))
    return Changed(_only(take, changed, frames), ())


def _removed(take: Take, index: int, frames: Tensor) -> Changed:
    _slot(take, index)
    changed = take.without(index, frames)
    if not changed.present.any(1).all():
        raise GeocoError(f"slot {index} cannot be removed: it is the last one left")
    warnings: tuple[str, ...] = ()
    if index == take.background:
        warnings = (f"slot {index} is the background: the other slots will fill its place",)
    return Changed(changed, warnings)


def _interpolated(take: Take, goal: Take, share: float, frames: Tensor, trained: Range) -> Changed:
    if goal.slots.scale.shape[1] != take.slots.scale.shape[1] or len(goal) not in (1, len(take)):
        raise GeocoError(
            "two scenes can be interpolated only if they have the same slots and frames"
        )
    warnings: tuple[str, ...] = ()
    changed = take
    for index in range(take.slots.scale.shape[1]):
        old, new = take.slot(index), goal.slot(index)
        if all(torch.equal(getattr(old, name), getattr(new, name)) for name in vars(old)):
            continue
        found = _replaced(
            changed,
            index,
            frames,
            trained,
            appearance=torch.lerp(old.appearance, new.appearance, share)[:, 0],
            position=torch.lerp(old.position, new.position, share)[:, 0],
            scale=torch.lerp(old.scale.log(), new.scale.log(), share).exp()[:, 0],
        )
        changed, warnings = found.take, warnings + found.warnings
    if share == 1:
        changed = Take(take.model, changed.slots, changed.attention, changed.fields, goal.present)
    return Changed(changed, warnings)


# -- what they share -------------------------------------------------------------------------------


def _replaced(
    take: Take,
    index: int,
    frames: Bool[Tensor, " time"],
    trained: Range,
    appearance: Float[Tensor, "time dim"] | None = None,
    position: Float[Tensor, "time 2"] | None = None,
    scale: Float[Tensor, " time"] | None = None,
) -> Changed:
    """One slot with some of its state exchanged in some frames, drawn again."""
    old = _slot(take, index)

    def mixed(new: Tensor | None, before: Tensor) -> Tensor:
        if new is None:
            return before
        chosen = frames.view(-1, *[1] * (before.ndim - 1))
        return torch.where(chosen, new[:, None].to(before), before)

    slot = Slots(
        mixed(appearance, old.appearance), mixed(position, old.position), mixed(scale, old.scale)
    )
    low, high = float(slot.scale.min()), float(slot.scale.max())
    if not SMALLEST_SCALE <= low <= high <= LARGEST_SCALE:
        wrong = low if low < SMALLEST_SCALE else high
        raise GeocoError(
            f"slot {index} would get scale {wrong:.4g}: scales lie between {SMALLEST_SCALE:g} and "
            f"{LARGEST_SCALE:g}"
        )
    warnings = _geometry_warnings(take, index, slot, frames, trained)
    return Changed(_only(take, take.with_slot(index, slot), frames), warnings)


def _only(before: Take, after: Take, frames: Bool[Tensor, " time"]) -> Take:
    """The take after an edit, but removals elsewhere than in `frames` as they were."""
    present = torch.where(frames[:, None], after.present, before.present)
    return Take(after.model, after.slots, after.attention, after.fields, present)


def _geometry_warnings(
    take: Take, index: int, slot: Slots, frames: Tensor, trained: Range
) -> tuple[str, ...]:
    """What the model may not be able to do: judged on the scene before the edit."""
    found = []
    masks = take.masks[frames, index]
    if int(masks.sum((-2, -1)).max()) < FEWEST_PIXELS:
        found.append(f"slot {index} is empty: an edit of it may show nothing")
    elif index == take.background:
        found.append(f"slot {index} is the background: it is not made to be moved")
    else:
        low, high = trained
        scale = slot.scale[frames, 0]
        if float(scale.min()) < low or float(scale.max()) > high:
            worst = float(scale.min()) if float(scale.min()) < low else float(scale.max())
            found.append(
                f"slot {index} gets scale {worst:.3f}, outside the trained range "
                f"{low:.3f} to {high:.3f}"
            )
        if not _stays_inside(masks, take.slot(index), slot, frames):
            found.append(f"slot {index} leaves the picture")
    return tuple(found)


def _donor_warnings(donor: Take, index: int) -> tuple[str, ...]:
    """What an appearance may not be able to show."""
    if index in empty_slots(donor):
        return (f"the donor's slot {index} is empty: its looks may show nothing",)
    if index == donor.background:
        return (f"the donor's slot {index} is the background: its looks may show nothing",)
    return ()


def _stays_inside(masks: Tensor, old: Slots, new: Slots, frames: Tensor) -> bool:
    """Whether the slot's box, carried along, stays on the canvas wherever it was there before."""
    height, width = masks.shape[-2:]
    edit = AffineMap.from_transplant(
        new.position[frames, 0],
        new.scale[frames, 0],
        old.position[frames, 0],
        old.scale[frames, 0],
    )
    before = edit_maps.compute_cell_bounds(masks)
    after = edit_maps.transform_bounds(before, edit, height, width)
    edge = torch.tensor([width, height], dtype=torch.float64, device=masks.device) - 0.5
    outside = (after[:, :2] < -0.5).any(1) | (after[:, 2:] > edge).any(1)
    return not bool((outside & ~before.isnan().any(1)).any())


def _slot(take: Take, index: int, where: str = "the scene", removed: bool = False) -> Slots:
    count = take.slots.scale.shape[1]
    if index >= count:
        raise GeocoError(f"there is no slot {index}: {where} has slots 0 to {count - 1}")
    if not removed and not take.present[:, index].any():
        raise GeocoError(f"slot {index} was removed from {where}")
    return take.slot(index)


def _donor(donors: Mapping[str, Take], name: str) -> Take:
    if name not in donors:
        raise GeocoError(f"there is no scene '{name}' to take from; known are {sorted(donors)}")
    return donors[name]


def _over_time(values: Tensor, frames: int) -> Tensor:
    """Donors of one frame serve all; of longer ones, the last frame goes on."""
    index = torch.arange(frames, device=values.device).clamp(max=len(values) - 1)
    return values[index]


def _frames(take: Take, edit: Edit) -> Bool[Tensor, " time"]:
    """Which frames an edit is for."""
    first, last = edit.frames or (0, len(take) - 1)
    keys = [key[0] for key in getattr(edit, "keys", ())]
    for number in (last, *keys):
        if number >= len(take):
            raise GeocoError(f"there is no frame {number}: frames go from 0 to {len(take) - 1}")
    number = torch.arange(len(take), device=take.present.device)
    return (number >= first) & (number <= last)


def _between_keys(
    take: Take,
    keys: Sequence[tuple[int, tuple[float, ...]]],
    constant: tuple[float, ...],
    geometric: bool,
) -> Float[Tensor, "time value"]:
    """Values at every frame: straight lines between key frames, constant beyond the ends."""
    device = take.present.device
    if not keys:
        return torch.tensor(constant, device=device).expand(len(take), -1)
    if len({frame for frame, _ in keys}) < len(keys):
        raise GeocoError("two key frames are the same: give each frame once")
    ordered = sorted(keys)
    times = torch.tensor([float(frame) for frame, _ in ordered], dtype=torch.float64)
    values = torch.tensor([value for _, value in ordered], dtype=torch.float64)
    values = values.log() if geometric else values
    now = torch.arange(len(take), dtype=torch.float64)
    after = torch.searchsorted(times, now).clamp(max=len(times) - 1)
    before = (after - 1).clamp(min=0)
    gap = (times[after] - times[before]).clamp(min=math.ulp(1.0))
    share = ((now - times[before]) / gap).clamp(0, 1)[:, None]
    found = torch.lerp(values[before], values[after], share)
    return (found.exp() if geometric else found).float().to(device)


def _pitch(take: Take) -> float:
    """A pixel on the grid [-1, 1]."""
    return 2 / (take.model.size - 1)
