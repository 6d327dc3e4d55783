"""What slots hold in truth, on `solids`: floor, the picture's edge, and objects without their own.

    python benchmarks/masks.py [MODEL] [--windows 100] [--spread] [--results FOLDER]

The windows are those of `geoco eval --windows`, or, to see all times of the videos, some spread
over the whole split. Floor is what no object covers, shadows among it; a shadow is floor that has
lost a tenth of its light. With the results of `geoco eval` on these windows the editing scores are
also computed without the slots that hold nothing but floor.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from tally import Tally
from torch import Tensor

from geoco import edit_maps, metrics
from geoco.config import SolidsConfig
from geoco.data import SolidsDataset
from geoco.evaluation import adapter
from geoco.evaluation.editing import EditRecords, Records, score_editing
from geoco.evaluation.run import read_records
from geoco.evaluation.windows import Factual, choose_windows, compute_factual_of
from geoco.models import pretrained
from geoco.solids import Placement
from geoco.solids.floor import compute_shadows

FLOOR_ALONE = 0.95  # share of a slot's pixels
DARK = 0.1  # share of the light that a shadow takes away
LONG = 1.25  # radius over scale of a mask that runs along the edge
BATCH = 8


@dataclass(frozen=True)
class Counts(Tally):
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


def count_slots(
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
    floor = measure_share(masks, labels == 0)
    shadow = measure_share(masks, (labels == 0) & (taken > DARK))
    edge = touches_edge(masks)
    long = metrics.support_moments(masks).radius > LONG * scale
    large = held.sum(1) >= edit_maps.FEWEST_PIXELS
    most = torch.zeros_like(held, dtype=torch.bool)  # the object that each slot is of
    if len(names):
        most.scatter_(0, held.argmax(0, keepdim=True), True)
    owners = most & valid & (held >= edit_maps.FEWEST_PIXELS)
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


def measure_share(
    masks: Bool[Tensor, "*window slot height width"], of: Bool[Tensor, "*window height width"]
) -> Float[Tensor, "*window slot"]:
    """The share of every slot's pixels that is something."""
    return (masks & of.unsqueeze(-3)).sum((-2, -1)) / masks.sum((-2, -1)).clamp(min=1)


def touches_edge(
    masks: Bool[Tensor, "*window slot height width"],
) -> Bool[Tensor, "*window slot"]:
    return masks[..., [0, -1], :].any(-1).any(-1) | masks[..., [0, -1]].any(-1).any(-1)


def drop_slots(records: EditRecords, gone: Bool[np.ndarray, "window slot"]) -> EditRecords:
    """The edits of all objects but those of some slots; windows are those of the dataset."""

    def keep_rows(some: Records) -> Records:
        return some.where(~gone[some.window, some.slot])

    return EditRecords(
        keep_rows(records.position), keep_rows(records.scale), keep_rows(records.transplant)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="geoco-solids", help="a shipped name or a run")
    parser.add_argument("--windows", type=int, default=100)
    parser.add_argument("--spread", action="store_true")
    parser.add_argument("--results", type=Path, help="of geoco eval, on the same windows")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    loaded = pretrained.load(arguments.model)
    model = adapter(loaded.model, loaded.config)
    dataset = SolidsDataset(SolidsConfig(), "val")
    windows = choose_windows(dataset, arguments.windows, arguments.spread)
    factual = compute_factual_of(model, dataset, windows, BATCH)
    assert factual.reference is not None
    total = Counts()
    for row, window in enumerate(windows.tolist()):
        total += count_slots(
            factual.masks[row],
            factual.valid[row],
            factual.slots.scale[row],
            factual.reference[row],
            measure_shade(dataset, window),
        )
    print_counts(total, len(windows))
    discs = factual.valid & (measure_share(factual.masks, factual.reference == 0) > FLOOR_ALONE)
    print_geometry(factual, discs)
    if arguments.results is not None:
        print_edits(read_records(arguments.results), factual, discs, len(dataset))


def measure_shade(dataset: SolidsDataset, window: int) -> Float[Tensor, "height width"]:
    """The share of the clean floor's light that all shadows take together, in a first frame."""
    episode, start = divmod(window, len(dataset.starts))
    scene = dataset.extract_scenes(np.array([episode]), np.array([dataset.starts[start]]))
    alone = compute_shadows(scene, dataset.canvas, Placement.from_scenes(scene))[:, 0]
    return 1 - (1 - alone).prod(1).mean(0)


def print_counts(total: Counts, windows: int) -> None:
    print(f"{windows} windows, {total.slots} slots that hold something, {total.objects} objects")
    rows = (
        ("slots of floor alone", total.discs),
        ("slots of an object and more floor than object", total.floors),
        ("slots of shadow more than of anything else", total.draped),
        ("slots that touch the edge", total.edges),
        (f"of these, longer than {LONG} of their scale", total.streaks),
        ("objects that two slots hold above all others", total.doubled),
        ("slots that hold the most of two objects", total.shared),
        ("objects without a slot", total.missed),
    )
    for name, count in rows:
        print(f"{name:<50}{count:>8}")


def print_geometry(factual: Factual, discs: Bool[Tensor, "window slot"]) -> None:
    """Place and size of all objects, and of fewer."""
    off = (factual.slots.position - factual.moments.center).norm(dim=-1)
    scopes = (
        ("all", factual.valid),
        ("without floor alone", factual.valid & ~discs),
        (
            "and without what touches the edge",
            factual.valid & ~discs & ~touches_edge(factual.masks),
        ),
    )
    print(f"\n{'':<36}{'slots':>8}{'position to mask':>18}{'R2 of radius and scale':>24}")
    for name, kept in scopes:
        fit = metrics.calibration(
            factual.slots.scale[kept].numpy(), factual.moments.radius[kept].numpy()
        )
        print(f"{name:<36}{int(kept.sum()):>8}{float(off[kept].mean()):>18.4f}{fit.linear:>24.2f}")


def print_edits(
    records: EditRecords, factual: Factual, discs: Bool[Tensor, "window slot"], windows: int
) -> None:
    """The editing scores with and without slots of floor alone."""
    here, gone = np.zeros((2, windows, discs.shape[1]), dtype=np.bool_)
    here[factual.window], gone[factual.window] = factual.valid.numpy(), discs.numpy()
    there = np.zeros_like(here)
    there[records.position.window, records.position.slot] = True
    print(f"\nslots that only these results, or only these masks, have: {(here ^ there).sum()}")
    print(f"{'':<36}{'F1 of moves, sizes, transplants':>32}{'E_dp':>8}{'slopes':>16}{'D_app':>8}")
    for name, some in (("all", records), ("without floor alone", drop_slots(records, gone))):
        scores = score_editing(some)
        kinds = (scores.all.position, scores.all.scale, scores.all.transplant)
        f1 = " ".join(f"{kind.f1.estimate:>10.2f}" for kind in kinds)
        moved, taken = scores.interior.position.error, scores.interior.transplant.error
        assert moved is not None
        assert taken is not None
        curves = scores.interior.curves
        slopes = f"{curves.radius.value:>8.4f}{curves.coverage.value:>8.4f}"
        print(f"{name:<36}{f1}{moved.value:>8.4f}{slopes}{taken.value:>8.4f}")


if __name__ == "__main__":
    main()
