"""`make demo`: what the embedded generator knows, and what a trained model makes of its scenes.

The generator draws scenes, their masks and exact edits of them. A model takes scenes of the
validation split apart and edits them; its edits are shown beside the generator's, and measured
against them. Without a model the generator is shown alone.
"""

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from rich.console import Console
from rich.table import Column, Table
from torch import Tensor

from geoco import drawing, metrics
from geoco.config import SolidsConfig, WindowConfig
from geoco.data.solids import SolidsDataset
from geoco.demo import pictures as demo_pictures
from geoco.editing.editor import Editor
from geoco.evaluation import Encoded, OneSlotModel, adapter, as_values
from geoco.evaluation.commands import Commands, eligibility, moves, resizes, transplanted
from geoco.evaluation.commands import targets as ideal_targets
from geoco.evaluation.decode_edits import edited_scenes
from geoco.evaluation.editing import PERCENT
from geoco.evaluation.exact_targets import truths
from geoco.evaluation.factual import Mean, segmentation
from geoco.evaluation.interfaces import Decoded
from geoco.evaluation.matched import REPLICATES
from geoco.evaluation.reference_objects import (
    Asked,
    References,
    asked_moves,
    asked_resizes,
    asked_transplants,
    oracle_targets,
    references,
)
from geoco.evaluation.windows import Factual, factual
from geoco.files import write_whole
from geoco.metrics import Interval
from geoco.metrics import rgb as metrics_rgb
from geoco.models import pretrained
from geoco.models.compositing import composite, hard_ownership, ownership
from geoco.models.decoders import Fields
from geoco.models.slots import Slots
from geoco.solids import Move, Remove, Replace, Scale, Scenes, render_counterfactuals, render_scenes

ZOOM = 3
SCENES = 8
EDITED = 3  # the scene whose object 1 is edited
EDITS = (  # the donor is object 1 of scene 1
    Move(1, 6, 0),
    Move(1, 0, 6),
    Scale(1, 0.5),
    Scale(1, 1.5),
    Replace(1, 1, 1),
    Remove(1),
)
PREFERRED = "geoco-solids"  # what a model's name begins with that knows these scenes
WINDOWS = 24  # that the summary is measured on
BATCH = 8  # scenes decoded at once
ADDRESS = "http://127.0.0.1:8000"


@dataclass(frozen=True)
class Kind:
    """One kind of edit: one command of each true object, means over videos with 95% intervals."""

    edits: int
    unassociated: int  # of them, left as they were: no slot shares a pixel with the object
    scored: int  # edits that F1 is over: of a slot that is a valid object, with a valid target
    f1: Interval  # percent, of the edited slot's mask and the commanded one
    f1_unedited: Interval  # of its mask without the edit
    psnr: Interval  # dB, of the editing region against the exact counterfactual
    psnr_reconstruction: Interval  # the same of the reconstruction, not edited
    psnr_frame: Interval  # and of the original frame


@dataclass(frozen=True)
class Summary:
    """A model on the first validation windows, as `geoco eval --windows` takes them."""

    model: str
    step: int
    windows: int
    videos: int
    objects: int  # true ones
    psnr: float  # dB, of the reconstruction
    foreground_ari: Mean
    position: Kind
    scale: Kind
    transplant: Kind


def run(out: Path, console: Console, model: str | None = None) -> None:
    """Write the demo's pictures into a folder and say where they are."""
    threads = torch.get_num_threads()
    console.print(f"backend: PyTorch {torch.__version__} on the CPU, threads: {threads}")
    started = time.perf_counter()
    name = model or preferred()
    loaded = (
        None if name is None else pretrained.load(name)
    )  # first: a wrong name should fail at once
    show_generator(out, console)
    if loaded is None:
        console.print(
            "No trained model ships with this version: `geoco train configs/smoke.yaml --out "
            "runs/smoke` trains a small one in minutes (it needs the `train` extra), and "
            "`geoco demo --model runs/smoke` shows it.",
            highlight=False,
            soft_wrap=True,
        )
    else:
        show_model(loaded, out, console)
    console.print(f"done in {time.perf_counter() - started:.1f} s")
    if name is not None:
        console.print(
            f"To edit scenes in your browser run: {_program()} serve {name}\nand open {ADDRESS}",
            highlight=False,
            soft_wrap=True,
        )


