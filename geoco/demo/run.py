"""`make demo`: what the embedded generator knows, and what a trained model makes of its scenes.

The generator draws scenes, their masks and exact edits of them. A model takes scenes of the
validation split apart and edits them; its edits are shown beside the generator's, and measured
against them. Without a model the generator is shown alone.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from geoco import drawing
from geoco.config import SolidsConfig, WindowConfig
from geoco.data.solids import SolidsDataset
from geoco.demo import pictures as demo_pictures
from geoco.demo.summary import measure_model, print_summary
from geoco.editing.editor import Editor
from geoco.evaluation import as_values
from geoco.files import write_whole
from geoco.models import pretrained
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
ADDRESS = "http://127.0.0.1:8000"


def run_demo(out: Path, console: Console, model: str | None = None) -> None:
    """Write the demo's pictures into a folder and say where they are."""
    threads = torch.get_num_threads()
    console.print(f"backend: PyTorch {torch.__version__} on the CPU, threads: {threads}")
    started = time.perf_counter()
    name = model or find_preferred()
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
            f"To edit scenes in your browser run: {_find_program()} serve {name}\n"
            f"and open {ADDRESS}",
            highlight=False,
            soft_wrap=True,
        )


def find_preferred() -> str | None:
    """The shipped model to show: one for these scenes if there is one, or any."""
    names = list(pretrained.list_shipped())
    return next((name for name in names if name.startswith(PREFERRED)), next(iter(names), None))


# -- the generator ---------------------------------------------------------------------------------


def show_generator(out: Path, console: Console) -> None:
    """Scenes, exact edits and videos, without any model."""
    dataset = SolidsDataset(SolidsConfig(window=WindowConfig(length=1, stride=8)), "val")
    scenes = dataset.extract_scenes(np.arange(SCENES), np.full(SCENES, 14))
    _announce(console, f"{SCENES} scenes with their masks", draw_scenes(out, dataset, scenes))
    _announce(
        console,
        "one scene, and its object 1 moved right, moved down, halved, enlarged, replaced, removed",
        draw_edits(out, dataset, scenes),
    )
    _announce(console, "four episodes, 48 frames each", draw_videos(out))


def draw_scenes(out: Path, dataset: SolidsDataset, scenes: Scenes) -> Path:
    """Frames, and their masks below."""
    pictures = render_scenes(scenes, dataset.canvas)
    frames, masks = pictures.frames.permute(0, 2, 3, 1).numpy(), pictures.masks.numpy()
    shown = [drawing.magnify(frame, ZOOM) for frame in frames]
    parts = [
        drawing.overlay_masks(frame, mask, ZOOM) for frame, mask in zip(frames, masks, strict=True)
    ]
    return _save(out / "scenes.png", [drawing.compose_sheet([shown, parts])])


def draw_edits(out: Path, dataset: SolidsDataset, scenes: Scenes) -> Path:
    """A scene, and the exact results of edits of one of its objects."""
    frame = render_scenes(scenes[torch.tensor([EDITED])], dataset.canvas).frames
    edited = render_counterfactuals(
        scenes, dataset.canvas, [(EDITED, edit) for edit in EDITS]
    ).frames
    pictures = torch.cat((frame, edited)).permute(0, 2, 3, 1).numpy()
    return _save(
        out / "edits.png",
        [drawing.compose_sheet([[drawing.magnify(picture, ZOOM) for picture in pictures]])],
    )


def draw_videos(out: Path) -> Path:
    """Four episodes side by side."""
    video = SolidsDataset(SolidsConfig(window=WindowConfig(length=48)), "val")
    clips = video.batch([len(video.starts) * number for number in range(4)]).video
    moving = clips.permute(1, 0, 3, 4, 2).numpy()
    sheets = [
        drawing.compose_sheet([[drawing.magnify(frame, ZOOM) for frame in moment]])
        for moment in moving
    ]
    return _save(out / "video.gif", sheets, 16)


# -- a model ---------------------------------------------------------------------------------------


def show_model(loaded: pretrained.LoadedModel, out: Path, console: Console) -> None:
    """A gallery, an edited clip with its edit list, and a measured summary."""
    console.print(f"model: {loaded.name}, step {loaded.step:,}", highlight=False, soft_wrap=True)
    editor, dataset = Editor(loaded), open_scenes(loaded, console)

    chosen = demo_pictures.choose_subjects(editor, dataset)
    rows = demo_pictures.edit_subjects(chosen, dataset)
    path = _save(out / "gallery.png", [demo_pictures.compose_gallery(chosen, rows)])
    _announce(console, f"{len(chosen)} scenes, edited by the model and in truth", path)
    for sentence in demo_pictures.explain_gaps(chosen, rows):
        console.print(f"  {sentence}", highlight=False, soft_wrap=True)

    clip = demo_pictures.edit_clip(editor, dataset, chosen[0].window)
    path = _save(out / "edited.gif", demo_pictures.draw_clip(clip), clip.film.frames_per_second)
    _announce(console, f"{clip.title}, {len(clip.film)} frames, {clip.done}", path)
    for warning in clip.warnings:
        console.print(f"  {warning}", highlight=False, soft_wrap=True)
    write_whole(out / "edits.json", clip.film.to_json().encode())
    _announce(console, "its edit list, which the page and geoco replay open", out / "edits.json")

    summary = measure_model(loaded, dataset)
    text = json.dumps(as_values(summary), indent=2, ensure_ascii=False) + "\n"
    write_whole(out / "summary.json", text.encode())
    print_summary(summary, console)
    _announce(console, "these numbers with intervals", out / "summary.json")


def open_scenes(loaded: pretrained.LoadedModel, console: Console) -> SolidsDataset:
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


# -- words -----------------------------------------------------------------------------------------


def _save(path: Path, pictures: list[drawing.Picture], frames_per_second: float = 8) -> Path:
    drawing.save_pictures(path, pictures, frames_per_second)
    return path


def _announce(console: Console, what: str, path: Path) -> None:
    console.print(f"{what}: {path}", soft_wrap=True)


def _find_program() -> str:
    """How this program is called from here: the one beside Python if it is below this folder."""
    beside = Path(sys.executable).with_name("geoco")
    here = Path.cwd()
    return str(beside.relative_to(here)) if beside.is_relative_to(here) else "geoco"
