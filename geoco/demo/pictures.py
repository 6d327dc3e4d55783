"""What the demo shows of a model: a gallery of edits beside the truth, and an edited clip.

Scenes and objects are chosen by what is true of them, never by what a model makes of them. What it
could not do stands where its picture would be.
"""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int64
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from geoco import drawing, edit_maps, metrics
from geoco.config import WindowConfig
from geoco.data.solids import SolidsDataset
from geoco.drawing import Picture
from geoco.edit_maps import AffineMap
from geoco.editing.decoded import SlotView
from geoco.editing.editor import Editor, Film, Scene
from geoco.errors import GeocoError
from geoco.evaluation.reference_tracks import split_labels
from geoco.solids import Move, Replace, Scale, SceneEdit

SCENES, CANDIDATES = 6, 24  # rows of the gallery, and episodes to choose them from
FIRST_FRAME = 14  # when the struck solid has come into view
FEWEST_OBJECTS, MOST_OBJECTS = 2, 5
SMALLEST_SHARE = 1 / 80  # of the picture, for an object to be seen well

MOVED, ENLARGED = 10 / 64, 1.5  # a share of the picture's side, and a factor
CLIP_FRAMES, CLIP_RATE = 28, 10.0  # frames, and frames per second
CLIP_MOVED, CLIP_ENLARGED = 14 / 64, 1.4
LEAST_F1 = 0.5  # of a slot's and an object's masks over the whole clip, for one to follow the other

SIDE, CLIP_SIDE = 192, 320  # dots of a picture, about
GAP, GROUP_GAP, MARGIN, LABEL, LINE = 6, 28, 16, 112, 28  # dots
SMALL, LARGE = 15, 18  # letters
INK, FAINT, EMPTY = (25, 25, 25), (100, 100, 100), (234, 234, 234)
GROUPS = (
    ("a scene, in a box what is edited, and its parts", ("original", "reconstruction", "slots")),
    ("one object moved", ("model", "truth")),
    (f"enlarged {ENLARGED:g} times", ("model", "truth")),
    ("in the next row's appearance", ("model", "truth")),
)

Cell = Picture | str  # a picture, or why there is none


@dataclass(frozen=True)
class Subject:
    """A scene of the gallery, the true object that is edited in it, and the slot that holds it."""

    window: int  # index in the dataset
    title: str
    item: int  # of the generator's objects
    box: list[float]  # left, top, right and bottom of what is seen of it, in pixels
    move: Move
    scene: Scene
    slot: int | None  # none if no slot but the background shares a pixel with the object


@dataclass(frozen=True)
class Row:
    """The edits of a subject as the model and as the generator draw them."""

    edited: tuple[Scene | str, ...]  # moved, enlarged, transplanted, or why not
    truth: tuple[Picture, ...]


@dataclass(frozen=True)
class EditedClip:
    """A film in which one object is edited through all frames."""

    title: str
    numbers: tuple[int, ...]  # of the frames in their episode
    film: Film  # without edits if no slot follows an object
    done: str  # to it, in words
    warnings: tuple[str, ...]


# -- the gallery -----------------------------------------------------------------------------------


def choose_subjects(editor: Editor, dataset: SolidsDataset) -> list[Subject]:
    """Scenes that show a few objects well, each with the object that is easiest to see."""
    windows = choose_clear_windows(dataset)
    subjects = []
    for window, clip in zip(windows, dataset.render_clips(windows), strict=True):
        assert clip.masks is not None
        objects = split_labels(clip.masks)[0]
        item = int(_compute_prominence(objects).argmax())
        scene = editor.encode(clip.video[0])
        slot = int(metrics.associate(objects, torch.from_numpy(scene.masks))[item])
        subjects.append(
            Subject(
                window=window,
                title=f"episode {clip.metadata['episode']}, frame {int(clip.frames[0])}",
                item=item,
                box=edit_maps.compute_cell_bounds(objects[item]).tolist(),
                move=Move(item, *choose_free_move(objects, item, MOVED)),
                scene=scene,
                slot=slot if _holds_object(slot, scene.slots) else None,
            )
        )
    return subjects


