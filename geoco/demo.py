"""`make demo`: scenes from the embedded generator, their masks, and exact edits of them."""

import time
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from geoco import draw
from geoco.config import Solids, Window
from geoco.data.solids import SolidsDataset
from geoco.solids import Canvas, Move, Remove, Replace, Scale, counterfactual, render

ZOOM = 3
SCENES = 8
EDITED = 3  # the scene whose object 1 is edited


def run(out: Path, console: Console) -> None:
    """Write the demo's pictures into a folder and say where they are."""
    console.print(f"backend: PyTorch {torch.__version__} on the CPU")
    started = time.perf_counter()
    config = Solids(window=Window(length=1, stride=8))
    dataset = SolidsDataset(config, "val")
    episode = np.arange(SCENES)
    scenes = dataset.scenes(episode, np.full(SCENES, 14))
    canvas = Canvas(config.height, config.width, config.supersample)
    pictures = render(scenes, canvas)

    frames = pictures.frames.permute(0, 2, 3, 1).numpy()
    masks = pictures.masks.numpy()
    contact = draw.sheet(
        [
            [draw.magnify(frame, ZOOM) for frame in frames],
            [draw.overlay(frame, mask, ZOOM) for frame, mask in zip(frames, masks, strict=True)],
        ]
    )
    draw.save(out / "scenes.png", [contact])

    edits = (
        Move(1, 6, 0),
        Move(1, 0, 6),
        Scale(1, 0.5),
        Scale(1, 1.5),
        Remove(1),
        Replace(1, 1, 0),
    )
    edited = counterfactual(scenes, canvas, [(0, edit) for edit in edits])
    targets = edited.frames.permute(0, 2, 3, 1).numpy()
    draw.save(
        out / "edits.png",
        [draw.sheet([[draw.magnify(frame, ZOOM) for frame in (frames[EDITED], *targets)]])],
    )

    video = SolidsDataset(Solids(window=Window(length=48)), "val")
    clips = video.batch([len(video.starts) * number for number in range(4)]).video
    moving = clips.permute(1, 0, 3, 4, 2).numpy()
    draw.save(
        out / "video.gif",
        [draw.sheet([[draw.magnify(frame, ZOOM) for frame in moment]]) for moment in moving],
        frames_per_second=16,
    )
    seconds = time.perf_counter() - started
    console.print(f"{SCENES} scenes with their masks: {out / 'scenes.png'}", soft_wrap=True)
    console.print(
        "one scene, and its object 1 moved right, moved down, halved, enlarged, replaced, "
        f"removed: {out / 'edits.png'}",
        soft_wrap=True,
    )
    console.print(f"four episodes, 48 frames each: {out / 'video.gif'}", soft_wrap=True)
    console.print(f"done in {seconds:.1f} s")
