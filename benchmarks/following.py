"""Do slots keep their objects through a video? Against the true masks of `solids`.

    python benchmarks/following.py [MODEL ...] [--clips 6] [--frames 24]

A model of single frames is led through clips as the editor does it, once with slots that keep their
names and once without. Every object gets the slot whose masks over all frames fit its own best.
"""

import argparse

import numpy as np
import torch
from jaxtyping import Bool, Float64, UInt8
from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]
from torch import Tensor

from geoco import edit_maps
from geoco.config import SolidsConfig, WindowConfig
from geoco.data import SolidsDataset
from geoco.evaluation.windows import choose_windows, draw_starting_positions
from geoco.models import compositing, pretrained, tracking
from geoco.models.interface import Model


def tube_f1(
    slots: Bool[Tensor, "time slot height width"], labels: UInt8[Tensor, "time height width"]
) -> Float64[np.ndarray, " object"]:
    """F1 of each object and its slot over a whole clip, one slot to an object."""
    names = [name for name in labels.unique().tolist() if name]
    tubes = torch.stack([labels == name for name in names])
    tubes = tubes[tubes.flatten(1).sum(1) >= edit_maps.FEWEST_PIXELS]
    own, drawn = tubes.flatten(1).double(), slots.transpose(0, 1).flatten(1).double()
    f1 = 2 * (own @ drawn.T) / (own.sum(1, keepdim=True) + drawn.sum(1)).clamp(min=1)
    scores: Float64[np.ndarray, " object"] = f1.numpy()[linear_sum_assignment(-f1.numpy())]
    return scores


@torch.no_grad()
def masks(
    model: Model, video: Tensor, positions: Tensor, names: bool
) -> Bool[Tensor, "time slot height width"]:
    """What slots own in every frame; without names a slot is what the model gives its place."""
    if names:
        bound = tracking.track_slots(model, video, positions)
        return compositing.compute_masks(model.decode(bound).fields.logits)
    owned = []
    for frame in video:
        bound = model.bind(frame[None, None], positions[None])
        positions = bound.slots.position[0, 0]
        owned.append(compositing.compute_masks(model.decode(bound).fields.logits)[0, 0])
    return torch.stack(owned)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=["geoco-solids"], help="shipped names or runs")
    parser.add_argument("--clips", type=int, default=6)
    parser.add_argument("--frames", type=int, default=24)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    cut = WindowConfig(length=arguments.frames, stride=arguments.frames)
    dataset = SolidsDataset(SolidsConfig(window=cut), "val")
    windows = choose_windows(dataset, arguments.clips).tolist()
    for name in arguments.models:
        model = pretrained.load(name).model
        scores: dict[bool, list[float]] = {True: [], False: []}
        for window in windows:
            clip = dataset.batch([window])
            assert clip.masks is not None
            start = draw_starting_positions(window, model.slot_count)
            for names, f1 in scores.items():
                owned = masks(model, clip.video[0].float() / 255, start, names)
                f1.extend(tube_f1(owned, clip.masks[0]))
        named, unnamed = (np.mean(scores[names]) for names in (True, False))
        print(f"{name}: {len(scores[True])} objects of {len(windows)} clips of {arguments.frames}")
        print(f"  mean tube F1 {named:.3f}, without names {unnamed:.3f}")


if __name__ == "__main__":
    main()