def edit_subjects(chosen: Sequence[Subject], dataset: SolidsDataset) -> list[Row]:
    """Three edits of every scene; appearances come from the next one's object."""
    wanted: list[tuple[int, SceneEdit]] = []
    for number, subject in enumerate(chosen):
        donor = (number + 1) % len(chosen)
        replaced = Replace(subject.item, donor, chosen[donor].item)
        edits = (subject.move, Scale(subject.item, ENLARGED), replaced)
        wanted += [(number, edit) for edit in edits]
    exact = dataset.render_counterfactuals([subject.window for subject in chosen], wanted)
    truth = exact.frames.permute(0, 2, 3, 1).numpy()
    return [
        Row(
            edited=_edit_subject(subject, chosen[(number + 1) % len(chosen)]),
            truth=tuple(truth[3 * number : 3 * number + 3]),
        )
        for number, subject in enumerate(chosen)
    ]


def compose_gallery(chosen: Sequence[Subject], rows: Sequence[Row]) -> Picture:
    """Each scene, its parts, and its edits beside what the generator says they should give."""
    cells, labels = [], []
    for subject, row in zip(chosen, rows, strict=True):
        scene = subject.scene
        zoom = _choose_zoom(scene.image, SIDE)
        line: list[Cell] = [
            _draw_box(drawing.magnify(scene.source, zoom), subject.box, zoom),
            drawing.magnify(scene.image, zoom),
            scene.draw_outlines(zoom),
        ]
        for edited, truth in zip(row.edited, row.truth, strict=True):
            line.append(edited if isinstance(edited, str) else drawing.magnify(edited.image, zoom))
            line.append(drawing.magnify(truth, zoom))
        cells.append(line)
        which = "nothing edited" if subject.slot is None else f"slot {subject.slot} edited"
        labels.append(f"{subject.title.replace(', ', chr(10))}\n{which}")
    return _lay_out(cells, labels)


def explain_gaps(chosen: Sequence[Subject], rows: Sequence[Row]) -> list[str]:
    """What the gallery could not show, in sentences."""
    names = ("moved", "enlarged", "transplanted")
    sentences = []
    for subject, row in zip(chosen, rows, strict=True):
        reasons: dict[str, list[str]] = {}
        for name, edited in zip(names, row.edited, strict=True):
            if isinstance(edited, str):
                reasons.setdefault(edited, []).append(name)
        sentences += [f"{subject.title}: not {' or '.join(w)}: {why}" for why, w in reasons.items()]
    return sentences


def choose_clear_windows(dataset: SolidsDataset) -> list[int]:
    """Of the first episodes one window each: those with few and large objects before others."""
    start = min(range(len(dataset.starts)), key=lambda k: abs(dataset.starts[k] - FIRST_FRAME))
    episodes = range(min(CANDIDATES, dataset.episodes))
    windows = [episode * len(dataset.starts) + start for episode in episodes]
    masks = dataset.batch(windows).masks
    assert masks is not None
    areas = split_labels(masks[:, 0]).sum((-2, -1))
    count = (areas > 0).sum(1)
    large = ((areas == 0) | (areas >= SMALLEST_SHARE * masks[0, 0].numel())).all(1)
    clear = large & (count >= FEWEST_OBJECTS) & (count <= MOST_OBJECTS)
    # Sorting is stable: within both kinds the order of the episodes stays.
    return sorted(windows, key=lambda window: not clear[windows.index(window)])[:SCENES]


