"""Make the picture of docs/evaluation.md: the video protocol on a clip that moves.

python docs/evaluation_pictures.py [MODEL]
"""

import sys
from pathlib import Path

import numpy as np
import torch

from geoco import config, drawing, media, metrics
from geoco.data import SolidsDataset
from geoco.evaluation import adapter, compute_video_factual
from geoco.evaluation.canvas import Canvas
from geoco.evaluation.commands import build_resizes
from geoco.evaluation.galleries import draw_edits
from geoco.evaluation.gallery_layout import Outline, Panel, Row, draw_gallery
from geoco.evaluation.reference_tracks import find_anchors
from geoco.evaluation.video import record_tubes
from geoco.evaluation.windows import Factual
from geoco.models import pretrained

PICTURE = Path(__file__).parent / "images" / "video-protocol.png"
FRAMES, EVERY = 6, 2
TRACK, OTHER, SLOT, EDITED, MISSED = "#ffd92f", "#bbbbbb", "#ffffff", "#33bbee", "#ee3377"
LEGEND = {
    TRACK: "edited track",
    OTHER: "other tracks",
    SLOT: "its slot's support",
    EDITED: "edited support",
    MISSED: "in only one of edit and target",
}


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else "geoco-solids"
    torch.set_num_threads(1)
    loaded = pretrained.load(name)
    window = config.WindowConfig(length=FRAMES * EVERY, stride=FRAMES * EVERY)
    dataset = SolidsDataset(config.SolidsConfig(window=window), "val")
    model = adapter(loaded.model, loaded.config)
    factual = compute_video_factual(model, dataset, np.array([0, len(dataset.starts)]), 64)
    drawing.save_pictures(PICTURE, [draw(model, factual)])


def draw(model, factual: Factual) -> drawing.Picture:  # type: ignore[no-untyped-def]
    anchors = find_anchors(factual, range(len(factual) // factual.length))
    # The first clip whose object is largest neither at its beginning nor between two pictures.
    clip, anchor = next(
        (clip, each)
        for clip, each in enumerate(anchors)
        if each and each.frame % EVERY == 0 and each.frame > 0
    )
    assert factual.reference is not None
    rows = clip * factual.length + torch.arange(0, factual.length, EVERY)
    slots = torch.full_like(rows, anchor.slot)
    # Of the five factors the first, half the size.
    every = build_resizes(factual, (rows, slots))
    commands = every.rows((every.command == 0).nonzero()[:, 0])
    edited = draw_edits(model, factual, commands, 64)
    support = Canvas.of_reference(factual).take_masks(rows, slots).numpy()
    labels = factual.reference[rows].numpy()
    f1 = metrics.f1(torch.from_numpy(edited.supports), torch.from_numpy(edited.targets))
    first: Row = [
        Panel(
            media.to_bytes(frame),
            outline_tracks(label, anchor.label),
            f"{(label == anchor.label).sum()} pixels",
        )
        for frame, label in zip(factual.frame[rows].float() / 255, labels, strict=True)
    ]
    second: Row = [
        Panel(media.to_bytes(image), (Outline(mask, SLOT),))
        for image, mask in zip(factual.image[rows], support, strict=True)
    ]
    third: Row = [
        Panel(
            paint(picture, target != done, MISSED),
            (Outline(done, EDITED),),
            f"F1 {100 * score:.1f}",
        )
        for picture, target, done, score in zip(
            edited.pictures, edited.targets, edited.supports, f1.tolist(), strict=True
        )
    ]
    times = factual.time[rows.numpy()].tolist()
    heads = [f"frame {time}{': reference' if time == anchor.frame else ''}" for time in times]
    tube = record_tubes(model, factual, 64).edits.of("scale")
    score = tube.f1[(tube.video == clip) & (tube.command == 0)].item()
    title = (
        f"Every second frame of a clip. Tube F1 of this edit, over all frames: {100 * score:.1f}"
    )
    names = ["reference\ntracks", "the slot of\none: a tube", "the tube at\nhalf its size"]
    return draw_gallery([(title, heads)], names, [first, second, third], LEGEND)


def outline_tracks(labels: np.ndarray, chosen: int) -> tuple[Outline, ...]:
    """All objects of a frame, the chosen one last."""
    numbers = [number for number in np.unique(labels).tolist() if number not in (0, chosen)]
    others = tuple(Outline(labels == number, OTHER) for number in numbers)
    return (*others, Outline(labels == chosen, TRACK))


def paint(picture: drawing.Picture, mask: np.ndarray, color: str) -> drawing.Picture:
    """Some pixels in one colour."""
    shade = [int(color[place : place + 2], 16) for place in (1, 3, 5)]
    return np.where(mask[..., None], np.array(shade, dtype=np.uint8), picture)


if __name__ == "__main__":
    main()
