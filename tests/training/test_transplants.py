"""Transplant pairs: fitness by its conditions one at a time, choices by their rules."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from geoco import geometry
from geoco.config.training import SlotQualityConfig
from geoco.models import slot_quality
from geoco.models.slots import Binding, Slots, compute_attention_moments
from geoco.training import transplants

SIDE, SIZE = 16, 64


def blob(x: float, y: float, spread: float, side: int) -> Tensor:
    points = geometry.build_grid(side, side)
    away = (points - torch.tensor([x, y])).square().sum(-1)
    return torch.exp(-away / (2 * spread**2))


def scene(*centers: tuple[float, float, float]) -> tuple[Tensor, Binding]:
    """Objects as Gaussian hills of logits and of attention over a background slot, the last."""
    hills = [20 * blob(x, y, spread, SIZE) - 6 for x, y, spread in centers]
    logits = torch.stack([*hills, torch.zeros(SIZE, SIZE)])[None]
    attention = torch.stack(
        [*(blob(x, y, spread, SIDE) for x, y, spread in centers), torch.ones(SIDE, SIDE)]
    )
    attention = (attention / attention.sum((-2, -1), keepdim=True)).flatten(1)[None]
    points = geometry.build_grid(SIDE, SIDE).flatten(0, 1)
    position, scale = compute_attention_moments(attention, points)
    slots = Slots(torch.zeros(1, len(centers) + 1, 8), position, scale)
    return logits, Binding(slots, attention, torch.zeros(1, len(centers) + 1, 8))


def valid(quality: SlotQualityConfig, *centers: tuple[float, float, float]) -> list[bool]:
    return slot_quality.assess_slots(*scene(*centers), quality).valid[0].tolist()


def test_a_plain_object_is_fit_and_background_is_not() -> None:
    logits, binding = scene((-0.4, 0, 0.12), (0.4, 0.1, 0.12))
    judged = slot_quality.assess_slots(logits, binding, SlotQualityConfig())
    assert judged.foreground.tolist() == [[True, True, False]]
    assert judged.valid.tolist() == [[True, True, False]]
    assert judged.positioned.tolist() == [[True, True, False]]


@pytest.mark.parametrize(
    "quality",
    [
        SlotQualityConfig(fewest_pixels=2000),
        SlotQualityConfig(most_coverage=0.001),
        SlotQualityConfig(largest_scale=0.05),
        SlotQualityConfig(fewest_tokens=200),
        SlotQualityConfig(most_tokens=0.001),
        SlotQualityConfig(deviations=8),
        SlotQualityConfig(border=25),
        SlotQualityConfig(most_overlap=1e-9),
        SlotQualityConfig(coherent=True, least_compactness=100),
        SlotQualityConfig(coherent=True, fewest_coherent_tokens=200),
    ],
    ids=lambda quality: str(quality.model_dump(exclude_defaults=True)),
)
def test_each_condition_can_refuse(quality: SlotQualityConfig) -> None:
    objects = ((-0.4, 0.0, 0.12), (0.4, 0.1, 0.12))
    assert valid(SlotQualityConfig(coherent=True), *objects) == [True, True, False]
    assert valid(quality, *objects) == [False, False, False]


def test_coherence_refuses_what_others_cover() -> None:
    touching = ((-0.1, 0.0, 0.12), (0.1, 0.0, 0.12))
    loose = SlotQualityConfig(coherent=True, most_overlap=1, least_agreement=0.3)
    assert valid(loose, *touching) == [True, True, False]
    strict = loose.model_copy(update={"least_agreement": 0.95})
    assert valid(strict, *touching) == [False, False, False]


def test_an_object_at_the_edge_is_unfit_but_has_a_position() -> None:
    logits, binding = scene((-0.9, 0, 0.12), (0.4, 0.1, 0.12))
    judged = slot_quality.assess_slots(logits, binding, SlotQualityConfig())
    assert judged.valid.tolist() == [[False, True, False]]
    assert judged.positioned.tolist() == [[True, True, False]]
    strict = slot_quality.assess_slots(logits, binding, SlotQualityConfig(position_coverage=0.001))
    assert strict.positioned.tolist() == [[False, False, False]]


def test_confidence_is_one_less_the_largest_cosine() -> None:
    logits, binding = scene((-0.2, 0, 0.12), (0.2, 0, 0.12))
    a, b, rest = binding.attention[0]
    cosine = [float(u @ v / (u.norm() * v.norm())) for u, v in ((a, b), (a, rest), (b, rest))]
    confidence = slot_quality.assess_slots(logits, binding, SlotQualityConfig()).confidence[0]
    expected = [1 - max(cosine[0], cosine[1]), 1 - max(cosine[0], cosine[2]), 1 - max(cosine[1:])]
    torch.testing.assert_close(confidence, torch.tensor(expected), atol=1e-6, rtol=0)


def test_a_scene_without_background_gives_no_pairs() -> None:
    logits, binding = scene((-0.4, 0, 0.12), (0.4, 0.1, 0.12))
    without = Binding(
        Slots(*(part[:, :2] for part in vars(binding.slots).values())),
        binding.attention[:, :2],
        binding.gate[:, :2],
    )
    judged = slot_quality.assess_slots(
        logits[:, :2], without, SlotQualityConfig(most_coverage=1, largest_scale=2)
    )
    assert judged.foreground.all()
    assert not judged.valid.any()
    assert not judged.positioned.any()


def test_nothing_judged_has_a_gradient() -> None:
    logits, binding = scene((-0.4, 0, 0.12))
    live = replace(binding, attention=binding.attention.clone().requires_grad_())
    judged = slot_quality.assess_slots(logits.requires_grad_(), live, SlotQualityConfig())
    assert not judged.confidence.requires_grad


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(2, 4))
def test_choices_obey_the_rules(seed: int, scenes: int, slots: int) -> None:
    generator = torch.Generator().manual_seed(seed)

    def rand(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator)

    fit, scale, confidence = (
        rand(scenes, slots) < 0.6,
        0.05 + rand(scenes, slots),
        rand(scenes, slots),
    )
    source = torch.randint(0, 3, (scenes,), generator=generator)
    order, choice = rand(scenes, slots), rand(scenes)
    chosen = transplants.choose_pairs(
        fit, scale, confidence, source, fit, scale, confidence, source, order, choice, (0.6, 1.67)
    )
    for b in range(scenes):
        options = {
            i: [
                (c, j)
                for c in range(scenes)
                for j in range(slots)
                if fit[c, j]
                and source[c] != source[b]
                and 0.6 <= float(scale[b, i] / scale[c, j]) <= 1.67
            ]
            for i in range(slots)
            if fit[b, i]
        }
        able = [i for i in options if options[i]]
        if not able:
            assert chosen.confidence[b] == 0
            continue
        recipient = min(able, key=lambda i: float(order[b, i]))
        assert chosen.recipient[b] == recipient
        listed = options[recipient]
        c, j = listed[int(float(choice[b]) * len(listed))]
        assert chosen.donor[b] == c * slots + j
        torch.testing.assert_close(
            chosen.confidence[b], confidence[b, recipient] * confidence[c, j]
        )


def test_donors_are_uniform() -> None:
    fit = torch.tensor([[True, False], [True, True]])
    scale = torch.ones(2, 2)
    donors = []
    for choice in torch.linspace(0, 0.999, 100):
        chosen = transplants.choose_pairs(
            fit, scale, scale, torch.tensor([0, 1]), fit, scale, scale, torch.tensor([0, 1]),
            torch.zeros(2, 2), choice.repeat(2), (0.6, 1.67),
        )  # fmt: skip
        donors.append(int(chosen.donor[0]))
    assert donors.count(2) == donors.count(3) == 50