def choose_free_move(
    objects: Bool[Tensor, "object *time height width"], item: int, share: float
) -> tuple[float, float]:
    """To the right, to the left or down by a share of the picture, in pixels: what hides least.

    Hidden is what leaves the picture or meets another object. Up is where the floor ends.
    """
    height, width = objects.shape[-2:]
    step = round(share * width)
    moves = torch.tensor([(step, 0), (-step, 0), (0, step)])
    mine, others = objects[item].reshape(-1, height, width), objects.any(0) & ~objects[item]
    shown = []
    for move in moves:
        edit = AffineMap.from_move(move.expand(len(mine), 2), height, width)
        shown.append((edit_maps.warp_mask(mine, edit) & ~others.reshape(mine.shape)).sum())
    dx, dy = moves[torch.stack(shown).argmax()].tolist()
    return float(dx), float(dy)


def _edit_subject(subject: Subject, donor: Subject) -> tuple[Scene | str, ...]:
    slot, giver, scene = subject.slot, donor.slot, subject.scene
    if slot is None:
        return ("no slot holds this object",) * 3
    return (
        _try_edit(lambda: scene.move(slot, subject.move.dx, subject.move.dy)),
        _try_edit(lambda: scene.resize(slot, ENLARGED)),
        "the donor has no slot"
        if giver is None
        else _try_edit(lambda: scene.transplant(slot, donor.scene, giver)),
    )


def _try_edit(edit: Callable[[], Scene]) -> Scene | str:
    try:
        return edit()
    except GeocoError as error:
        return str(error)


def _compute_prominence(
    objects: Bool[Tensor, "object height width"],
) -> Int64[Tensor, " object"]:
    """Their pixels; those that touch no border come before those that do."""
    height, width = objects.shape[-2:]
    area = objects.sum((-2, -1))
    inside = edit_maps.stays_interior(edit_maps.compute_cell_bounds(objects), height, width)
    return area + height * width * (inside & (area > 0))


def _holds_object(slot: int, views: Sequence[SlotView]) -> bool:
    return slot != metrics.UNASSOCIATED and not views[slot].is_background


# -- the clip --------------------------------------------------------------------------------------


