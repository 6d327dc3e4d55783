"""Make the picture of docs/evaluation.md: the video protocol on a clip that moves.

python docs/evaluation_pictures.py [MODEL]
"""

import sys
from pathlib import Path

import numpy as np
import torch

from geoco import config, drawing, media
from geoco.data import SolidsDataset
from geoco.evaluation import adapter, compute_video_factual
from geoco.evaluation.canvas import Canvas
from geoco.evaluation.commands import build_moves
from geoco.evaluation.galleries import draw_edits
from geoco.evaluation.gallery_layout import Outline, Panel, Row, draw_gallery
from geoco.evaluation.reference_tracks import find_anchors
from geoco.evaluation.windows import Factual
from geoco.models import pretrained

PICTURE = Path(__file__).parent / "images" / "video-protocol.png"
FRAMES, EVERY = 6, 2
TRACK, SLOT, IDEAL, EDITED = "#ffd92f", "#ffffff", "#ee3377", "#33bbee"
LEGEND = {
    TRACK: "reference track",
    SLOT: "support of its slot",
    IDEAL: "support under the command: the target",
    EDITED: "edited support",
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
    # Of the four moves the first, six pixels to the right.
    every = build_moves(factual, (rows, slots))
    commands = every.rows((every.command == 0).nonzero()[:, 0])
    edited = draw_edits(model, factual, commands, 64)
    support = Canvas.of_reference(factual).take_masks(rows, slots).numpy()
    track = (factual.reference[rows] == anchor.label).numpy()
    lines: list[Row] = [
        [
            Panel(media.to_bytes(frame), (Outline(mask, TRACK),))
            for frame, mask in zip(factual.frame[rows].float() / 255, track, strict=True)
        ],
        [
            Panel(media.to_bytes(image), (Outline(mask, SLOT),))
            for image, mask in zip(factual.image[rows], support, strict=True)
        ],
        [
            Panel(picture, (Outline(target, IDEAL), Outline(done, EDITED)))
            for picture, target, done in zip(
                edited.pictures, edited.targets, edited.supports, strict=True
            )
        ],
    ]
    times = factual.time[rows.numpy()].tolist()
    heads = [f"frame {time}{', anchored' if time == anchor.frame else ''}" for time in times]
    labels = ["frames,\na track", "its slot", "moved by\n6 pixels"]
    return draw_gallery([("one clip", heads)], labels, lines, LEGEND)


if __name__ == "__main__":
    main()
