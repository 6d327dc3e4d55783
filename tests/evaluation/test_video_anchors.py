"""Which object of a video is edited, and through which slot: masks painted by hand."""

from dataclasses import replace

import numpy as np
import torch
from helpers_tubes import Boxes, boxes, make_videos, record_tubes
from torch import Tensor

from geoco.evaluation.reference_tracks import Anchor, count_fewest_pixels, find_anchors
from geoco.evaluation.windows import Factual
from geoco.models.slots import Slots


def record(labels: Tensor, masks: Tensor, background: int = 0) -> Factual:
    time, slots, height, width = masks.shape
    large = masks.sum((-2, -1)) >= count_fewest_pixels(height, width)
    return Factual(
        window=np.zeros(time, dtype=np.int64),
        source=("a",) * time,
        slots=Slots(
            torch.zeros(time, slots, 1), torch.zeros(time, slots, 2), torch.ones(time, slots)
        ),
        attention=None,
        masks=masks,
        background=torch.full((time,), background),
        valid=large & (torch.arange(slots) != background),
        frame=torch.zeros(time, 3, height, width, dtype=torch.uint8),
        image=torch.zeros(time, 3, height, width),
        psnr=torch.zeros(time, dtype=torch.float64),
        reference=labels,
        length=time,
    )


def find_anchor(factual: Factual) -> Anchor | None:
    (anchor,) = find_anchors(factual, [0])
    return anchor


def paint_labels(time: int, *areas: tuple[int, int, slice]) -> Tensor:
    """Labels on 64 x 64: in frame t, part of row 2n is labelled n."""
    labels = torch.zeros(time, 64, 64, dtype=torch.uint8)
    for frame, label, columns in areas:
        labels[frame, 2 * label, columns] = label
    return labels


def assign_slots(labels: Tensor, *slots: int) -> Tensor:
    """Ownership in which label n belongs to the n-th of `slots`; slot 0 is the rest."""
    owner = torch.zeros_like(labels)
    for label, slot in enumerate(slots, 1):
        owner[labels == label] = slot
    return owner[:, None] == torch.arange(4)[:, None, None]


def test_the_object_of_largest_area_over_time_is_anchored_where_it_is_largest() -> None:
    first = (0, 1, slice(0, 50))  # the largest in one frame, but only 50 in total
    labels = paint_labels(
        3, first, (0, 2, slice(0, 12)), (1, 2, slice(0, 30)), (2, 2, slice(0, 30))
    )
    masks = torch.cat(
        (
            assign_slots(labels[:1], 1, 3),
            assign_slots(labels[1:2], 3, 2),
            assign_slots(labels[2:], 2, 1),
        )
    )
    assert find_anchor(record(labels, masks)) == Anchor(label=2, frame=1, slot=2)
    equal = paint_labels(2, (0, 1, slice(0, 20)), (1, 2, slice(0, 20)))
    assert find_anchor(record(equal, assign_slots(equal, 3, 1))) == Anchor(label=1, frame=0, slot=3)


def test_association_is_one_to_one() -> None:
    """The larger object shares most with slot 1, which the smaller one needs more."""
    labels = paint_labels(2, (0, 1, slice(0, 50)), (0, 2, slice(0, 22)))
    owner = torch.zeros_like(labels)
    owner[0, 2, :24], owner[0, 2, 24:43], owner[0, 4, :22] = 1, 2, 1
    masks = owner[:, None] == torch.arange(4)[:, None, None]
    assert find_anchor(record(labels, masks)) == Anchor(label=1, frame=0, slot=2)


def test_who_is_not_eligible() -> None:
    twenty, nineteen = (paint_labels(2, (1, 1, slice(0, count))) for count in (20, 19))

    def divide(mine: int) -> Tensor:
        """Slot 2 has so many of the object's pixels, slots 1 and 3 have the others."""
        owner = torch.zeros_like(twenty)
        owner[1, 2, :mine], owner[1, 2, mine:15], owner[1, 2, 15:20] = 2, 1, 3
        return owner[:, None] == torch.arange(4)[:, None, None]

    assert find_anchor(record(twenty, divide(10))) == Anchor(1, 1, 2)
    assert find_anchor(record(nineteen, divide(10))) is None  # the object is too small
    assert find_anchor(record(twenty, divide(9))) is None  # its slot's support is
    assert find_anchor(record(twenty, divide(10), background=2)) is None
    assert find_anchor(record(paint_labels(2), divide(10))) is None  # there is no object
    closed = torch.tensor([True, True, False, True]).expand(2, 4)
    assert find_anchor(replace(record(twenty, divide(10)), active=closed)) is None
    assert [count_fewest_pixels(n, n) for n in (64, 128, 16, 24)] == [10, 40, 1, 2]


def test_the_background_is_the_slot_of_largest_alpha() -> None:
    model = Boxes(boxes([[12, 12], [50, 10], [44, 44]]))
    assert record_tubes(model, make_videos(model), 4).eligible.tolist() == [True, False, True]