def preferred() -> str | None:
    """The shipped model to show: one for these scenes if there is one, or any."""
    names = list(pretrained.shipped())
    return next((name for name in names if name.startswith(PREFERRED)), next(iter(names), None))


# -- the generator ---------------------------------------------------------------------------------


def show_generator(out: Path, console: Console) -> None:
    """Scenes, exact edits and videos, without any model."""
    dataset = SolidsDataset(SolidsConfig(window=WindowConfig(length=1, stride=8)), "val")
    scenes = dataset.extract_scenes(np.arange(SCENES), np.full(SCENES, 14))
    _say(console, f"{SCENES} scenes with their masks", scenes_picture(out, dataset, scenes))
    _say(
        console,
        "one scene, and its object 1 moved right, moved down, halved, enlarged, replaced, removed",
        edits_picture(out, dataset, scenes),
    )
    _say(console, "four episodes, 48 frames each", video_picture(out))


def scenes_picture(out: Path, dataset: SolidsDataset, scenes: Scenes) -> Path:
    """Frames, and their masks below."""
    pictures = render_scenes(scenes, dataset.canvas)
    frames, masks = pictures.frames.permute(0, 2, 3, 1).numpy(), pictures.masks.numpy()
    shown = [drawing.magnify(frame, ZOOM) for frame in frames]
    parts = [
        drawing.overlay_masks(frame, mask, ZOOM) for frame, mask in zip(frames, masks, strict=True)
    ]
    return _saved(out / "scenes.png", [drawing.compose_sheet([shown, parts])])


def edits_picture(out: Path, dataset: SolidsDataset, scenes: Scenes) -> Path:
    """A scene, and the exact results of edits of one of its objects."""
    frame = render_scenes(scenes[torch.tensor([EDITED])], dataset.canvas).frames
    edited = render_counterfactuals(
        scenes, dataset.canvas, [(EDITED, edit) for edit in EDITS]
    ).frames
    pictures = torch.cat((frame, edited)).permute(0, 2, 3, 1).numpy()
    return _saved(
        out / "edits.png",
        [drawing.compose_sheet([[drawing.magnify(picture, ZOOM) for picture in pictures]])],
    )


def video_picture(out: Path) -> Path:
    """Four episodes side by side."""
    video = SolidsDataset(SolidsConfig(window=WindowConfig(length=48)), "val")
    clips = video.batch([len(video.starts) * number for number in range(4)]).video
    moving = clips.permute(1, 0, 3, 4, 2).numpy()
    sheets = [
        drawing.compose_sheet([[drawing.magnify(frame, ZOOM) for frame in moment]])
        for moment in moving
    ]
    return _saved(out / "video.gif", sheets, 16)


# -- a model ---------------------------------------------------------------------------------------


def show_model(loaded: pretrained.Loaded, out: Path, console: Console) -> None:
    """A gallery, an edited clip with its edit list, and a measured summary."""
    console.print(f"model: {loaded.name}, step {loaded.step:,}", highlight=False, soft_wrap=True)
    editor, dataset = Editor(loaded), scenes_for(loaded, console)

    chosen = demo_pictures.subjects(editor, dataset)
    rows = demo_pictures.edited_rows(chosen, dataset)
    path = _saved(out / "gallery.png", [demo_pictures.gallery(chosen, rows)])
    _say(console, f"{len(chosen)} scenes, edited by the model and in truth", path)
    for sentence in demo_pictures.missing(chosen, rows):
        console.print(f"  {sentence}", highlight=False, soft_wrap=True)

    clip = demo_pictures.edited_clip(editor, dataset, chosen[0].window)
    path = _saved(
        out / "edited.gif", demo_pictures.clip_pictures(clip), clip.film.frames_per_second
    )
    _say(console, f"{clip.title}, {len(clip.film)} frames, {clip.done}", path)
    for warning in clip.warnings:
        console.print(f"  {warning}", highlight=False, soft_wrap=True)
    write_whole(out / "edits.json", clip.film.to_json().encode())
    _say(console, "its edit list, which the page and geoco replay open", out / "edits.json")

    summary = measure(loaded, dataset)
    text = json.dumps(as_values(summary), indent=2, ensure_ascii=False) + "\n"
    write_whole(out / "summary.json", text.encode())
    print_summary(summary, console)
    _say(console, "these numbers with intervals", out / "summary.json")


