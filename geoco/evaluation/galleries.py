"""Edits to look at: strips of commands, grids of transplants, and what went worst.

Every edit is decoded anew in the way in which the tables decode it.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Int64, UInt8

from geoco import drawing, edit_maps, media
from geoco.errors import GeocoError
from geoco.evaluation.commands import (
    FACTORS,
    MOVES,
    CommandKind,
    Commands,
    Objects,
    build_moves,
    build_resizes,
    build_transplants,
    compute_targets,
    find_donors,
    transplant_given,
)
from geoco.evaluation.decode_edits import decode_edits, takes_commands
from geoco.evaluation.editing import PERCENT, EditRecords, Records
from geoco.evaluation.gallery_layout import Group, Outline, Panel, choose_zoom, draw_gallery
from geoco.evaluation.interfaces import SlotModel
from geoco.evaluation.windows import Factual, order_window_major
from geoco.models.compositing import composite, compute_alpha, compute_masks

STRIPS, GRID, FAILURES = 6, 6, 6  # objects, objects to a side, edits of each kind
FACTUAL, IDEAL, EDITED = "#ffd92f", "#ee3377", "#33bbee"
OUTLINES = {FACTUAL: "factual mask", IDEAL: "mask of a perfect edit"}


@dataclass(frozen=True)
class DrawnEdits:
    """What came of some commands."""

    pictures: UInt8[np.ndarray, "edit height width 3"]
    supports: Bool[np.ndarray, "edit height width"]  # of the edited slot
    targets: Bool[np.ndarray, "edit height width"]

    def panel(self, number: int) -> Panel:
        """An edit with the outline of a perfect one."""
        return Panel(self.pictures[number], (Outline(self.targets[number], IDEAL),))


def draw_strips(model: SlotModel, factual: Factual, batch: int) -> drawing.Picture | None:
    """Objects under every command, one to a row."""
    objects = choose_objects(factual, STRIPS)
    places = _list_places(objects)
    if not places:
        return None
    rows: list[list[Panel | None]] = [_show_factual(factual, *place) for place in places]
    groups: list[Group] = [("", ("frame", "reconstruction", "masks"))]
    if takes_commands(model, factual, "position"):
        groups.append(
            ("moves, in pixels", [_name_command("position", k) for k in range(len(MOVES))])
        )
        groups.append(("scale factors", [_name_command("scale", k) for k in range(len(FACTORS))]))
        for commands in (build_moves(factual, objects), build_resizes(factual, objects)):
            edited = draw_edits(model, factual, commands, batch)
            each = len(commands) // len(places)
            for number in range(len(commands)):
                rows[number // each].append(edited.panel(number))
    groups.append(("transplant", ("donor", "result")))
    for row, place in zip(rows, places, strict=True):
        row += _show_transplant(model, factual, place, batch)
    labels = [_name_place(factual, *place, "\n") for place in places]
    return draw_gallery(groups, labels, rows, OUTLINES)


def draw_transplant_grid(model: SlotModel, factual: Factual, batch: int) -> drawing.Picture | None:
    """Every object's appearance in every object's place and size."""
    objects = choose_objects(factual, GRID)
    places = _list_places(objects)
    if not places:
        return None
    count = len(places)
    window, slot = objects
    recipients = window.repeat_interleave(count), slot.repeat_interleave(count)
    commands = transplant_given(factual, recipients, (window.repeat(count), slot.repeat(count)))
    edited = draw_edits(model, factual, commands, batch)
    before = [_show_reconstruction(factual, *place) for place in places]
    rows: list[list[Panel | None]] = [[None, *before]]
    for number, panel in enumerate(before):
        rows.append([panel, *(edited.panel(number * count + k) for k in range(count))])
    groups: list[Group] = [("", ("recipient",)), ("donor of the appearance", [""] * count)]
    labels = ["donor", *(_name_place(factual, *place, "\n") for place in places)]
    return draw_gallery(groups, labels, rows, OUTLINES)


def draw_failures(
    model: SlotModel, factual: Factual, records: EditRecords, batch: int
) -> drawing.Picture | None:
    """The edits of lowest F1, those of each kind side by side: before, as asked, as done."""
    groups: list[Group] = []
    rows: list[list[Panel | None]] = [[] for _ in range(FAILURES)]
    for outcomes, commands in _pair_commands(factual, records):
        chosen = find_worst(outcomes, FAILURES)
        some = commands.rows(torch.from_numpy(chosen))
        edited = draw_edits(model, factual, some, batch)
        groups.append((f"worst {commands.kind} edits", ("factual", "perfect edit", "edit")))
        for number, row in enumerate(rows):
            if number < len(chosen):
                score = PERCENT * float(outcomes.f1[chosen[number]])
                row += _show_failure(factual, some, edited, number, f"F1 {score:.1f}%")
            else:
                row += [None, None, None]
    rows = [row for row in rows if any(row)]
    return draw_gallery(groups, [], rows, {**OUTLINES, EDITED: "edited mask"}) if rows else None


def find_worst(records: Records, count: int) -> Int64[np.ndarray, " chosen"]:
    """The scored edits of lowest F1, the worst first, and of each object its worst alone."""
    order = np.argsort(records.f1, kind="stable")
    chosen: dict[tuple[int, int], int] = {}
    for edit in order[records.valid[order]].tolist():
        chosen.setdefault((int(records.window[edit]), int(records.slot[edit])), edit)
    return np.array(list(chosen.values())[:count], dtype=np.int64)


def choose_objects(factual: Factual, count: int) -> Objects:
    """Of each window the largest object that touches no border, or the largest if all do.

    Windows in window-major order, so that many videos are seen.
    """
    height, width = factual.masks.shape[-2:]
    area = factual.masks.sum((-2, -1))
    inside = edit_maps.stays_interior(edit_maps.compute_cell_bounds(factual.masks), height, width)
    preferred = (area + height * width * inside).masked_fill(~factual.valid, -1)
    most, slot = preferred.max(1)
    rows = torch.from_numpy(order_window_major(factual.source))
    rows = rows[most[rows] > 0][:count]
    return rows, slot[rows]


def draw_edits(model: SlotModel, factual: Factual, commands: Commands, batch: int) -> DrawnEdits:
    """Decode commands, in their order."""
    height, width = factual.masks.shape[-2:]
    pictures = np.zeros((len(commands), height, width, 3), dtype=np.uint8)
    supports = np.zeros((len(commands), height, width), dtype=np.bool_)
    for chunk, slot, (rgb, logits) in decode_edits(model, factual, commands, batch):
        pictures[chunk.numpy()] = media.to_bytes(composite(rgb, compute_alpha(logits)))
        supports[chunk.numpy()] = compute_masks(logits)[:, slot].cpu().numpy()
    wanted = compute_targets(factual, commands, torch.arange(len(commands)))[1].numpy()
    return DrawnEdits(pictures, supports, wanted)


def _pair_commands(factual: Factual, records: EditRecords) -> list[tuple[Records, Commands]]:
    """Records with the commands that they are of, kinds without any left out."""
    pairs = []
    for edits, build in (
        (records.position, build_moves),
        (records.scale, build_resizes),
        (records.transplant, build_transplants),
    ):
        if not edits.valid.any():
            continue
        commands = build(factual)
        asked = (factual.window[commands.window.numpy()], commands.slot.numpy())
        if not all(map(np.array_equal, asked, (edits.window, edits.slot))):
            raise GeocoError(
                "the records are of another evaluation than the factual pass: make both anew with "
                "the same model, dataset and number of windows"
            )
        pairs.append((edits, commands))
    return pairs


def _show_failure(
    factual: Factual, commands: Commands, edited: DrawnEdits, number: int, score: str
) -> list[Panel | None]:
    row, slot = int(commands.window[number]), int(commands.slot[number])
    what = _name_command(commands.kind, int(commands.command[number]))
    if commands.kind == "transplant":
        donor = int(commands.mask_window[number]), int(commands.mask_slot[number])
        what = f"from {_name_place(factual, *donor)}"
    before = _show_reconstruction(factual, row, slot)
    asked = Outline(edited.targets[number], IDEAL)
    done = Outline(edited.supports[number], EDITED)
    return [
        replace(before, title=f"{_name_place(factual, row, slot)}: {what}; {score}"),
        replace(before, outlines=(asked,)),
        Panel(edited.pictures[number], (asked, done)),
    ]


def _show_factual(factual: Factual, row: int, slot: int) -> list[Panel | None]:
    frame = factual.frame[row].permute(1, 2, 0).numpy()
    owner = factual.masks[row].to(torch.uint8).argmax(0) + 1
    labels = owner.masked_fill(owner == factual.background[row] + 1, 0).numpy().astype(np.uint8)
    return [
        Panel(frame),
        _show_reconstruction(factual, row, slot),
        Panel(drawing.overlay_masks(frame, labels, choose_zoom(frame.shape[1]))),
    ]


def _show_transplant(
    model: SlotModel, factual: Factual, place: tuple[int, int], batch: int
) -> list[Panel | None]:
    """The donor that the tables take, and what it gives; nothing where there is none."""
    window, slot = factual.objects
    number = int(((window == place[0]) & (slot == place[1])).nonzero()[0, 0])
    donor = tuple(int(part[number]) for part in find_donors(factual))
    if donor[0] < 0:
        return [None, None]
    recipients, givers = (tuple(torch.tensor([part]) for part in pair) for pair in (place, donor))
    commands = transplant_given(factual, (recipients[0], recipients[1]), (givers[0], givers[1]))
    given = draw_edits(model, factual, commands, batch)
    return [_show_reconstruction(factual, *donor), given.panel(0)]


def _show_reconstruction(factual: Factual, row: int, slot: int) -> Panel:
    return Panel(
        media.to_bytes(factual.image[row]), (Outline(factual.masks[row, slot].numpy(), FACTUAL),)
    )


def _name_command(kind: CommandKind, command: int) -> str:
    """A move or a scale factor."""
    if kind == "scale":
        return f"×{FACTORS[command]:g}"
    return f"({MOVES[command][0]}, {MOVES[command][1]})".replace("-", "−")


def _name_place(factual: Factual, row: int, slot: int, between: str = ", ") -> str:
    return f"window {factual.window[row]}{between}slot {slot}"


def _list_places(objects: Objects) -> list[tuple[int, int]]:
    return list(zip(objects[0].tolist(), objects[1].tolist(), strict=True))
