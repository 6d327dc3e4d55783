"""What is asked of a model, and on whom it counts: the commands of the paper's Sec. C.2.

Commands and eligibility follow from factual slots and supports alone. They are computed in full
before anything is decoded, so that no outcome of an edit can choose its population.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from geoco import edit_maps, metrics
from geoco.edit_maps import AffineMap
from geoco.evaluation.canvas import Canvas
from geoco.evaluation.windows import Factual, order_window_major
from geoco.models.slots import Slots

MOVES = ((6, 0), (-6, 0), (0, 6), (0, -6))  # pixels, (x, y)
FACTORS = (0.5, 0.75, 1.0, 1.25, 1.5)
IDENTITY = FACTORS.index(1.0)
CommandKind = Literal["position", "scale", "transplant"]
KINDS: tuple[CommandKind, ...] = get_args(CommandKind)
Objects = tuple[Int64[Tensor, " object"], Int64[Tensor, " object"]]  # rows of windows, and slots
_CHUNK = 256  # masks that are warped at a time


@dataclass(frozen=True)
class Commands:
    """Edits of one kind, object by object and within an object in the order of the commands."""

    kind: CommandKind
    window: Int64[Tensor, " edit"]  # rows of the factual record
    slot: Int64[Tensor, " edit"]
    command: Int64[Tensor, " edit"]  # which of MOVES or FACTORS; 0 for transplants
    edited: Slots  # the slot's new state, one per edit
    move: Float64[Tensor, "edit 2"]  # the same for models that are told what to do
    factor: Float64[Tensor, " edit"]
    mask_window: Int64[Tensor, " edit"]  # whose factual mask the target is made from
    mask_slot: Int64[Tensor, " edit"]
    map: AffineMap

    def __len__(self) -> int:
        return len(self.window)

    def rows(self, chunk: Int64[Tensor, " edit"]) -> "Commands":
        """Some of the edits."""
        return Commands(
            self.kind,
            self.window[chunk],
            self.slot[chunk],
            self.command[chunk],
            self.edited[chunk],
            self.move[chunk],
            self.factor[chunk],
            self.mask_window[chunk],
            self.mask_slot[chunk],
            self.map.rows(chunk),
        )


@dataclass(frozen=True)
class Eligibility:
    """Which edits count where, and what leaving the recipient as it is would score."""

    valid: Bool[np.ndarray, " edit"]  # the ideal target has ten pixels: scored by F1
    positive: Bool[np.ndarray, " edit"]  # it has any: an empty output is a disappearance
    interior: Bool[np.ndarray, " edit"]  # valid, and all supports avoid the outermost band
    noop: Float64[np.ndarray, " edit"]  # F1 of the unchanged recipient


def build_moves(factual: Factual, objects: Objects | None = None) -> Commands:
    """Four translations by six pixels, of every valid object or of those given."""
    height, width = factual.masks.shape[-2:]
    base = _repeat_objects(factual, objects, "position", len(MOVES))
    edit = AffineMap.from_move(torch.tensor(MOVES)[base.command], height, width)
    position = base.edited.position
    moved = (position.double() + edit.offset).to(position.dtype)
    return replace(base, edited=replace(base.edited, position=moved), move=edit.offset, map=edit)


def build_resizes(factual: Factual, objects: Objects | None = None) -> Commands:
    """Five scale factors, the identity among them, about the slot's position."""
    base = _repeat_objects(factual, objects, "scale", len(FACTORS))
    factor = torch.tensor(FACTORS, dtype=torch.float64)[base.command]
    scale = base.edited.scale
    resized = (scale.double() * factor).to(scale.dtype)
    return replace(
        base,
        edited=replace(base.edited, scale=resized),
        factor=factor,
        map=AffineMap.from_resize(factor, factual.anchor[base.window, base.slot]),
    )


def build_transplants(factual: Factual) -> Commands:
    """The donor's appearance in the recipient's place and size, wherever there is a donor."""
    donor_window, donor_slot = find_donors(factual)
    known = donor_window >= 0
    recipient = tuple(part[known] for part in factual.objects)
    return transplant_given(
        factual, (recipient[0], recipient[1]), (donor_window[known], donor_slot[known])
    )


