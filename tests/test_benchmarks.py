"""What benchmarks count, where it can be known."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from geoco.ops import scale_steered_conv2d

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
import training_parts


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
