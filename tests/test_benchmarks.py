"""What benchmarks count, where it can be known."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from geoco.ops import scale_steered_conv2d

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
import following
import selector
import training_parts

from geoco.teacher import Labels


def test_products_are_counted_as_those_of_an_ordinary_convolution() -> None:
    """Both ways; the gradient of the dilation needs no products of its own in the least case."""
    assert training_parts is not None  # which registers the formulas
    x = torch.randn(2, 3, 8, 6, requires_grad=True)
    weight = torch.randn(5, 3, 3, 3, requires_grad=True)
    bias = torch.zeros(5, requires_grad=True)
    counts = []
    for run in (
        lambda: F.conv2d(x, weight, bias, padding=1),
        lambda: scale_steered_conv2d(x, weight, bias, torch.tensor([0.7, 1.6])),
    ):
        with FlopCounterMode(display=False) as there:
            y = run()
        with FlopCounterMode(display=False) as back:
            y.sum().backward()
        counts.append((there.get_total_flops(), back.get_total_flops()))
    assert counts[0] == counts[1] == (2 * 2 * 8 * 6 * 3 * 5 * 9, 2 * 2 * 2 * 8 * 6 * 3 * 5 * 9)


def test_pixels_of_the_selector_are_counted_by_hand() -> None:
    """Slot 0 is the background; slot 1 has an object and its shadow, slot 2 a shadow alone."""
    before = torch.zeros(1, 4, 12, dtype=torch.int64)
    before[0, 0, :10], before[0, 1, :5], before[0, 3] = 1, 1, 2
    after = before.clone()
    after[0, 0, 8:10] = 0  # given back: one pixel of shadow, one of the object
    after[0, 1, 0] = 2  # goes to another object: not given back
    floor = torch.ones(1, 4, 12, dtype=torch.bool)
    floor[0, 0, :9] = False
    positive, protected = torch.zeros(2, 1, 4, 12)
    positive[0, 0, 8], positive[0, 0, 9] = 0.5, 0.25
    protected[0, 1, :2] = 1.0
    found = selector.counted(
        before, after, torch.tensor([0]), floor, Labels(positive, protected), 3
    )
    assert found == selector.Counts(27, 18, 2, 1, 0.75, 0.25, 2, 2, 2, 1)
    assert (found + found).owned_floor == 36


def test_tubes_by_hand() -> None:
    """Slot 2 follows object 1 but for a pixel, slot 0 has half of object 2; a crumb is none."""
    labels = torch.zeros(2, 4, 8, dtype=torch.uint8)
    labels[:, 0], labels[:, 1], labels[0, 3, 0] = 1, 2, 3
    slots = torch.zeros(2, 3, 4, 8, dtype=torch.bool)
    slots[:, 2, 0] = True
    slots[1, 2, 0, 0] = False
    slots[0, 0, 1] = True
    found = following.tube_f1(slots, labels)
    assert found.tolist() == [2 * 15 / 31, 2 * 8 / 24]