def scenes_for(loaded: pretrained.Loaded, console: Console) -> SolidsDataset:
    """Validation scenes as the model knows them, single frames of its own configuration."""
    data, size = loaded.config.data, loaded.model.size
    if not isinstance(data, SolidsConfig):
        console.print(
            "  it was trained on other data than the embedded scenes that it is shown here"
        )
        data = SolidsConfig(height=size, width=size)
    return SolidsDataset(
        data.model_copy(update={"window": WindowConfig(length=1, stride=8)}), "val"
    )


def print_summary(summary: Summary, console: Console) -> None:
    """A small table, undefined values as dashes."""
    ari = summary.foreground_ari
    console.print(
        f"{summary.windows} validation windows of {summary.videos} videos, {summary.objects} "
        f"objects: reconstruction {summary.psnr:.2f} dB, FG-ARI {_number(PERCENT * ari.value)}%",
        highlight=False,
        soft_wrap=True,
    )
    names = ("", "edits", "dB", "unedited", "frame", "scored", "F1, %", "unedited")
    table = Table(names[0], *(Column(name, justify="right") for name in names[1:]))
    kinds = (summary.position, summary.scale, summary.transplant)
    for name, kind in zip(("moved", "resized", "transplanted"), kinds, strict=True):
        likeness = (kind.psnr, kind.psnr_reconstruction, kind.psnr_frame)
        overlap = (kind.f1, kind.f1_unedited)
        left, right = ([_number(value.estimate) for value in v] for v in (likeness, overlap))
        table.add_row(name, str(kind.edits), *left, str(kind.scored), *right)
    console.print(table)
    console.print(
        "dB: the edited region against the generator's exact counterfactual; beside it the same\n"
        "reconstruction, and the original frame, without the edit. F1: the edited slot's mask\n"
        "against the commanded one, where slot and target are large enough; beside it without "
        "the edit.",
        highlight=False,
        soft_wrap=True,
    )


# -- the summary -----------------------------------------------------------------------------------


def measure(loaded: pretrained.Loaded, dataset: SolidsDataset, windows: int = WINDOWS) -> Summary:
    """One move, one resize and one transplant of every true object of some windows.

    Objects take turns with the protocol's commands: `geoco eval` runs all of them on each.
    """
    slot_model = adapter(loaded.model, loaded.config)
    assert isinstance(slot_model, OneSlotModel)
    model = _Remembering(slot_model)
    found = factual(model, dataset, BATCH, windows)
    assert found.reference is not None
    objects = references(found)
    kinds = [
        _kind(model, dataset, found, objects, _in_turn(objects, asked))
        for asked in (
            asked_moves(objects),
            asked_resizes(objects),
            asked_transplants(found, objects),
        )
    ]
    return Summary(
        loaded.name,
        loaded.step,
        len(found),
        len(set(found.source)),
        len(objects),
        float(found.psnr.mean()),
        segmentation(found, found.reference).foreground_ari,
        *kinds,
    )


class _Remembering:
    """A model that draws a scene once: all kinds of edits start from the same ones."""

    def __init__(self, model: OneSlotModel) -> None:
        self.slots, self.size = model.slots, model.size
        self.encode, self.compose = model.encode, model.compose
        self._model = model
        self._scenes: dict[bytes, Fields] = {}

    def decode(self, encoded: Encoded, slots: Slots) -> Decoded:
        return self.compose(encoded, self.fields(slots))

    def fields(self, slots: Slots) -> Fields:
        if slots.scale.shape[1] < self.slots:
            return self._model.fields(slots)
        parts = (slots.appearance, slots.position, slots.scale)
        key = b"".join(part.cpu().numpy().tobytes() for part in parts)
        if key not in self._scenes:
            self._scenes[key] = self._model.fields(slots)
        return self._scenes[key]


