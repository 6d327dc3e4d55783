"""What slots hold in truth, on `solids`: floor, the picture's edge, and objects without their own.

    python benchmarks/masks.py [MODEL] [--windows 100] [--spread]

The windows are those of `geoco eval --windows`, or, to see all times of the videos, some spread
over the whole split. Floor is what no object covers, shadows among it; a shadow is floor that has
lost a tenth of its light.
"""

import argparse
from dataclasses import dataclass, fields

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from geoco import ideal, metrics, supports, zoo
from geoco.config import Solids
from geoco.data import SolidsDataset
from geoco.evaluation import GeoCoModel, population
from geoco.solids import Placement
from geoco.solids.floor import shadows

FLOOR_ALONE = 0.95  # share of a slot's pixels
DARK = 0.1  # share of the light that a shadow takes away
LONG = 1.25  # radius over scale of a mask that runs along the edge


@dataclass(frozen=True)
class Counts:
    """Slots that hold something, the background aside, and objects of ten pixels."""

    slots: int = 0
    discs: int = 0  # slots of floor alone
    floors: int = 0  # slots of an object and more floor than object
    draped: int = 0  # slots of shadow, more than of anything else
    edges: int = 0  # slots that touch the edge
    streaks: int = 0  # of these, those that are long
    objects: int = 0
    doubled: int = 0  # objects that two slots hold above all others
    shared: int = 0  # slots that hold the most of two objects
    missed: int = 0  # objects of which the background, or a slot of a few pixels, holds the most

    def __add__(self, other: "Counts") -> "Counts":
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return Counts(*(a + b for a, b in pairs))


def counted(
    masks: Bool[Tensor, "slot height width"],
    valid: Bool[Tensor, " slot"],
    scale: Float[Tensor, " slot"],
    labels: UInt8[Tensor, "height width"],
    taken: Float[Tensor, "height width"],
) -> Counts:
    """Of one window, from whose floor shadows have taken that share of the light.

    Slots that are not valid are the background, or nothing.
    """
    names = [name for name in labels.unique().tolist() if name]
    everyone = [(masks & (labels == name)).sum((-2, -1)) for name in names]
    held = torch.stack(everyone) if everyone else masks.new_zeros((0, len(masks)), dtype=torch.long)
    area = masks.sum((-2, -1))
    floor = 1 - held.sum(0) / area.clamp(min=1)
    shadow = (masks & (labels == 0) & (taken > DARK)).sum((-2, -1)) / area.clamp(min=1)
    edge = masks[:, [0, -1]].any(-1).any(-1) | masks[:, :, [0, -1]].any(-1).any(-1)
    long = metrics.support_moments(masks).radius > LONG * scale
    large = held.sum(1) >= ideal.FEWEST_PIXELS
    most = torch.zeros_like(held, dtype=torch.bool)  # the object that each slot is of
    if len(names):
        most.scatter_(0, held.argmax(0, keepdim=True), True)
    owners = most & valid & (held >= ideal.FEWEST_PIXELS)
    keeper = held.argmax(1)[large]  # the slot that has the most of each object
    kept = torch.bincount(keeper[valid[keeper]], minlength=len(masks))
    return Counts(
        int(valid.sum()),
        int((valid & (floor > FLOOR_ALONE)).sum()),
        int((valid & (floor > 0.5) & (floor <= FLOOR_ALONE)).sum()),
        int((valid & (shadow > 0.5)).sum()),
        int((valid & edge).sum()),
        int((valid & edge & long).sum()),
        int(large.sum()),
        int((owners.sum(1) > 1)[large].sum()),
        int((kept > 1).sum()),
        int((~valid[keeper]).sum()),
    )


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="geoco-solids", help="a shipped name or a run")
    parser.add_argument("--windows", type=int, default=100)
    parser.add_argument("--spread", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model = GeoCoModel(zoo.load(arguments.model).model)
    dataset = SolidsDataset(Solids(), "val")
    windows = population.chosen_windows(dataset, arguments.windows)
    if arguments.spread:
        windows = np.linspace(0, len(dataset) - 1, arguments.windows).round().astype(np.int64)
    total = Counts()
    for window in windows.tolist():
        clip = dataset.batch([window])
        assert clip.masks is not None
        start = population.starting_positions(window, model.slots)
        encoded = model.encode(clip.video[:, 0].float() / 255, start[None])
        _, logits = model.decode(encoded, encoded.slots)
        masks = supports.hard_ownership(logits)[0]
        valid = ideal.valid(masks)
        valid[supports.measurement_background(supports.ownership(logits))] = False
        taken = light_taken(dataset, window)
        total += counted(masks, valid, encoded.slots.scale[0], clip.masks[0, 0], taken)
    show(total, len(windows))


def light_taken(dataset: SolidsDataset, window: int) -> Float[Tensor, "height width"]:
    """The share of the clean floor's light that all shadows take together, in a first frame."""
    episode, start = divmod(window, len(dataset.starts))
    scene = dataset.scenes(np.array([episode]), np.array([dataset.starts[start]]))
    alone = shadows(scene, dataset.canvas, Placement.factual(scene))[:, 0]
    return 1 - (1 - alone).prod(1).mean(0)


def show(total: Counts, windows: int) -> None:
    print(f"{windows} windows, {total.slots} slots that hold something, {total.objects} objects")
    rows = (
        ("slots of floor alone", total.discs),
        ("slots of an object and more floor than object", total.floors),
        ("slots of shadow more than of anything else", total.draped),
        ("slots that touch the edge", total.edges),
        ("of these, longer than 1.25 of their scale", total.streaks),
        ("objects that two slots hold above all others", total.doubled),
        ("slots that hold the most of two objects", total.shared),
        ("objects without a slot", total.missed),
    )
    for name, count in rows:
        print(f"{name:<50}{count:>8}")


if __name__ == "__main__":
    main()