def edit_clip(editor: Editor, dataset: SolidsDataset, window: int) -> EditedClip:
    """The episode of a window; of the objects that a slot follows one moves away and grows.

    The one that is always seen best. Slots are found by the masks of all frames together.
    """
    length = min(CLIP_FRAMES, dataset.config.frames)
    update = {"window": WindowConfig(length=length, stride=1)}
    videos = SolidsDataset(dataset.config.model_copy(update=update), dataset.split)
    start = min(FIRST_FRAME, len(videos.starts) - 1)
    clip = videos[window // len(dataset.starts) * len(videos.starts) + start]
    assert clip.masks is not None
    frames = clip.video.permute(0, 2, 3, 1).numpy()
    film = editor.encode_video(frames, frames_per_second=CLIP_RATE)
    title, numbers = f"episode {clip.metadata['episode']}", tuple(clip.frames.tolist())
    objects = split_labels(clip.masks).transpose(0, 1)
    masks = torch.from_numpy(film.masks).transpose(0, 1)
    slots = metrics.associate(objects.flatten(1, 2), masks.flatten(1, 2)).tolist()
    order = objects.sum((-2, -1)).amin(1).argsort(descending=True, stable=True).tolist()
    for item in order:
        slot = slots[item]
        if (
            _holds_object(slot, film.slots_at(0))
            and metrics.tube_f1(masks[slot], objects[item]) >= LEAST_F1
        ):
            shift = choose_free_move(objects, item, CLIP_MOVED)
            half, last = (length - 1) // 2, length - 1
            moved = film.move(slot, keys={0: (0, 0), half: shift, last: shift})
            grown = moved.resize(slot, keys={0: 1, half: 1, last: CLIP_ENLARGED})
            x, y = shift
            done = (
                f"slot {slot} moved by ({x:g}, {y:g}) pixels, then enlarged {CLIP_ENLARGED:g} times"
            )
            return EditedClip(title, numbers, grown, done, grown.warnings)
    return EditedClip(title, numbers, film, "not edited, because no slot follows an object", ())


def draw_clip(clip: EditedClip) -> list[Picture]:
    """Original and edited side by side, frame by frame, under a line that says which is which."""
    zoom = _choose_zoom(clip.film.images[0], CLIP_SIDE)
    what = "edited" if clip.film.history else "reconstruction"
    pictures = []
    for number, before, after in zip(clip.numbers, clip.film.frames, clip.film.images, strict=True):
        pair = drawing.compose_sheet(
            [[drawing.magnify(before, zoom), drawing.magnify(after, zoom)]]
        )
        paper, pen = _make_paper(pair.shape[1], LINE + pair.shape[0])
        paper.paste(Image.fromarray(pair), (0, LINE))
        # The number makes all frames different: a GIF keeps no two equal ones in a row.
        for left, text in ((0, f"original, frame {number}"), (pair.shape[1] // 2, what)):
            _write_text(pen, (left + 2 * GAP, LINE // 2), text, LARGE, "lm")
        pictures.append(np.asarray(paper))
    return pictures


# -- on paper --------------------------------------------------------------------------------------


def _lay_out(rows: Sequence[Sequence[Cell]], labels: Sequence[str]) -> Picture:
    """Rows of cells in groups of columns, under headings."""
    side = next(cell for row in rows for cell in row if not isinstance(cell, str)).shape[0]
    lefts: list[int] = []
    right = MARGIN + LABEL - GROUP_GAP
    for _, columns in GROUPS:
        lefts += [right + GROUP_GAP + place * (side + GAP) for place in range(len(columns))]
        right = lefts[-1] + side
    top = MARGIN + 2 * LINE
    paper, pen = _make_paper(right + MARGIN, top + len(rows) * (side + GAP) - GAP + MARGIN)
    column = 0
    for title, names in GROUPS:
        _write_text(pen, (lefts[column], MARGIN + LINE // 2), title, LARGE, "lm")
        for name in names:
            _write_text(pen, (lefts[column], MARGIN + 3 * LINE // 2), name, SMALL, "lm", FAINT)
            column += 1
    for number, (row, label) in enumerate(zip(rows, labels, strict=True)):
        upper = top + number * (side + GAP)
        pen.multiline_text((MARGIN, upper), label, FAINT, _load_font(SMALL), spacing=6)
        for left, cell in zip(lefts, row, strict=True):
            if isinstance(cell, str):
                pen.rectangle((left, upper, left + side - 1, upper + side - 1), EMPTY)
                middle = (left + side // 2, upper + side // 2)
                _write_text(pen, middle, textwrap.fill(cell, side // 9), SMALL, "mm", FAINT)
            else:
                paper.paste(Image.fromarray(cell), (left, upper))
    return np.asarray(paper)


def _draw_box(picture: Picture, box: Sequence[float], zoom: int) -> Picture:
    """A thin line two dots away from what it surrounds."""
    image = Image.fromarray(picture)
    left, top, right, bottom = (round(zoom * (edge + 0.5)) for edge in box)
    ImageDraw.Draw(image).rectangle((left - 3, top - 3, right + 2, bottom + 2), outline="white")
    return np.asarray(image)


def _choose_zoom(picture: Picture, side: int) -> int:
    """How many dots a pixel gets: a whole number, so that all pixels look alike."""
    return max(1, round(side / picture.shape[1]))


def _make_paper(width: int, height: int) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    paper = Image.new("RGB", (width, height), (drawing.PAPER,) * 3)
    return paper, ImageDraw.Draw(paper)


def _write_text(
    pen: ImageDraw.ImageDraw,
    place: tuple[int, int],
    text: str,
    size: int,
    anchor: str,
    ink: tuple[int, int, int] = INK,
) -> None:
    align = "center" if anchor == "mm" else "left"
    pen.text(place, text, ink, _load_font(size), anchor, align=align)


def _load_font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size=size)