def _in_turn(objects: References, asked: Asked) -> Asked:
    """Of each object one command, the next object the next one; transplants have but one."""
    if asked.kind == "transplant":
        return asked
    number = torch.arange(len(objects))
    each = len(asked) // max(len(objects), 1)
    return asked.rows(number * each + number % max(each, 1))


def _kind(
    model: OneSlotModel, dataset: SolidsDataset, found: Factual, objects: References, asked: Asked
) -> Kind:
    device = torch.device("cpu")
    able = objects.slot >= 0
    done = (able[asked.object] & able[asked.donor]).nonzero()[:, 0]
    commands = _commands(found, objects, asked.rows(done))
    wanted = eligibility(found, commands)
    scored = wanted.valid & found.valid[commands.window, commands.slot].numpy()
    window = objects.window[asked.object]
    before = found.image[window]
    after = before.clone()
    masks, targets = torch.zeros(2, len(commands), *before.shape[-2:], dtype=torch.bool)
    for chunk, slot, (rgb, logits) in edited_scenes(model, found, commands, BATCH):
        after[done[chunk]] = composite(rgb, ownership(logits))
        masks[chunk] = hard_ownership(logits)[:, slot]
        targets[chunk] = ideal_targets(found, commands, chunk)[1]
    truth = truths(dataset, found, objects, asked, device).image
    region = oracle_targets(found, objects, asked, device).region
    video = found.video[window.numpy()]

    def likeness(image: Float[Tensor, "edit 3 height width"]) -> Interval:
        return _mean(metrics_rgb.region_psnr(image, truth, region).numpy(), video)

    def overlap(values: Float64[np.ndarray, " command"]) -> Interval:
        return _mean(PERCENT * values[scored], video[done.numpy()][scored])

    return Kind(
        edits=len(asked),
        unassociated=len(asked) - len(done),
        scored=int(scored.sum()),
        f1=overlap(metrics.f1(masks, targets).numpy()),
        f1_unedited=overlap(wanted.noop),
        psnr=likeness(after),
        psnr_reconstruction=likeness(before),
        psnr_frame=likeness(found.frame[window].float() / 255),
    )


def _commands(found: Factual, objects: References, asked: Asked) -> Commands:
    """The same edits through the slots of the objects."""
    recipients = objects.window[asked.object], objects.slot[asked.object]
    if asked.kind == "transplant":
        donors = objects.window[asked.donor], objects.slot[asked.donor]
        return transplanted(found, recipients, donors)
    every = (moves if asked.kind == "position" else resizes)(found, recipients)
    each = len(every) // max(len(asked), 1)
    return every.rows(torch.arange(len(asked)) * each + asked.command)


def _mean(values: Float64[np.ndarray, " edit"], video: Int64[np.ndarray, " edit"]) -> Interval:
    """Within videos, then over videos, as the object-matched tables take it."""
    defined = ~np.isnan(values)
    if not defined.any():
        return Interval(float("nan"), float("nan"), float("nan"))
    return metrics.paired_interval(metrics.video_means(values[defined], video[defined]), REPLICATES)


# -- words -----------------------------------------------------------------------------------------


def _saved(path: Path, pictures: list[drawing.Picture], frames_per_second: float = 8) -> Path:
    drawing.save_pictures(path, pictures, frames_per_second)
    return path


def _say(console: Console, what: str, path: Path) -> None:
    console.print(f"{what}: {path}", soft_wrap=True)


def _number(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.1f}"


def _program() -> str:
    """How this program is called from here: the one beside Python if it is below this folder."""
    beside = Path(sys.executable).with_name("geoco")
    here = Path.cwd()
    return str(beside.relative_to(here)) if beside.is_relative_to(here) else "geoco"
