"""What edits do to decoded frames.

Every edit answers with the changed frames and with warnings: what the model was not trained for, or
cannot show. What cannot be done at all is refused in a sentence.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from geoco import edit_maps
from geoco.edit_maps import FEWEST_PIXELS, AffineMap
from geoco.editing.decoded import DecodedFrames
from geoco.editing.operations import (
    Duplicate,
    EditRequest,
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

ScaleRange = tuple[float, float]


@dataclass(frozen=True)
class EditResult:
    """The frames after an edit, and what to be careful about."""

    decoded: DecodedFrames
    warnings: tuple[str, ...]


def apply_edit(
    decoded: DecodedFrames,
    edit: EditRequest,
    donors: Mapping[str, DecodedFrames],
    trained_scales: ScaleRange,
) -> EditResult:
    """Carry out an edit; `trained_scales` is the range that the model has seen objects in."""
    _check_geometry(decoded, edit)
    frames = _select_frames(decoded, edit)
    match edit:
        case Move():
            return _move(decoded, edit, frames, trained_scales)
        case MoveTo():
            goal = torch.tensor([edit.x, edit.y]).expand(len(decoded), 2)
            return _replace_state(decoded, edit.slot, frames, trained_scales, position=goal)
        case Resize():
            keys = [(frame, (factor,)) for frame, factor in edit.keys]
            factors = _interpolate_keys(decoded, keys, (edit.factor,), geometric=True)
            scale = _find_slot(decoded, edit.slot).scale[:, 0] * factors[:, 0]
            return _replace_state(decoded, edit.slot, frames, trained_scales, scale=scale)
        case ResizeTo():
            scale = torch.full((len(decoded),), edit.scale)
            return _replace_state(decoded, edit.slot, frames, trained_scales, scale=scale)
        case Transplant():
            donor = _find_donor(donors, edit.donor)
            given = _find_slot(donor, edit.donor_slot, "the donor").appearance[:, 0]
            changed = _replace_state(
                decoded,
                edit.slot,
                frames,
                trained_scales,
                appearance=_extend_over_time(given, len(decoded)),
            )
            return EditResult(
                changed.decoded, changed.warnings + _collect_donor_warnings(donor, edit.donor_slot)
            )
        case Swap():
            return _swap_appearances(decoded, edit, frames, trained_scales)
        case Duplicate():
            return _duplicate(decoded, edit, frames, trained_scales)
        case SetBackground():
            return _replace_background(decoded, _find_donor(donors, edit.donor), frames)
        case Remove():
            return _remove(decoded, edit.slot, frames)
        case Interpolate():
            return _interpolate(
                decoded, _find_donor(donors, edit.donor), edit.share, frames, trained_scales
            )


def find_empty_slots(decoded: DecodedFrames) -> list[int]:
    """Slots that own fewer pixels than an object has, or were removed."""
    largest = decoded.masks.sum((-2, -1)).amax(0)
    return (largest < FEWEST_PIXELS).nonzero()[:, 0].tolist()


def find_spare_slot(decoded: DecodedFrames, slot: int) -> int | None:
    """The slot that a duplicate of `slot` is drawn with if none is named."""
    return next((index for index in find_empty_slots(decoded) if index != slot), None)


# -- single edits ----------------------------------------------------------------------------------


def _move(
    decoded: DecodedFrames, edit: Move, frames: Tensor, trained_scales: ScaleRange
) -> EditResult:
    keys = [(frame, (dx, dy)) for frame, dx, dy in edit.keys]
    pixels = _interpolate_keys(decoded, keys, (edit.dx, edit.dy), geometric=False)
    position = _find_slot(decoded, edit.slot).position[:, 0]
    return _replace_state(
        decoded,
        edit.slot,
        frames,
        trained_scales,
        position=position + pixels.to(position) * _compute_pixel_pitch(decoded),
    )


def _swap_appearances(
    decoded: DecodedFrames, edit: Swap, frames: Tensor, trained_scales: ScaleRange
) -> EditResult:
    if edit.slot == edit.other:
        raise GeocoError(f"slot {edit.slot} cannot be swapped with itself: name another slot")
    one, two = (_find_slot(decoded, index).appearance[:, 0] for index in (edit.slot, edit.other))
    first = _replace_state(decoded, edit.slot, frames, trained_scales, appearance=two)
    second = _replace_state(first.decoded, edit.other, frames, trained_scales, appearance=one)
    return EditResult(second.decoded, first.warnings + second.warnings)


def _duplicate(
    decoded: DecodedFrames, edit: Duplicate, frames: Tensor, trained_scales: ScaleRange
) -> EditResult:
    source = _find_slot(decoded, edit.slot)
    into = edit.into if edit.into is not None else find_spare_slot(decoded, edit.slot)
    if into is None:
        raise GeocoError(
            f"slot {edit.slot} cannot be duplicated: no slot is empty; remove one first, or name "
            "the one to give up with `into`"
        )
    if into == edit.slot:
        raise GeocoError(f"slot {into} cannot be duplicated into itself: name another slot")
    _find_slot(decoded, into, removed=True)
    shift = torch.tensor([edit.dx, edit.dy]) * _compute_pixel_pitch(decoded)
    moved = replace(source, position=source.position + shift.to(source.position))
    warnings = _collect_geometry_warnings(decoded, edit.slot, moved, frames, trained_scales)
    if into not in find_empty_slots(decoded):
        warnings = (f"slot {into} was not empty: the duplicate takes its place", *warnings)
    origin = decoded.bound[:, edit.slot : edit.slot + 1]
    changed = decoded.with_slot(into, moved, decoded.attention[:, edit.slot], origin)
    return EditResult(_restrict_to_frames(decoded, changed, frames), warnings)


def _replace_background(decoded: DecodedFrames, donor: DecodedFrames, frames: Tensor) -> EditResult:
    own, other = decoded.background, donor.background
    extend = partial(_extend_over_time, frames=len(decoded))
    slot, origin = donor.slot(other).map(extend), donor.bound[:, other : other + 1].map(extend)
    changed = decoded.with_slot(own, slot, extend(donor.attention[:, other]), origin)
    return EditResult(_restrict_to_frames(decoded, changed, frames), ())


def _remove(decoded: DecodedFrames, index: int, frames: Tensor) -> EditResult:
    _find_slot(decoded, index)
    changed = decoded.without_slot(index, frames)
    if not changed.present.any(1).all():
        raise GeocoError(f"slot {index} cannot be removed: it is the last one left")
    warnings: tuple[str, ...] = ()
    if index == decoded.background:
        warnings = (f"slot {index} is the background: the other slots will fill its place",)
    return EditResult(changed, warnings)


def _interpolate(
    decoded: DecodedFrames,
    goal: DecodedFrames,
    share: float,
    frames: Tensor,
    trained_scales: ScaleRange,
) -> EditResult:
    count = decoded.slots.scale.shape[1]
    if goal.slots.scale.shape[1] != count or len(goal) not in (1, len(decoded)):
        raise GeocoError(
            "two scenes can be interpolated only if they have the same slots and frames"
        )
    warnings: tuple[str, ...] = ()
    changed = decoded
    for index in range(count):
        old, new = decoded.slot(index), goal.slot(index)
        if all(torch.equal(getattr(old, name), getattr(new, name)) for name in vars(old)):
            continue
        result = _replace_state(
            changed,
            index,
            frames,
            trained_scales,
            appearance=torch.lerp(old.appearance, new.appearance, share)[:, 0],
            position=torch.lerp(old.position, new.position, share)[:, 0],
            scale=torch.lerp(old.scale.log(), new.scale.log(), share).exp()[:, 0],
        )
        changed, warnings = result.decoded, warnings + result.warnings
    if share == 1:
        changed = replace(changed, present=goal.present)
    return EditResult(changed, warnings)


# -- what they share -------------------------------------------------------------------------------


def _check_geometry(decoded: DecodedFrames, edit: EditRequest) -> None:
    """Whether the model has what an edit changes; STATM's slots are appearances alone."""
    places = isinstance(edit, Move | MoveTo | Resize | ResizeTo | Duplicate)
    if places and decoded.slots.scale.isnan().all():
        raise GeocoError(
            "slots of this model have no position and no scale: it cannot move, resize or "
            "duplicate; it can transplant, swap, interpolate, replace the background and remove"
        )


