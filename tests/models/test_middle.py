"""The middle of a larger canvas, drawn without the rest of it."""

import pytest
import torch
from helpers import TINY_MODEL, build_decoder
from torch import Tensor

from geoco import config
from geoco.models import middle
from geoco.models.decoders import Fields
from geoco.models.geoco import GeoCo
from geoco.models.slots import Slots
from geoco.models.staitus import Staitus

LAYERS = ((17, 5), (33, 3), (33, 3))
DESIGNS = ["steered", "conventional", "canonical"]


def some_slots(dim: int) -> Slots:
    """Of all sizes, in an order that grouping by reach does not keep."""
    scale = torch.tensor([[0.3, 0.02, 1.9, 0.11], [0.45, 0.2, 0.07, 0.8]])
    return Slots(torch.randn(2, 4, dim), torch.rand(2, 4, 2) * 2 - 1, scale).to(torch.float64)


def cut(part: Tensor) -> Tensor:
    """The middle third of a canvas three times as wide, by coordinates."""
    points = torch.linspace(-3, 3, part.shape[-1], dtype=torch.float64)
    inner = (points.abs() < 1 + 1e-9).nonzero()[:, 0]
    return part[..., inner, :][..., inner]


def require_same_middle(part: Fields, whole: Fields) -> None:
    for name in ("logits", "rgb", "plain_rgb", "features"):
        here, there = getattr(part, name), getattr(whole, name)
        assert (here is None) == (there is None)
        if here is not None:
            # How a product is rounded may depend on how many columns it has.
            torch.testing.assert_close(here, cut(there), rtol=0, atol=1e-13)


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("alpha_only", [False, True])
# Without rounding margins up, one pixel too few shows.
@pytest.mark.parametrize("step", [1, 8])
def test_of_every_design(
    design: str, alpha_only: bool, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middle, "STEP", step)
    torch.manual_seed(0)
    decoder = build_decoder(design, 6, broadcast=9, layers=LAYERS).double()
    slots = some_slots(6)
    with torch.no_grad():
        part = decoder.decode_middle(slots, 3, alpha_only)
        require_same_middle(part, decoder(slots, 3, alpha_only))
    assert part.logits.shape == (2, 4, 33, 33)


def test_of_models() -> None:
    torch.manual_seed(0)
    closing = config.StaitusConfig(
        encoder=TINY_MODEL.encoder,
        slots=config.StaitusSlotsConfig(count=4, dim=8, update_dim=8, grid_dim=8),
        decoder=config.BaselineDecoderConfig(broadcast=4, layers=((8, 3), (16, 3))),
    )
    gated = Staitus(closing).double()
    torch.nn.init.zeros_(gated.activity.logit.bias)
    torch.nn.init.normal_(gated.activity.logit.weight)
    gated.set_gate_share(1.0)
    slots = some_slots(8)
    assert gated.compute_gates(slots.appearance).unique().numel() > 1  # some are closed
    for model in (GeoCo(TINY_MODEL).double(), gated):
        with torch.no_grad():
            require_same_middle(model.decode_middle(slots, 3), model.decode_slots(slots, 3))


def test_how_far_a_layer_reads() -> None:
    decoder = build_decoder("steered", 4, broadcast=9, layers=((17, 5), (17, 3)))
    scale = torch.tensor([0.1, 0.2, 0.25, 0.31])  # dilations of 0.5, 1, 1.25, 1.55
    wide, narrow = decoder.refine
    assert middle.measure_reach(wide, scale).tolist() == [2, 3, 3, 4]
    assert middle.measure_reach(narrow, scale).tolist() == [1, 2, 2, 2]


def test_margins_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = build_decoder("conventional", 4, broadcast=5, layers=((9, 3), (17, 5), (17, 3)))
    layers = decoder._group_layers()
    scale, seen = torch.tensor([0.2]), torch.tensor([1])
    monkeypatch.setattr(middle, "STEP", 1)
    # 1 and 3 + 2 beyond it on the finer grid; half of 6 and one more, and 2 on the coarser.
    assert middle.plan_margins(layers, scale, seen, 3).tolist() == [[6, 6]]
    monkeypatch.setattr(middle, "STEP", 4)
    assert middle.plan_margins(layers, scale, seen, 3).tolist() == [[8, 8]]
    monkeypatch.setattr(middle, "STEP", 64)  # there is no more than the whole canvas
    assert middle.plan_margins(layers, scale, seen, 3).tolist() == [[8, 16]]


def test_most_of_the_canvas_is_left_out() -> None:
    """With the paper's layers, of a slot as large as an object."""
    decoder = build_decoder("steered", 4, broadcast=16, layers=((32, 5), *[(64, 3)] * 4))
    seen = middle.measure_reach(decoder.color, torch.tensor([0.2]))
    margins = middle.plan_margins(decoder._group_layers(), torch.tensor([0.2]), seen, 3)
    assert margins.tolist() == [[16, 16]]  # of 31 and 63
