"""Finite-grid covariance: models known beforehand, domains, the population, what is refused."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from covariance_oracles import (
    TOKENS,
    Blobs,
    Rigid,
    Slopes,
    blob_scenes,
    gaussian_attention,
    only,
    record,
)
from evaluation_oracles import Discs, Numbered, scenes, video_major
from torch import Tensor

from geoco.errors import GeocoError
from geoco.evaluation import Encoded, covariance_bounds
from geoco.evaluation.commands import MOVES
from geoco.evaluation.covariance_bounds import Inequality
from geoco.evaluation.extended_canvas import full_precision
from geoco.evaluation.finite_grid import (
    check_inequality,
    choose_objects,
    measure_covariance,
    score_covariance,
)
from geoco.evaluation.interfaces import Decoded, ExtendedModel
from geoco.evaluation.windows import compute_factual
from geoco.models import compositing
from geoco.models.decoders import Fields
from geoco.models.slots import Slots


def test_exact_covariance_is_measured_as_none() -> None:
    model = Slopes(*blob_scenes(3))
    assert isinstance(model, ExtendedModel)
    factual = record(model, 3)
    for row in measure_covariance(model, factual, only(factual, 1), 8):
        for error in (row.native, row.extended, row.probability):
            assert error.value < 1e-7  # the record's positions are float32, the map's are not
            assert (error.defined, error.total) == (12, 12)
        assert (row.f1.value, row.f1_bound.value) == (1.0, 1.0)


def test_a_covariant_model_from_frames_to_rows() -> None:
    model = Blobs(*blob_scenes(4))
    scores = score_covariance(model, record(model, 4), 8)
    assert (scores.windows, scores.objects) == (4, 4)
    position, scale = scores.position, scores.scale
    # Six pixels are whole ones: nothing is interpolated.
    assert position.extended.value < 1e-6
    assert position.f1.value == 1.0
    assert 1e-6 < scale.extended.value < 1e-2
    assert scale.f1.value > 0.95
    for row in (position, scale):
        assert row.native == row.extended  # valid everywhere, and drawn the same
        assert row.f1.defined == row.f1.total == 16
        assert row.f1_bound.value <= row.f1.value
        assert row.slack.probability < 1e-12
        assert row.slack.f1 <= 0


def test_a_model_that_does_not_obey() -> None:
    honest, rigid = Blobs(*blob_scenes(3)), Rigid(*blob_scenes(3))
    for good, bad in zip(
        *(measure_covariance(m, (f := record(m, 3)), only(f, 2), 8) for m in (honest, rigid)),
        strict=True,
    ):
        assert bad.extended.value > 0.1 > 10 * good.extended.value
        assert bad.native.value > 0.1
        assert bad.f1.value < 0.9 < good.f1.value
        assert bad.probability.value > 10 * good.probability.value


def test_the_error_falls_with_the_square_of_the_spacing() -> None:
    errors = []
    for size in (33, 65):
        model = Blobs(*blob_scenes(3), size)
        factual = record(model, 3)
        errors.append(measure_covariance(model, factual, only(factual, 1), 8)[1].extended.value)
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.2)


# -- measurement domains -------------------------------------------------------------------------

MARGIN = 3  # pixels that the oracle below calls invalid


class Spoilt(Slopes):
    """Wrong by five wherever a loop over pixels says that nothing is measured, or just inside."""

    def __init__(self, slots: Slots, attention: Tensor, into: int = 0) -> None:
        super().__init__(slots, attention, 32)
        self.into = into

    def native_logits(self, slots: Slots) -> Tensor:
        return self.spoil_logits(slots, MARGIN)

    def extended_fields(self, slots: Slots) -> Fields:
        return Fields(self.spoil_logits(slots, 0))

    def validity(self, scale: Tensor) -> Tensor:
        line = torch.ones(len(scale), self.size, dtype=torch.float64)
        line[:, :MARGIN] = line[:, -MARGIN:] = 0.5
        return line

    def spoil_logits(self, slots: Slots, margin: int) -> Tensor:
        logits, size = self.draw(slots), self.size
        first = Slots(*(getattr(self.scenes, part.name)[0] for part in fields(Slots)))
        for number in range(len(logits)):
            same = (slots.appearance[number] == first.appearance).all(-1)
            before = int(same.nonzero()[0])
            old, new = first.position[before].double(), slots.position[number].double()
            factor = float(slots.scale[number] / first.scale[before])
            if factor == 1 and torch.equal(old, new):
                continue
            for row, column in np.ndindex(size, size):
                here = torch.tensor([column, row]).double() * 2 / (size - 1) - 1
                pixel = ((here - new) / factor + old + 1) * (size - 1) / 2
                ends = (pixel >= margin - 1e-4) & (pixel <= size - 1 - margin + 1e-4)
                own = min(row, column) >= margin and max(row, column) <= size - 1 - margin
                measured = bool(ends.all()) and own
                if not measured or (self.into and row == self.into):
                    logits[number, row, column] += 5.0
        return logits


def test_only_the_domain_is_measured() -> None:
    slots, attention = blob_scenes(1)
    for into, clean in ((0, True), (16, False)):
        model = Spoilt(slots, attention, into)
        factual = record(model, 1)
        for row in measure_covariance(model, factual, only(factual, 1), 8):
            for error in (row.native, row.extended):
                assert (error.value < 1e-6) is clean
                assert error.defined == 4


def test_small_domains_are_not_averaged() -> None:
    class Narrow(Blobs):
        """Three by three valid pixels about the middle."""

        def validity(self, scale: Tensor) -> Tensor:
            line = torch.zeros(len(scale), self.size, dtype=torch.float64)
            line[:, 31:34] = 1
            return line

    model = Narrow(*blob_scenes(2))
    factual = record(model, 2)
    for row in measure_covariance(model, factual, only(factual, 1), 8):
        assert (row.native.defined, row.native.total) == (0, 8)
        assert math.isnan(row.native.value)
        assert row.extended.defined == 8


# -- our model against a plain computation ---------------------------------------------------------


# -- population ------------------------------------------------------------------------------------


def random_population(windows: int) -> Blobs:
    """Objects of all kinds: large, small, faint, near the edge, attending alike or everywhere."""
    draw = torch.Generator().manual_seed(4)

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(windows, *shape, generator=draw)

    slots = Slots(
        torch.cat((torch.zeros(windows, 1, 1), uniform(-1.0, 6.0, 3, 1)), 1),
        torch.cat((torch.zeros(windows, 1, 2), uniform(-0.75, 0.75, 3, 2)), 1),
        torch.cat((torch.full((windows, 1), 0.8), uniform(0.04, 0.4, 3)), 1),
    )
    spread = slots.scale * torch.cat((torch.ones(windows, 1), uniform(0.2, 1.2, 3)), 1)
    return Blobs(slots, gaussian_attention(slots.position, spread), 32)


def reasons(logits: np.ndarray, slots: Slots, attention: np.ndarray, slot: int) -> list[str]:
    """The paper's list for one slot of one window, in plain numbers: what it fails."""
    size, count = logits.shape[-1], len(logits)
    alpha = np.exp(logits - logits.max(0))
    alpha /= alpha.sum(0)
    owner = alpha.argmax(0)

    def foreground(j: int) -> list[str]:
        area, scale = int((owner == j).sum()), float(slots.scale[j])
        checks = {"small": area > 20, "large": area < 0.6 * size**2}
        checks |= {"faint": alpha[j].max() > 0.3, "scale": scale < 0.3}
        return [name for name, passed in checks.items() if not passed]

    failed = foreground(slot)
    if all(not foreground(j) for j in range(count)):
        failed.append("background")
    mine = attention[slot]
    effective = 1 / (mine**2).sum()
    if effective < 2:
        failed.append("narrow")
    if effective > 0.75 * len(mine):
        failed.append("wide")
    if confidence(attention, slot) <= 0.5:
        failed.append("overlap")
    for axis in range(2):
        p = float(slots.position[slot, axis])
        variance = 0.0
        for token in range(len(mine)):
            at = (token // TOKENS, token % TOKENS)[1 - axis]
            variance += mine[token] * (2 * at / (TOKENS - 1) - 1 - p) ** 2
        if abs(p) + 2.5 * variance**0.5 > 1 - 2 * 2 / (size - 1):
            failed.append("edge")
            break
    return failed


def confidence(attention: np.ndarray, slot: int) -> float:
    norms = np.linalg.norm(attention, axis=1)
    cosines = attention @ attention[slot] / (norms * norms[slot])
    return 1 - max(c for j, c in enumerate(cosines) if j != slot)


def test_the_population_is_the_papers() -> None:
    windows = 120
    model = random_population(windows)
    factual = record(model, windows)
    chosen = choose_objects(model, factual, 7)
    alone: set[str] = set()
    empty = rivals = 0
    for window in range(windows):
        slots = Slots(*(getattr(model.scenes, part.name)[window] for part in fields(Slots)))
        logits = model.draw(slots).numpy()
        attention = model.attention[window].double().numpy()
        failed = [reasons(logits, slots, attention, slot) for slot in range(4)]
        alone |= {names[0] for names in failed if len(names) == 1}
        qualified = [slot for slot, names in enumerate(failed) if not names]
        best = max(qualified, key=lambda slot: confidence(attention, slot), default=None)
        empty += best is None
        rivals += len(qualified) > 1 and best != qualified[0]
        assert chosen[window].nonzero()[:, 0].tolist() == ([] if best is None else [best])
    assert empty > 0
    assert rivals > 0
    # Each of these turned somebody away who was fit in all other ways.
    assert alone >= {"small", "scale", "narrow", "overlap", "edge"}


def test_final_logits_decide_who_qualifies() -> None:
    """The factual decoding is asked, which has the selector in it, not the raw fields."""

    class Emptied(Blobs):
        def decode(self, encoded: Encoded, slots: Slots) -> Decoded:
            rgb, logits = super().decode(encoded, slots)
            logits[:, 1] -= 100
            return rgb, logits

    model = Emptied(*blob_scenes(3))
    assert choose_objects(model, record(model, 3), 8).tolist() == [[False, False, True]] * 3


def test_a_part_of_the_windows() -> None:
    model = Blobs(*blob_scenes(6))
    factual = record(model, 6, videos=2)
    heard: list[tuple[int, int]] = []
    some = score_covariance(model, factual, 8, 3, lambda *news: heard.append(news))
    assert (some.windows, some.objects, some.position.f1.total) == (3, 3, 12)
    assert heard == [(0, 3), (2, 3), (3, 3)]  # eight edits at a time, four of an object
    chosen = choose_objects(model, factual, 8, 3)
    assert chosen.any(1).nonzero()[:, 0].tolist() == [0, 1, 3]  # the first of both videos, then on
    assert score_covariance(model, factual, 8, 99).windows == 6


def test_nobody_qualifies() -> None:
    slots, attention = blob_scenes(2)
    model = Blobs(replace(slots, scale=slots.scale + 0.3), attention)
    heard: list[tuple[int, int]] = []
    scores = score_covariance(model, record(model, 2), 8, progress=lambda *news: heard.append(news))
    assert (scores.windows, scores.objects) == (2, 0)
    assert heard == [(2, 2)]
    for row in (scores.position, scores.scale):
        assert (row.native.defined, row.native.total) == (0, 0)
        assert math.isnan(row.f1.value)
        assert math.isnan(row.slack.probability)


# -- numbers, precision, refusals ------------------------------------------------------------------


def test_the_batch_bounds_what_is_drawn_at_once() -> None:
    model = Blobs(*blob_scenes(1))
    factual = record(model, 1)
    for batch, tile in ((1, 1), (6, 2), (64, 4)):  # three slots a scene, a ninth of them at once
        model.largest_tile = 0
        measure_covariance(model, factual, only(factual, 1), batch)
        assert model.largest_tile == tile


def test_full_precision_whatever_is_switched_on_outside() -> None:
    model = Blobs(*blob_scenes(1))
    factual = record(model, 1)
    settings = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    try:
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
        with torch.autocast("cpu", torch.bfloat16):
            score_covariance(model, factual, 8)
            assert torch.is_autocast_enabled("cpu")
        with pytest.raises(KeyError), full_precision():
            raise KeyError
        assert torch.get_float32_matmul_precision() == "high"
        assert torch.backends.cudnn.allow_tf32 is True
    finally:
        torch.set_float32_matmul_precision(settings[0])
        torch.backends.cudnn.allow_tf32 = settings[1]
    assert set(model.precisions) == {("highest", False, False)}


@pytest.mark.parametrize(
    "name",
    [
        "bound_probability",
        "bound_transported_probability",
        "bound_membership",
        "bound_membership_f1",
    ],
)
def test_a_violated_proposition_is_an_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One pixel, or one F1, on the wrong side."""
    original = getattr(covariance_bounds, name)

    def tamper(*arguments: object) -> Inequality:
        inequality = original(*arguments)
        left, right = inequality.left.double().clone(), inequality.right.double()
        if left.dim() == 1:
            left[1] = right[1] + 1e-12
        else:
            left[1, 32, 32] = right[1, 32, 32] + 1e-9
        return Inequality(left, right)

    model = Rigid(*blob_scenes(1))
    factual = record(model, 1)
    measure_covariance(model, factual, only(factual, 1), 8)
    monkeypatch.setattr(covariance_bounds, name, tamper)
    with pytest.raises(ArithmeticError, match=r"does not hold: .* is not at most .* slack"):
        measure_covariance(model, factual, only(factual, 1), 8)


def test_the_error_names_the_worst_place() -> None:
    nan = math.nan
    left = torch.tensor([[0.1, 0.9, nan], [0.2, 0.3, nan]], dtype=torch.float64)
    right = torch.tensor([[0.2, 0.5, nan], [0.2, 0.1, nan]], dtype=torch.float64)
    with pytest.raises(ArithmeticError, match=r"it does not hold: 0.9 is not at most 0.5, the"):
        check_inequality("it", Inequality(left, right), 0.0)
    assert check_inequality("it", Inequality(left, right), 0.5).tolist() == pytest.approx(
        [0.4, 0.2]
    )
    with pytest.raises(ArithmeticError, match="nan is not at most"):
        check_inequality("it", Inequality(left, right.nan_to_num(1.0)), 0.5)
    nothing = torch.full((1, 2), nan, dtype=torch.float64)
    assert check_inequality("it", Inequality(nothing, nothing), 0.0).tolist() == [-math.inf]


def test_logits_must_be_finite() -> None:
    class Endless(Blobs):
        def native_logits(self, slots: Slots) -> Tensor:
            return super().native_logits(slots) * math.inf

    model = Endless(*blob_scenes(1))
    factual = record(model, 1)
    with pytest.raises(GeocoError, match="finite"):
        measure_covariance(model, factual, only(factual, 1), 8)


def test_refusals() -> None:
    discs = Discs(scenes(2))
    with pytest.raises(GeocoError, match="Discs cannot draw on a larger canvas"):
        score_covariance(discs, compute_factual(discs, Numbered(video_major(1, 2)), 2), 2)
    slots, attention = blob_scenes(2)
    blind = Blobs(slots, None)
    with pytest.raises(GeocoError, match="attention"):
        score_covariance(blind, record(blind, 2), 2)
    model = Blobs(slots, attention)
    with pytest.raises(GeocoError, match="at least one window, got 0"):
        score_covariance(model, record(model, 2), 2, 0)


def test_the_reference_scene_has_edited_competitors() -> None:
    """By hand: alpha against sigma(q - b_e), not against the factual alpha moved along."""
    model = Slopes(*blob_scenes(1))
    factual = record(model, 1)
    drawn = model.draw(factual.encoded(torch.tensor([0])).slots)[0]
    position = measure_covariance(model, factual, only(factual, 1), 8)[0]
    alpha = compositing.compute_alpha(drawn)[1]
    gone = []
    for x, y in MOVES:
        shift = torch.roll(alpha, (y, x), (0, 1))
        own = torch.roll(drawn[1], (y, x), (0, 1))
        edited = torch.softmax(torch.stack((drawn[0], own, drawn[2])), 0)[1]
        rows = slice(max(y, 0), 64 + min(y, 0))
        columns = slice(max(x, 0), 64 + min(x, 0))
        gone.append((edited - shift)[rows, columns].square().mean().sqrt().item())
    assert position.transported_probability.value == pytest.approx(np.mean(gone), rel=1e-5)
    assert position.probability.value < 1e-7