def _replace_state(
    decoded: DecodedFrames,
    index: int,
    frames: Bool[Tensor, " time"],
    trained_scales: ScaleRange,
    appearance: Float[Tensor, "time dim"] | None = None,
    position: Float[Tensor, "time 2"] | None = None,
    scale: Float[Tensor, " time"] | None = None,
) -> EditResult:
    """One slot with some of its state exchanged in some frames, drawn again."""
    old = _find_slot(decoded, index)

    def exchange(new: Tensor | None, before: Tensor) -> Tensor:
        if new is None:
            return before
        chosen = frames.view(-1, *[1] * (before.ndim - 1))
        return torch.where(chosen, new[:, None].to(before), before)

    slot = Slots(
        exchange(appearance, old.appearance),
        exchange(position, old.position),
        exchange(scale, old.scale),
    )
    low, high = float(slot.scale.min()), float(slot.scale.max())
    if low < SMALLEST_SCALE or high > LARGEST_SCALE:  # neither where a model knows no scales
        wrong = low if low < SMALLEST_SCALE else high
        raise GeocoError(
            f"slot {index} would get scale {wrong:.4g}: scales lie between {SMALLEST_SCALE:g} and "
            f"{LARGEST_SCALE:g}"
        )
    warnings = _collect_geometry_warnings(decoded, index, slot, frames, trained_scales)
    return EditResult(
        _restrict_to_frames(decoded, decoded.with_slot(index, slot), frames), warnings
    )


