"""Selective ownership: the minimal transfer, where it may act, what the network sees of a pixel."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from geoco import config
from geoco.models import compositing
from geoco.models.decoders import Fields
from geoco.models.selector import (
    PROJECTED,
    Domain,
    Selector,
    apply_transfer,
    compute_densities,
    compute_required_transfer,
    find_domain,
)

SETTINGS = config.SelectorConfig(least_area=3)
# Of the scenes that `scene` makes.
BACKGROUND = 1
DIM = 6


def scene(
    slots: int = 4, size: int = 12, side: int = 4, kind: torch.dtype = torch.float64
) -> tuple[Fields, Tensor]:
    """Two random scenes in which one slot owns most of the border, and their attention."""
    torch.manual_seed(0)
    leading = (2, slots)
    logits = torch.randn(*leading, size, size, dtype=kind)
    logits[:, BACKGROUND] += 0.8
    fields = Fields(
        logits,
        torch.rand(*leading, 3, size, size, dtype=kind),
        torch.rand(*leading, 3, size, size, dtype=kind),
        torch.randn(*leading, DIM, size, size, dtype=kind),
    )
    return fields, torch.rand(*leading, side * side, dtype=kind).softmax(-1)


def build_selector() -> tuple[Selector, Fields, Tensor, Domain]:
    """With a network whose scores lie on both sides of the threshold."""
    fields, attention = scene()
    selector = Selector(SETTINGS, DIM).double()
    domain = find_domain(fields.logits, SETTINGS)
    with torch.no_grad():
        selector.judge[4].weight *= 30
        selector.judge[4].bias += 1 - selector(fields, attention, domain)[domain.deployed].median()
    return selector, fields, attention, domain


# -- the transfer ----------------------------------------------------------------------------------


def test_required_transfer_by_hand() -> None:
    owner = torch.tensor([1.0, 1.0, -3.0, 0.0, 2.0])
    other = torch.tensor([0.0, 0.9, -5.0, -torch.inf, 1.0])
    actual = compute_required_transfer(owner, other, 0.5)
    assert actual.tolist() == pytest.approx([0.75, 1.4, 0, 0.25, 1.5])


LOGIT = st.floats(-10, 10)


@settings(deadline=None)
@given(LOGIT, LOGIT, LOGIT, st.floats(0, 2), st.floats(0, 1))
def test_no_smaller_transfer_satisfies_both_margins(
    owner: float, background: float, other: float, margin: float, share: float
) -> None:
    def wins(amount: float, slack: float) -> bool:
        lead = background + amount - max(owner - amount, other)
        return lead >= margin - slack

    gaps = torch.tensor([owner - background, other - background], dtype=torch.float64)
    required = compute_required_transfer(gaps[0], gaps[1], margin).item()
    assert required >= 0
    assert wins(required, 1e-9)
    smaller = required * share
    if smaller < required - 1e-9:
        assert not wins(smaller, 0)


@pytest.mark.parametrize("slots", [2, 4])
def test_background_wins_by_the_margin(slots: int) -> None:
    fields, _ = scene(slots)
    domain = find_domain(fields.logits, SETTINGS)
    assert domain.deployed.any()
    moved = apply_transfer(fields.logits, domain, domain.deployed, math.inf)
    background = moved[:, BACKGROUND]
    rivals = torch.cat((moved[:, :BACKGROUND], moved[:, BACKGROUND + 1 :]), 1).amax(1)
    lead = (background - rivals)[domain.deployed]
    torch.testing.assert_close(lead, torch.full_like(lead, SETTINGS.margin), rtol=0, atol=1e-12)
    still = ~domain.deployed.unsqueeze(1).expand_as(moved)
    assert torch.equal(moved[still], fields.logits[still])


@pytest.mark.parametrize("cap", [0.3, torch.tensor(0.3)])
def test_the_cap_binds(cap: Tensor | float) -> None:
    logits = torch.tensor([2.0, 1.0, 0.0])[:, None, None].expand(3, 1, 2).clone()
    domain = Domain(
        background=torch.tensor(1),
        owner=torch.zeros(1, 2, dtype=torch.int64),
        required=torch.tensor([[0.5, 0.2]]),
        deployed=torch.ones(1, 2, dtype=torch.bool),
    )
    moved = apply_transfer(logits, domain, domain.deployed, cap)
    expected = torch.tensor([[1.7, 1.8], [1.3, 1.2], [0.0, 0.0]])
    torch.testing.assert_close(moved[:, 0], expected)
    left = apply_transfer(logits, domain, torch.tensor([[True, False]]), cap)
    torch.testing.assert_close(left[:, 0, 0], expected[:, 0])
    assert torch.equal(left[:, 0, 1], logits[:, 0, 1])


def test_gradients_pass_the_transfer_as_if_it_were_not_there() -> None:
    fields, _ = scene()
    logits = fields.logits.clone().requires_grad_()
    domain = find_domain(logits, SETTINGS)
    assert not domain.required.requires_grad
    moved = apply_transfer(logits, domain, domain.deployed, math.inf)
    assert not torch.equal(moved, logits)
    weight = torch.randn_like(moved)
    (gradient,) = torch.autograd.grad((weight * moved).sum(), logits)
    assert torch.equal(gradient, weight)


# -- where it may act ------------------------------------------------------------------------------


def corner(area: int = 4, height: float = 1.0) -> Tensor:
    """Slot 1 all over the canvas, and slot 0 in `area` pixels ahead of it by `height`."""
    logits = torch.zeros(3, 8, 8, dtype=torch.float64)
    logits[0], logits[2] = -9, -9
    logits[0].view(-1)[:area] = height
    return logits


def test_domain_by_hand() -> None:
    limits = config.SelectorConfig(least_area=3, least_peak=0.5)
    domain = find_domain(corner(), limits)
    assert domain.background.item() == 1
    assert domain.deployed.sum() == 4
    assert domain.deployed.view(-1)[:4].all()
    assert domain.required.view(-1)[:4].tolist() == pytest.approx([0.5005] * 4)
    assert (domain.owner == 0).sum() == 4


def test_an_owner_must_have_pixels() -> None:
    assert find_domain(corner(area=4), config.SelectorConfig(least_area=3)).deployed.any()
    assert not find_domain(corner(area=4), config.SelectorConfig(least_area=4)).deployed.any()


def test_an_owner_must_be_sure_somewhere() -> None:
    sure = config.SelectorConfig(least_area=0, least_peak=0.9)
    assert not find_domain(corner(height=1.0), sure).deployed.any()
    logits = corner(height=1.0)
    logits[0, 0, 0] = 3.0  # alpha of 0.95 at this pixel makes the others eligible
    assert find_domain(logits, sure).deployed.sum() == 4


def test_the_transfer_must_be_small() -> None:
    limits = config.SelectorConfig(least_area=0, label_limit=2.0, margin=0.0)
    assert find_domain(corner(height=4.0), limits).deployed.sum() == 4
    assert not find_domain(corner(height=4.1), limits).deployed.any()
    # Of two foreground slots ahead, the second binds before the first does.
    second = corner(height=3.0)
    second[2].view(-1)[:4] = torch.tensor([1.9, 2.0, 2.1, 2.2])
    assert find_domain(second, limits).deployed.view(-1)[:4].tolist() == [
        True,
        True,
        False,
        False,
    ]


def test_background_keeps_its_own_pixels() -> None:
    fields, _ = scene()
    domain = find_domain(fields.logits, config.SelectorConfig(least_area=0, least_peak=0))
    expected = compositing.find_selector_background(compositing.compute_alpha(fields.logits))
    assert torch.equal(domain.background, expected)
    owned = compositing.compute_masks(fields.logits)[:, BACKGROUND]
    assert owned.any()
    assert not (domain.deployed & owned).any()


def test_with_two_slots_no_third_one_binds() -> None:
    domain = find_domain(corner()[:2], config.SelectorConfig(least_area=3))
    assert domain.required.view(-1)[:4].tolist() == pytest.approx([0.5005] * 4)
    assert domain.required.isfinite().all()


# -- the network -----------------------------------------------------------------------------------


def test_parameters() -> None:
    selector = Selector(config.SelectorConfig())
    sizes = [
        sum(p.numel() for p in layer.parameters()) for layer in (selector.project, *selector.judge)
    ]
    assert [size for size in sizes if size] == [520, 896, 528, 17]
    assert sum(p.numel() for p in selector.parameters()) == 1961
    assert selector.cap.item() == 2.0
    assert "cap" in selector.state_dict()


def resample_at(grid: Tensor, row: int, column: int, size: int) -> float:
    """Bilinear from a square grid, endpoint to endpoint."""
    side = len(grid)
    y, x = row * (side - 1) / (size - 1), column * (side - 1) / (size - 1)
    top, left = min(int(y), side - 2), min(int(x), side - 2)
    actual = 0.0
    for i, j in ((0, 0), (0, 1), (1, 0), (1, 1)):
        share = (1 - abs(y - top - i)) * (1 - abs(x - left - j))
        actual += share * grid[top + i, left + j].item()
    return actual


def attention_density(attention: Tensor, size: int) -> Tensor:
    side = round(len(attention) ** 0.5)
    grid = attention.view(side, side)
    pixels = [[resample_at(grid, y, x, size) for x in range(size)] for y in range(size)]
    actual = torch.tensor(pixels, dtype=torch.float64)
    return actual / actual.sum() * size**2


def test_densities() -> None:
    fields, attention = scene()
    alpha = compositing.compute_alpha(fields.logits)
    actual = compute_densities(alpha, attention)
    ones = torch.ones(2, 4, dtype=torch.float64)
    torch.testing.assert_close(actual.alpha.mean((-2, -1)), ones)
    torch.testing.assert_close(actual.attention.mean((-2, -1)), ones)
    torch.testing.assert_close(actual.attention[1, 2], attention_density(attention[1, 2], 12))
    torch.testing.assert_close(actual.alpha[1, 2], alpha[1, 2] / alpha[1, 2].sum() * 144)
    even = compute_densities(torch.ones_like(alpha), torch.ones_like(attention))
    torch.testing.assert_close(even.ratio, torch.ones_like(alpha))


def test_a_slot_that_owns_nothing_has_a_density_all_the_same() -> None:
    alpha = torch.zeros(1, 4, 4)
    actual = compute_densities(alpha, torch.zeros(1, 4))
    assert not actual.alpha.any()
    assert torch.equal(actual.ratio, torch.ones_like(alpha))


def by_loops(selector: Selector, fields: Fields, attention: Tensor, domain: Domain) -> Tensor:
    """The 27 inputs, one pixel at a time."""
    assert fields.plain_rgb is not None
    assert fields.features is not None
    weight, bias = selector.project.weight, selector.project.bias
    scenes, slots, size, _ = fields.logits.shape
    actual = torch.zeros(scenes, size, size, 27, dtype=torch.float64)
    for n in range(scenes):
        background = int(domain.background[n])
        alpha = fields.logits[n].exp() / fields.logits[n].exp().sum(0)
        for y in range(size):
            for x in range(size):
                logits = fields.logits[n, :, y, x]
                owner = int(logits.argmax())
                others = [k for k in range(slots) if k not in (owner, background)]
                here = alpha[:, y, x]
                alpha_density = here[owner] / alpha[owner].sum() * size**2
                attended = attention_density(attention[n, owner], size)[y, x]
                scalars = [
                    here[owner],
                    here[background],
                    max([here[k] for k in others], default=torch.tensor(0.0)),
                    logits[owner] - logits[background],
                    max([logits[k] for k in others], default=logits[background])
                    - logits[background],
                    alpha_density,
                    attended,
                    math.log(alpha_density / attended),
                ]
                feature = fields.features[n, :, :, y, x]
                rgb = fields.plain_rgb[n, :, :, y, x]
                actual[n, y, x, :8] = torch.tensor(scalars)
                actual[n, y, x, 8:16] = weight @ feature[owner] + bias
                actual[n, y, x, 16:24] = weight @ (feature[owner] - feature[background])
                actual[n, y, x, 24:] = rgb[owner] - rgb[background]
    return actual


@pytest.mark.parametrize("slots", [2, 4])
@torch.no_grad()
def test_evidence_against_loops(slots: int) -> None:
    fields, attention = scene(slots, size=9, side=3)
    selector = Selector(SETTINGS, DIM).double()
    domain = find_domain(fields.logits, SETTINGS)
    actual = selector.gather_evidence(fields, attention, domain)
    expected = by_loops(selector, fields, attention, domain)
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-7)
    # And the network on it is a perceptron at every pixel.
    hidden = actual[1, 3, 4]
    for layer in (0, 2):
        hidden = selector.judge[layer].weight @ hidden + selector.judge[layer].bias
        hidden = hidden * torch.sigmoid(hidden)
    score = selector.judge[4].weight[0] @ hidden + selector.judge[4].bias[0]
    torch.testing.assert_close(selector(fields, attention, domain)[1, 3, 4], score)


def test_without_attention_a_move_does_not_show_in_it() -> None:
    """An owner that was moved has its attention left behind; a blind selector cannot tell."""
    selector, fields, attention, domain = build_selector()
    elsewhere = attention.flip(-1)
    seen = selector.gather_evidence(fields, attention, domain)
    assert not torch.equal(seen, selector.gather_evidence(fields, elsewhere, domain))
    selector.settings = SETTINGS.model_copy(update={"attention": False})
    blind = selector.gather_evidence(fields, attention, domain)
    torch.testing.assert_close(blind, selector.gather_evidence(fields, elsewhere, domain))
    kept = [number for number in range(blind.shape[-1]) if number not in (6, 7)]
    torch.testing.assert_close(blind[..., kept], seen[..., kept])
    assert (blind[..., 6:8] == 0).all()
    assert (seen[..., 6:8] != 0).any()


def test_scores_reach_the_selector_alone() -> None:
    selector, fields, attention, _ = build_selector()
    parts = [fields.logits, fields.rgb, fields.plain_rgb, fields.features, attention]
    inputs = [part.clone().requires_grad_() for part in parts if part is not None]
    live = Fields(*inputs[:4])
    score = selector(live, inputs[4], find_domain(inputs[0], SETTINGS))
    parameters = list(selector.parameters())
    actual = torch.autograd.grad(score.square().sum(), [*inputs, *parameters], allow_unused=True)
    assert actual[:5] == (None,) * 5
    for gradient in actual[5:]:
        assert gradient is not None
        assert (gradient != 0).any()
    refined = selector.refine(live, inputs[4])
    assert not torch.equal(refined, inputs[0])
    actual = torch.autograd.grad(refined.sum(), [*inputs, *parameters], allow_unused=True)
    assert actual[0] is not None
    assert (actual[0] == 1).all()
    assert actual[1:] == (None,) * (len(actual) - 1)


# -- all of it -------------------------------------------------------------------------------------


@torch.no_grad()
def test_refine_moves_what_it_accepts() -> None:
    selector, fields, attention, domain = build_selector()
    selector.cap.fill_(0.4)
    score = selector(fields, attention, domain)
    accepted = domain.deployed & (1 / (1 + (-score).exp()) > 0.73)
    assert accepted.any()
    assert (domain.deployed & ~accepted).any()
    expected = fields.logits.clone()
    for n, y, x in accepted.nonzero().tolist():
        amount = min(domain.required[n, y, x].item(), 0.4)
        expected[n, domain.owner[n, y, x], y, x] -= amount
        expected[n, domain.background[n], y, x] += amount
    torch.testing.assert_close(selector.refine(fields, attention), expected)


@torch.no_grad()
def test_a_cap_of_zero_switches_it_off() -> None:
    selector, fields, attention, _ = build_selector()
    selector.cap.zero_()
    assert torch.equal(selector.refine(fields, attention), fields.logits)


@torch.no_grad()
def test_slots_may_come_in_any_order() -> None:
    selector, fields, attention, _ = build_selector()
    order = torch.tensor([2, 0, 3, 1])
    parts = (fields.logits, fields.rgb, fields.plain_rgb, fields.features)
    shuffled = Fields(*(part[:, order] for part in parts if part is not None))
    plain = selector.refine(fields, attention)
    assert not torch.equal(plain, fields.logits)
    torch.testing.assert_close(selector.refine(shuffled, attention[:, order]), plain[:, order])


@torch.no_grad()
def test_leading_dimensions_are_scenes() -> None:
    selector, fields, attention, _ = build_selector()
    parts = (fields.logits, fields.rgb, fields.plain_rgb, fields.features)
    together = selector.refine(fields, attention)
    one = Fields(*(part[1] for part in parts if part is not None))
    torch.testing.assert_close(selector.refine(one, attention[1]), together[1])
    clip = Fields(*(part[:, None] for part in parts if part is not None))
    assert torch.equal(selector.refine(clip, attention[:, None]), together[:, None])


@torch.no_grad()
def test_condensed_fields_are_refined_alike() -> None:
    """Also one slot after the other, as the editor decodes them; the features are gone."""
    selector, fields, attention, _ = build_selector()
    whole = selector.refine(fields, attention)
    assert not torch.equal(whole, fields.logits)
    condensed = selector.condense(fields)
    assert condensed.features is None
    assert condensed.projected is not None
    assert condensed.projected.shape[2] == PROJECTED
    torch.testing.assert_close(selector.refine(condensed, attention), whole)
    replaced = condensed.with_slot(2, selector.condense(fields[:, 2:3]))
    torch.testing.assert_close(selector.refine(replaced, attention), whole)
    other = condensed.with_slot(2, selector.condense(fields[:, 3:4]))
    assert not torch.equal(selector.refine(other, attention), whole)


def test_half_precision_features_under_autocast() -> None:
    fields, attention = scene(kind=torch.float32)
    assert fields.features is not None
    rounded = fields.features.bfloat16()
    torch.manual_seed(1)
    selector = Selector(SETTINGS, DIM)
    domain = find_domain(fields.logits, SETTINGS)
    with torch.autocast("cpu", torch.bfloat16):
        actual = selector(replace(fields, features=rounded), attention, domain)
        refined = selector.refine(replace(fields, features=rounded), attention)
        actual.sum().backward()
    assert actual.dtype == refined.dtype == torch.float32
    # Features are projected in their own precision; all else is the arithmetic of float32.
    with torch.no_grad():
        for part in selector.project.parameters():
            part.copy_(part.bfloat16())
        evidence = selector.gather_evidence(
            replace(fields, features=rounded.float()), attention, domain
        )
        scalars, projected, color = evidence.split((8, 16, 3), -1)
        own, difference = projected.split(8, -1)
        other = (own - difference).bfloat16().float()
        own = own.bfloat16().float()
        exact = selector.judge(torch.cat((scalars, own, own - other, color), -1)).squeeze(-1)
    torch.testing.assert_close(actual.detach(), exact, atol=1e-3, rtol=0)
    assert (selector.judge(evidence).squeeze(-1) - actual).abs().max() < 1e-2


def test_nothing_waits_for_values() -> None:
    """Tensors without values pass through, so a CUDA graph can record it."""
    fields, attention = scene(kind=torch.float32)
    selector = Selector(SETTINGS, DIM)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        parts = (fields.logits, fields.rgb, fields.plain_rgb, fields.features)
        fake = Fields(*(mode.from_tensor(part) for part in parts if part is not None))
        refined = selector.refine(fake, mode.from_tensor(attention))
    assert refined.shape == fields.logits.shape
