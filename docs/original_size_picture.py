"""Make the picture of docs/editor.md that compares edits at the picture's own size.

python docs/original_size_picture.py [MODEL]
"""

import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from geoco import Editor, drawing
from geoco.config import SolidsConfig
from geoco.data import SolidsDataset
from geoco.models import pretrained
from geoco.solids import Move, Scale

SIDE = 256
PATH = Path(__file__).parent / "images" / "original-size.png"


def main() -> None:
    """In the first validation scene the cylinder moves before the cube, and the ball grows."""
    editor = Editor.load(
        sys.argv[1] if len(sys.argv) > 1 else next(iter(pretrained.list_shipped()))
    )
    torch.set_num_threads(1)
    dataset = SolidsDataset(SolidsConfig(height=SIDE, width=SIDE), "val")
    clip = dataset.batch([0])
    assert clip.masks is not None
    picture, labels = clip.video[0, 0].permute(1, 2, 0).numpy(), clip.masks[0, 0].numpy()
    scene = editor.encode(picture)
    owner = np.kron(scene.masks.argmax(0), np.ones((SIDE // 64, SIDE // 64), int))
    rows = []
    for slot, edited, truth in (
        (2, scene.move(2, dx=-12, dy=2), lambda item: Move(item, -48, 8)),
        (5, scene.resize(5, 1.5), lambda item: Scale(item, 1.5)),
    ):
        item = np.bincount(labels[(owner == slot) & (labels > 0)]).argmax() - 1
        exact = dataset.render_counterfactuals([0], [(0, truth(int(item)))]).frames[0]
        enlarged = Image.fromarray(edited.image).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
        exact_picture = exact.permute(1, 2, 0).numpy()
        rows.append([picture, np.asarray(enlarged), edited.render(), exact_picture])
    drawing.save_pictures(PATH, [drawing.compose_sheet(rows)])


if __name__ == "__main__":
    main()