def _restrict_to_frames(
    before: DecodedFrames, after: DecodedFrames, frames: Bool[Tensor, " time"]
) -> DecodedFrames:
    """The frames after an edit, but removals elsewhere than in `frames` as they were."""
    present = torch.where(frames[:, None], after.present, before.present)
    return replace(after, present=present)


def _collect_geometry_warnings(
    decoded: DecodedFrames, index: int, slot: Slots, frames: Tensor, trained_scales: ScaleRange
) -> tuple[str, ...]:
    """What the model may not be able to do: decided on the scene before the edit."""
    warnings = []
    masks = decoded.masks[frames, index]
    if int(masks.sum((-2, -1)).max()) < FEWEST_PIXELS:
        warnings.append(f"slot {index} is empty: an edit of it may show nothing")
    elif index == decoded.background:
        warnings.append(f"slot {index} is the background: it is not made to be moved")
    else:
        low, high = trained_scales
        scale = slot.scale[frames, 0]
        outside = ((scale < low) | (scale > high)) & (scale != decoded.slot(index).scale[frames, 0])
        if outside.any():
            wrong = scale[outside]
            worst = float(wrong.min()) if float(wrong.min()) < low else float(wrong.max())
            warnings.append(
                f"slot {index} gets scale {worst:.3f}, outside the trained range "
                f"{low:.3f} to {high:.3f}"
            )
        if not _stays_inside(masks, decoded.slot(index), slot, frames):
            warnings.append(f"slot {index} leaves the picture")
    return tuple(warnings)


def _collect_donor_warnings(donor: DecodedFrames, index: int) -> tuple[str, ...]:
    """What an appearance may not be able to show."""
    if index in find_empty_slots(donor):
        return (f"the donor's slot {index} is empty: its looks may show nothing",)
    if index == donor.background:
        return (f"the donor's slot {index} is the background: its looks may show nothing",)
    return ()


