"""The feature head: its sums in loops, whose features count where, what it needs."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from helpers import write_dino
from torch import Tensor

from geoco import config, geometry
from geoco.errors import GeocoError
from geoco.models.build import build
from geoco.models.feature_head import FeatureHead, compute_pooling_matrix
from geoco.models.geoco import GeoCo
from geoco.models.slots import Slots
from geoco.training import losses
from geoco.training.curriculum import TERMS, Curriculum
from geoco.training.geoco_objective import GeoCoObjective
from geoco.training.objective import Draws

SLOTS, DIM, CHANNELS, SIZE, SIDE = 3, 4, 5, 8, 3


def build_head() -> FeatureHead:
    torch.manual_seed(0)
    head = FeatureHead(config.FeatureHeadConfig(hidden=8), DIM, CHANNELS, SIZE, SIDE)
    return head.double()


def draw_slots(batch: int = 2, time: int = 2) -> Slots:
    generator = torch.Generator().manual_seed(1)

    def draw(*shape: int) -> Tensor:
        return torch.randn(batch, time, SLOTS, *shape, generator=generator, dtype=torch.float64)

    return Slots(draw(DIM), draw(2) / 3, draw().abs() / 3 + 0.1)


@torch.no_grad()
def test_features_are_composed_by_the_alpha_of_each_token() -> None:
    head, slots = build_head(), draw_slots()
    alpha = torch.randn(2, 2, SLOTS, SIZE, SIZE).double().softmax(2)
    actual = head(slots, alpha)
    points = geometry.build_grid(SIDE, SIDE, dtype=torch.float64)
    for row, column in ((0, 0), (1, 2), (2, 1)):
        share = F.adaptive_avg_pool2d(alpha.flatten(0, 1), SIDE).unflatten(0, (2, 2))
        expected = torch.zeros(2, 2, CHANNELS).double()
        for slot in range(SLOTS):
            one = slots[:, :, slot]
            seen = (points[row, column] - one.position) / (5 * one.scale[..., None] + 1e-8)
            drawn = head.read(head.layers(one.appearance + head.place(seen)))
            expected += share[:, :, slot, row, column, None] * drawn
        torch.testing.assert_close(actual[:, :, row * SIDE + column], expected)


@pytest.mark.parametrize(("size", "side"), [(64, 24), (8, 3), (16, 16), (12, 4)])
def test_shares_of_tokens_are_averages_of_their_pixels(size: int, side: int) -> None:
    matrix = compute_pooling_matrix(size, side)
    alpha = torch.rand(2, size, size)
    pooled = F.adaptive_avg_pool2d(alpha[None], side)[0]
    torch.testing.assert_close(matrix @ alpha @ matrix.T, pooled)
    torch.testing.assert_close(matrix.sum(1), torch.ones(side))


def test_a_slot_without_alpha_draws_nothing() -> None:
    head, slots = build_head(), draw_slots()
    alpha = torch.zeros(2, 2, SLOTS, SIZE, SIZE).double()
    alpha[:, :, 0] = 1
    appearance = slots.appearance.clone().requires_grad_()
    head(Slots(appearance, slots.position, slots.scale), alpha).sum().backward()
    assert appearance.grad is not None
    assert appearance.grad[:, :, 0].abs().min() > 0
    assert not appearance.grad[:, :, 1:].any()


def test_feat_by_hand() -> None:
    """Targets have mean zero and variance one, token by token; the encoder learns nothing."""
    features = torch.tensor([[[[1.0, 3.0], [5.0, 5.0]]]], requires_grad=True)
    predicted = torch.tensor([[[[-1.0, 2.0], [0.0, 2.0]]]], requires_grad=True)
    value = losses.feat(predicted, features)
    assert value.item() == pytest.approx((0 + 1 + 0 + 4) / 4, abs=1e-4)
    value.backward()
    assert features.grad is None
    assert predicted.grad is not None
    assert predicted.grad.flatten().tolist() == pytest.approx([0, 0.5, 0, 1.0], abs=1e-4)


# -- in a model ------------------------------------------------------------------------------------


def load(folder: Path, *changes: str) -> config.Config:
    write_dino(folder)
    size = "backbone: {width: 24, depth: 2, heads: 2}"
    return config.load(
        "configs/geoco-movi-like-features.yaml",
        [
            f"model.encoder={{kind: dino, weights: {folder}, dim: 8, {size}}}",
            "model.slots={count: 3, dim: 8, update_dim: 8, grid_dim: 8}",
            "model.decoder={broadcast: 4, layers: [[16,3]]}",
            "model.temporal={width: 8, heads: 2, hidden: 8}",
            "model.feature_head={hidden: 8, weight: 0.25}",
            *changes,
        ],
    )


def test_what_it_adds_and_reaches(tmp_path: Path) -> None:
    """The same loss from features that are kept; all of the core learns, the backbone does not."""
    settings = load(tmp_path)
    torch.manual_seed(0)
    model = build(settings.model)
    assert isinstance(model, GeoCo)
    objective = GeoCoObjective(model, settings.train)
    assert objective.terms == (*TERMS, "feat")
    plan = Curriculum(settings, model.cold_scale).plan(0)
    video = torch.rand(2, 2, 3, 16, 16)
    draws = Draws.sample(torch.Generator().manual_seed(0), 2, 2, 3)
    weights = torch.tensor([plan.weights[term] for term in TERMS])
    rest = (video, torch.arange(2), draws, weights, plan.mode)
    made = objective.compute(*rest)
    kept = model.compute_features(video.flatten(0, 1)).unflatten(0, (2, 2))
    again = objective.compute(*rest, features=kept)
    assert again.by_name["feat"].item() == pytest.approx(made.by_name["feat"].item(), rel=1e-6)
    expected = made.by_name["rec"].item() + 0.25 * made.by_name["feat"].item()
    assert made.total.item() == pytest.approx(expected, rel=1e-6)
    assert model.feature_head is not None

    def take_gradients(backward: object) -> dict[str, Tensor]:
        model.zero_grad()
        backward()  # type: ignore[operator]
        return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}

    whole = take_gradients(lambda: objective.compute(*rest).backward())
    rec = take_gradients(lambda: objective.compute(*rest).backward_alone("rec", 1.0))
    feat = take_gradients(lambda: objective.compute(*rest).backward_alone("feat", 1.0))
    assert {name.split(".")[0] for name in feat} >= {"encoder", "attention", "feature_head"}
    assert not any(name.startswith("encoder.backbone") for name in whole)
    assert not any(name.startswith("feature_head") for name in rec)
    assert feat["decoder.alpha.weight"].abs().max() > 0  # alpha is shared
    assert "decoder.fuse.weight" not in feat  # colours are not
    for name, gradient in whole.items():
        parts = rec.get(name, torch.zeros(())) + 0.25 * feat.get(name, torch.zeros(()))
        torch.testing.assert_close(gradient, parts.expand_as(gradient), rtol=1e-3, atol=1e-7)


def test_it_changes_nothing_else(tmp_path: Path) -> None:
    """Weights begin as without it, and pictures do not know of it."""
    models = []
    for enabled in ("true", "false"):
        torch.manual_seed(0)
        models.append(build(load(tmp_path, f"model.feature_head.enabled={enabled}").model))
    one, other = models
    assert not any(name.startswith("feature_head") for name, _ in other.named_parameters())
    for name, value in other.state_dict().items():
        assert torch.equal(value, one.state_dict()[name]), name
    video, generator = torch.rand(1, 2, 3, 16, 16), torch.Generator()
    images = [m(video, generator.manual_seed(3)).image for m in models]
    assert torch.equal(images[0], images[1])


def test_it_needs_a_frozen_encoder() -> None:
    with pytest.raises(GeocoError, match=r"feature_head needs a frozen encoder: set encoder\.kind"):
        config.load(None, ["model.feature_head.enabled=true"])