def transplant_given(factual: Factual, recipients: Objects, donors: Objects) -> Commands:
    """Given donors' appearances in given recipients."""
    base = _repeat_objects(factual, recipients, "transplant", 1)
    return replace(
        base,
        edited=replace(base.edited, appearance=factual.slots.appearance[donors]),
        mask_window=donors[0],
        mask_slot=donors[1],
        map=AffineMap.from_transplant(
            factual.anchor[recipients],
            factual.extent[recipients],
            factual.anchor[donors],
            factual.extent[donors],
        ),
    )


def find_donors(factual: Factual) -> tuple[Int64[Tensor, " object"], Int64[Tensor, " object"]]:
    """Window and slot of every object's donor, -1 where it has none.

    The next window from a different source is the only candidate, of videos the same frame of it:
    where it has no valid object of the same rank, the recipient is not transplanted.
    """
    window, _ = factual.objects
    candidate = find_next_rows(factual)[window]
    ranks = torch.where(factual.valid, factual.valid.long().cumsum(1) - 1, -1)
    same = (ranks[candidate] == factual.rank[:, None]) & (candidate >= 0)[:, None]
    has_donor = same.any(1)
    slot = same.to(torch.uint8).argmax(1)
    return candidate.where(has_donor, -1), slot.where(has_donor, -1)


def judge_eligibility(
    factual: Factual, commands: Commands, canvas: Canvas | None = None
) -> Eligibility:
    """Judged on factual masks and ideal targets; for transplants of donor and recipient both."""
    canvas, device = canvas or Canvas.of_model(factual), factual.device
    parts = []
    # Without commands there is one chunk, an empty one.
    for chunk in torch.arange(len(commands)).split(_CHUNK):
        original, target = compute_targets(factual, commands, chunk, device, canvas)
        recipient = canvas.take_masks(commands.window[chunk], commands.slot[chunk], device)
        edit = canvas.adapt(commands.map.rows(chunk)).to(device)
        valid = edit_maps.is_large_enough(target, canvas.fewest_pixels)
        inside = edit_maps.stays_interior(edit_maps.compute_cell_bounds(recipient), *canvas.size)
        parts.append(
            (
                valid,
                target.flatten(1).any(1),
                valid & inside & edit_maps.is_feasible(original, edit),
                metrics.f1(recipient, target),
            )
        )
    columns = [torch.cat(list(column)).cpu().numpy() for column in zip(*parts, strict=True)]
    return Eligibility(columns[0], columns[1], columns[2], columns[3])


def compute_targets(
    factual: Factual,
    commands: Commands,
    chunk: Int64[Tensor, " edit"],
    device: torch.device | str = "cpu",
    canvas: Canvas | None = None,
) -> tuple[Bool[Tensor, "edit height width"], Bool[Tensor, "edit height width"]]:
    """For some edits, the factual masks that their targets are made from, and the targets."""
    canvas = canvas or Canvas.of_model(factual)
    original = canvas.take_masks(commands.mask_window[chunk], commands.mask_slot[chunk], device)
    return original, edit_maps.warp_mask(
        original, canvas.adapt(commands.map.rows(chunk)).to(device)
    )


def _repeat_objects(
    factual: Factual, objects: Objects | None, kind: CommandKind, count: int
) -> Commands:
    """Objects `count` times over, as they are."""
    window, slot = (part.repeat_interleave(count) for part in objects or factual.objects)
    edited = factual.slots[window, slot]
    return Commands(
        kind,
        window,
        slot,
        torch.arange(count).repeat(len(window) // count),
        edited,
        torch.zeros(len(window), 2, dtype=torch.float64),
        torch.ones(len(window), dtype=torch.float64),
        window,
        slot,
        AffineMap.from_resize(torch.ones(len(window)), torch.zeros(len(window), 2)),
    )


def find_next_rows(factual: Factual) -> Int64[Tensor, " window"]:
    """Of every row the row of the same frame in the next window from a different source, or -1.

    The last window's are those of the first, at the same frame, too.
    """
    following = find_next_windows(factual.source[:: factual.length])[factual.clip]
    return torch.from_numpy(np.where(following < 0, -1, following * factual.length + factual.time))


def find_next_windows(sources: Sequence[str]) -> Int64[np.ndarray, " window"]:
    """The next window from a different source, in cyclic window-major order; -1 if none."""
    order = order_window_major(sources)
    following = np.full(len(sources), -1, dtype=np.int64)
    if len(set(sources)) < 2:
        return following
    for place, window in enumerate(order):
        step = 1
        while sources[order[(place + step) % len(order)]] == sources[window]:
            step += 1
        following[window] = order[(place + step) % len(order)]
    return following