def _stays_inside(masks: Tensor, old: Slots, new: Slots, frames: Tensor) -> bool:
    """Whether the slot's box, carried along, stays on the canvas wherever it was there before."""
    height, width = masks.shape[-2:]
    # On the CPU: Apple's Metal knows no numbers of 64 bits.
    edit = AffineMap.from_transplant(
        new.position[frames, 0].cpu(),
        new.scale[frames, 0].cpu(),
        old.position[frames, 0].cpu(),
        old.scale[frames, 0].cpu(),
    )
    before = edit_maps.compute_cell_bounds(masks.cpu())
    after = edit_maps.transform_bounds(before, edit, height, width)
    edge = torch.tensor([width, height], dtype=torch.float64) - 0.5
    outside = (after[:, :2] < -0.5).any(1) | (after[:, 2:] > edge).any(1)
    return not bool((outside & ~before.isnan().any(1)).any())


def _find_slot(
    decoded: DecodedFrames, index: int, where: str = "the scene", removed: bool = False
) -> Slots:
    count = decoded.slots.scale.shape[1]
    if index >= count:
        raise GeocoError(f"there is no slot {index}: {where} has slots 0 to {count - 1}")
    if not removed and not decoded.present[:, index].any():
        raise GeocoError(f"slot {index} was removed from {where}")
    return decoded.slot(index)


def _find_donor(donors: Mapping[str, DecodedFrames], name: str) -> DecodedFrames:
    if name not in donors:
        raise GeocoError(f"there is no scene '{name}' to take from; known are {sorted(donors)}")
    return donors[name]


def _extend_over_time(values: Tensor, frames: int) -> Tensor:
    """Donors of one frame serve all; of longer ones, the last frame goes on."""
    index = torch.arange(frames, device=values.device).clamp(max=len(values) - 1)
    return values[index]


def _select_frames(decoded: DecodedFrames, edit: EditRequest) -> Bool[Tensor, " time"]:
    """Which frames an edit is for."""
    first, last = edit.frames or (0, len(decoded) - 1)
    keys = [key[0] for key in getattr(edit, "keys", ())]
    for number in (last, *keys):
        if number >= len(decoded):
            raise GeocoError(f"there is no frame {number}: frames go from 0 to {len(decoded) - 1}")
    number = torch.arange(len(decoded), device=decoded.present.device)
    return (number >= first) & (number <= last)


def _interpolate_keys(
    decoded: DecodedFrames,
    keys: Sequence[tuple[int, tuple[float, ...]]],
    constant: tuple[float, ...],
    geometric: bool,
) -> Float[Tensor, "time value"]:
    """Values at every frame: straight lines between key frames, constant beyond the ends."""
    device = decoded.present.device
    if not keys:
        return torch.tensor(constant, device=device).expand(len(decoded), -1)
    if len({frame for frame, _ in keys}) < len(keys):
        raise GeocoError("two key frames are the same: give each frame once")
    ordered = sorted(keys)
    times = torch.tensor([float(frame) for frame, _ in ordered], dtype=torch.float64)
    values = torch.tensor([value for _, value in ordered], dtype=torch.float64)
    values = values.log() if geometric else values
    now = torch.arange(len(decoded), dtype=torch.float64)
    after = torch.searchsorted(times, now).clamp(max=len(times) - 1)
    before = (after - 1).clamp(min=0)
    gap = (times[after] - times[before]).clamp(min=math.ulp(1.0))
    share = ((now - times[before]) / gap).clamp(0, 1)[:, None]
    result = torch.lerp(values[before], values[after], share)
    return (result.exp() if geometric else result).float().to(device)


def _compute_pixel_pitch(decoded: DecodedFrames) -> float:
    """A pixel on the grid [-1, 1]."""
    return 2 / (decoded.model.size - 1)
