"""Edits at the picture's own size, against exact ones of `solids` at 256 x 256.

    python benchmarks/original_size.py [--model geoco-solids] [--split val] [--scenes 6] [--every 1]
        [--textured]

Scenes are the first frames of the first window of each video, rendered at 256 x 256, which the
model sees at its own size. Edited is every object of at least 160 visible pixels whose slot of
highest F1 is not the background: moved by 24 pixels in four directions, resized by four factors,
and given the looks of an object of the next scene; where the object and its image stay inside the
picture. Measured is the changed region: where the exact edit differs from the picture by more than
8 of 255. PSNR and SSIM are means over edits; beside them the model's own answer, enlarged. With
`--textured`, scenes as of `configs/solids-textured.yaml`, which the shipped models do not know.
"""

import argparse
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, UInt8
from torch import Tensor
from torchmetrics.functional.image import structural_similarity_index_measure

from geoco import Editor
from geoco.config import SolidsConfig
from geoco.data import SolidsDataset
from geoco.edit_maps import AffineMap, is_feasible
from geoco.editing.editor import Scene
from geoco.evaluation.commands import FACTORS, MOVES
from geoco.evaluation.windows import choose_windows
from geoco.metrics import support_moments
from geoco.solids import Move, Replace, Scale, SceneEdit

SIDE = 256
FEWEST = 160
CHANGED = 8


@dataclass(frozen=True)
class Thing:
    """An object of a scene with the slot that holds it."""

    scene: int
    item: int
    slot: int
    mask: Bool[Tensor, "height width"]

    def fits(self, edit: AffineMap) -> bool:
        return bool(is_feasible(self.mask, edit))


@dataclass(frozen=True)
class Asked:
    """An edit of the truth, and of a scene."""

    kind: str
    scene: int
    truth: SceneEdit
    edited: Scene


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="geoco-solids")
    parser.add_argument("--split", default="val", choices=["train", "val", "test"])
    parser.add_argument("--scenes", type=int, default=6)
    parser.add_argument("--every", type=int, default=1, help="measure every so many edits only")
    parser.add_argument("--textured", action="store_true", help="as configs/solids-textured.yaml")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    config = SolidsConfig(
        height=SIDE,
        width=SIDE,
        textured=arguments.textured,
        camera_jitter=0.5 if arguments.textured else 0.0,
    )
    dataset = SolidsDataset(config, arguments.split)
    windows = choose_windows(dataset, arguments.scenes).tolist()
    editor = Editor.load(arguments.model)
    scenes, things = [], []
    for number, window in enumerate(windows):
        clip = dataset.batch([window])
        assert clip.masks is not None
        scenes.append(editor.encode(clip.video[0, 0]))
        things.append(find_things(number, scenes[-1], clip.masks[0, 0]))
    asked = sorted(ask_edits(scenes, things), key=lambda edit: edit.kind)[:: arguments.every]
    scores: dict[str, list[tuple[float, ...]]] = {}
    seconds = 0.0
    for edit in asked:
        drawn = dataset.render_counterfactuals(windows, [(edit.scene, edit.truth)])
        truth = drawn.frames[0].permute(1, 2, 0).numpy()
        start = time.process_time()
        own = edit.edited.render()
        seconds += time.process_time() - start
        enlarged = enlarge(edit.edited.image)
        before = scenes[edit.scene].render()
        changed = np.abs(truth.astype(int) - before).max(-1) > CHANGED
        row = (*compare(own, truth, changed), *compare(enlarged, truth, changed))
        scores.setdefault(edit.kind, []).append(row)
    scenery = "textured scenes" if arguments.textured else "scenes"
    print(f"{arguments.model}, {len(windows)} {scenery} of {arguments.split}, {SIDE} x {SIDE}")
    print(f"{'':12}{'edits':>7}{'PSNR':>8}{'enlarged':>10}{'SSIM':>8}{'enlarged':>10}")
    for kind, rows in scores.items():
        psnr, ssim, old_psnr, old_ssim = np.mean(rows, axis=0)
        print(f"{kind:12}{len(rows):7}{psnr:8.2f}{old_psnr:10.2f}{ssim:8.3f}{old_ssim:10.3f}")
    print(f"{seconds / len(asked):.2f} s of processor time an edit")


def find_things(number: int, scene: Scene, labels: UInt8[Tensor, "height width"]) -> list[Thing]:
    """The objects of a scene that have a slot."""
    own = torch.from_numpy(scene.masks).double()
    things = []
    for label in labels.unique().tolist():
        mask = labels == label
        if label == 0 or int(mask.sum()) < FEWEST:
            continue
        small = F.interpolate(mask[None, None].double(), size=own.shape[-2:], mode="area")[0]
        f1 = 2 * (own * small).sum((1, 2)) / (own.sum((1, 2)) + small.sum())
        if int(f1.argmax()) != scene.decoded.background:
            things.append(Thing(number, label - 1, int(f1.argmax()), mask))
    return things


def ask_edits(scenes: list[Scene], things: list[list[Thing]]) -> list[Asked]:
    asked = []
    for number, here in enumerate(things):
        scene, following = scenes[number], things[(number + 1) % len(things)]
        zoom = SIDE // scene.editor.model.size
        for rank, thing in enumerate(here):
            for dx, dy in MOVES:
                pixels = torch.tensor([dx * zoom, dy * zoom])
                if thing.fits(AffineMap.from_move(pixels, SIDE, SIDE)):
                    truth: SceneEdit = Move(thing.item, dx * zoom, dy * zoom)
                    asked.append(Asked("moved", number, truth, scene.move(thing.slot, dx, dy)))
            center = support_moments(thing.mask[None]).center[0]
            for factor in FACTORS:
                edit = AffineMap.from_resize(torch.tensor(factor), center)
                if factor != 1 and thing.fits(edit):
                    truth, edited = Scale(thing.item, factor), scene.resize(thing.slot, factor)
                    asked.append(Asked("resized", number, truth, edited))
            donor = following[rank % len(following)] if following else None
            still = AffineMap.from_move(torch.zeros(2), SIDE, SIDE)
            if donor is not None and thing.fits(still) and donor.fits(still):
                truth = Replace(thing.item, donor.scene, donor.item)
                edited = scene.transplant(thing.slot, scenes[donor.scene], donor.slot)
                asked.append(Asked("transplanted", number, truth, edited))
    return asked


def enlarge(picture: UInt8[np.ndarray, "rows columns 3"]) -> UInt8[np.ndarray, "height width 3"]:
    """The model's answer at the picture's size."""
    planes = torch.from_numpy(picture.copy()).permute(2, 0, 1)[None].double()
    large = F.interpolate(planes, size=(SIDE, SIDE), mode="bicubic", align_corners=False)
    return large[0].permute(1, 2, 0).clamp(0, 255).round().to(torch.uint8).numpy()


def compare(
    picture: UInt8[np.ndarray, "height width 3"],
    truth: UInt8[np.ndarray, "height width 3"],
    region: Bool[np.ndarray, "height width"],
) -> tuple[float, float]:
    """PSNR and SSIM within a region."""
    one, two = (
        torch.tensor(part).permute(2, 0, 1)[None].double() / 255 for part in (picture, truth)
    )
    where = torch.from_numpy(region)
    psnr = -10 * (one - two).square().mean((0, 1))[where].mean().clamp_min(1e-10).log10()
    _, similar = structural_similarity_index_measure(
        one, two, data_range=1.0, return_full_image=True
    )
    return float(psnr), float(similar.mean((0, 1))[where].mean())


if __name__ == "__main__":
    main()
