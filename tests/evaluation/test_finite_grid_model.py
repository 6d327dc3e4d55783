"""Covariance of our own model: against a plain computation, finer grids, the canvas' edge."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from covariance_oracles import (
    Blobs,
    blob_scenes,
    make_tiny_scenes,
    make_tiny_settings,
    only,
    record,
)
from torch import Tensor

from geoco import config, geometry
from geoco.evaluation import Factual, GeoCoModel
from geoco.evaluation.commands import FACTORS, MOVES
from geoco.evaluation.finite_grid import (
    CovarianceRow,
    choose_objects,
    measure_covariance,
    score_covariance,
)
from geoco.models import receptive_field
from geoco.models.decoders import Fields
from geoco.models.geoco import GeoCo
from geoco.models.slots import Slots

SCALINGS = tuple(factor for factor in FACTORS if factor != 1)


def plainly(model: GeoCo, slots: Slots) -> Tensor:
    """Raw logits, features and colours on the middle of the larger canvas, stacked."""
    drawn = model.decoder(slots, extent=3)
    assert drawn.features is not None
    assert drawn.plain_rgb is not None
    stacked = torch.cat((drawn.logits[:, :, None], drawn.plain_rgb, drawn.features), 2)
    count = stacked.shape[-1]
    points = torch.linspace(-3, 3, count, dtype=torch.float64)
    middle = (points.abs() < 1 + 1e-9).nonzero()[:, 0]
    return stacked[..., middle, :][..., middle]


def plain_final(model: GeoCo, stacked: Tensor, attention: Tensor) -> Tensor:
    logits, rgb, features = stacked[:, :, 0], stacked[:, :, 1:4], stacked[:, :, 4:]
    if model.selector is None:
        return logits
    return model.selector.refine(Fields(logits, None, rgb, features), attention)


def valid_domain(model: GeoCo, scale: Tensor, edited: Tensor, back: Tensor) -> Tensor:
    """Valid edited pixels all of whose contributors are valid, pixel by pixel."""
    size = model.size
    before, after = (
        receptive_field.is_complete(receptive_field.trace_alpha(model.decoder, one[None]))[0]
        for one in (scale, edited)
    )
    domain = torch.zeros(size, size, dtype=torch.bool)
    for row, column in np.ndindex(size, size):
        fine = bool(after[row] & after[column])
        for place in ((back[row, column] + 1) * (size - 1) / 2).tolist():
            fine &= -1e-5 < place < size - 1 + 1e-5
            near = [pixel for pixel in range(size) if abs(pixel - place) < 1 - 1e-5]
            fine = fine and all(bool(before[pixel]) for pixel in near)
        domain[row, column] = fine
    return domain


def relative_error(edited: Tensor, warped: Tensor, domain: Tensor) -> float:
    if domain.sum() < 16:
        return math.nan
    squares = (edited - warped)[domain].square().sum() / warped[domain].square().sum()
    return float(squares.sqrt())


def plain_measures(
    model: GeoCo, slots: Slots, attention: Tensor, index: int, command: tuple[int, int] | float
) -> dict[str, float]:
    """One edit of one scene, everything drawn anew and warped by `grid_sample`."""
    size = model.size
    position, scale = slots.position.clone(), slots.scale.clone()
    if isinstance(command, tuple):
        position[0, index] += torch.tensor(command).double() * 2 / (size - 1)
    else:
        scale[0, index] *= command
    factor = scale[0, index] / slots.scale[0, index]
    points = geometry.build_grid(size, size, dtype=torch.float64)
    back = (points - position[0, index]) / factor + slots.position[0, index]
    domain = (back.abs() <= 1 + 1e-7).all(-1)

    edited = Slots(slots.appearance, position, scale)
    before, after = plainly(model, slots), plainly(model, edited)
    old, new = (plain_final(model, part, attention)[0] for part in (before, after))
    native, moved = (model.decoder(part).logits[0, index] for part in (slots, edited))
    others = [j for j in range(len(new)) if j != index]
    rivals = old[others].exp().sum(0).log()
    field = torch.stack(
        (native, before[0, index, 0], old[index], torch.softmax(old, 0)[index], rivals)
    )
    native, raw, q, alpha, rivals = F.grid_sample(
        field[None], back[None], padding_mode="border", align_corners=True
    )[0]

    competing = new[others]
    reference = torch.sigmoid(q - competing.logsumexp(0))
    own, best = torch.softmax(new, 0)[index], competing.amax(0)
    actual, ideal = (new[index] > best) & domain, (q > best) & domain
    doubt = ((q - best).abs() <= (new[index] - q).abs()) & (actual | ideal)
    area = int(actual.sum() + ideal.sum())
    valid = valid_domain(model, slots.scale[0, index], scale[0, index], back)
    bound = torch.tanh((new[index] - q).abs() / 4)
    change = new[index] - q - (competing.logsumexp(0) - rivals)
    allowed = torch.tanh(change.abs() / 4) + (torch.sigmoid(q - rivals) - alpha).abs()
    return {
        "native": relative_error(moved, native, valid),
        "extended": relative_error(after[0, index, 0], raw, domain),
        "probability": float((own - reference)[domain].square().mean().sqrt()),
        "transported_probability": float((own - alpha)[domain].square().mean().sqrt()),
        "f1": 2 * int((actual & ideal).sum()) / area if area else math.nan,
        "f1_bound": 1 - int(doubt.sum()) / area if area else math.nan,
        "slack": float(((own - alpha).abs() - allowed)[domain].max()),
        "reference_slack": float(((own - reference).abs() - bound)[domain].max()),
    }


@torch.no_grad()
def plain_rows(model: GeoCo, factual: Factual, index: int) -> list[dict[str, list[float]]]:
    rows = []
    for family in (MOVES, SCALINGS):
        measures: dict[str, list[float]] = {}
        for window in range(len(factual)):
            encoded = factual.encoded(torch.tensor([window]))
            assert encoded.attention is not None
            slots = Slots(*(getattr(encoded.slots, part.name).double() for part in fields(Slots)))
            for command in family:
                values = plain_measures(model, slots, encoded.attention.double(), index, command)
                for name, value in values.items():
                    measures.setdefault(name, []).append(value)
        rows.append(measures)
    return rows


@pytest.mark.parametrize("selector", [True, False])
@pytest.mark.parametrize("index", [0, 2])
def test_our_model_against_a_plain_loop(selector: bool, index: int) -> None:
    model, factual = make_tiny_scenes(
        **({} if selector else {"selector": config.SelectorConfig(enabled=False)})
    )
    rows = measure_covariance(GeoCoModel(model), factual, only(factual, index), 2)
    for row, expected in zip(rows, plain_rows(model, factual, index), strict=True):
        slack, reference_slack = (max(expected.pop(n)) for n in ("slack", "reference_slack"))
        assert row.slack.transported_probability == pytest.approx(slack, rel=1e-3, abs=1e-15)
        assert row.slack.probability == pytest.approx(reference_slack, rel=1e-3, abs=1e-15)
        for name, values in expected.items():
            got = getattr(row, name)
            kept = [value for value in values if not math.isnan(value)]
            assert got.defined == len(kept), name
            expected_mean = np.mean(kept) if kept else math.nan
            assert got.value == pytest.approx(expected_mean, rel=1e-9, nan_ok=True), name
        assert (row.native.defined > 0) is (index == 2)  # the other is as large as the canvas
        assert row.probability.value > 1e-4
        assert row.f1.defined > 0


def test_the_selector_has_a_part_in_final_outputs() -> None:
    model, factual = make_tiny_scenes()
    drawing = GeoCoModel(model)
    first = measure_covariance(drawing, factual, only(factual, 0), 8)
    model.selector = None
    second = measure_covariance(GeoCoModel(model), factual, only(factual, 0), 8)
    for one, two in zip(first, second, strict=True):
        assert one.extended == two.extended
        assert one.probability != two.probability


def test_native_and_extended_differ_where_the_edge_is_felt() -> None:
    """The native domain is smaller; were it the whole canvas, the error would be larger."""

    class Careless(GeoCoModel):
        def validity(self, scale: Tensor) -> Tensor:
            return torch.ones_like(super().validity(scale))

    layers = ((17, 3), (33, 3))
    model, factual = make_tiny_scenes(decoder=config.DecoderConfig(broadcast=9, layers=layers))
    chosen = only(factual, 1)
    careful, careless = (
        measure_covariance(kind(model), factual, chosen, 8) for kind in (GeoCoModel, Careless)
    )
    for one, two in zip(careful, careless, strict=True):
        assert one.native.defined == two.native.defined == 12
        assert two.native.value > 1.5 * one.native.value


def test_other_decoders() -> None:
    """Ordinary convolutions reach as far at every scale; a warped canvas reaches nowhere."""
    for design, native in (("conventional", 12), ("canonical", 0)):
        settings = config.DecoderConfig(design=design, broadcast=9, layers=((17, 3), (33, 3)))
        model, factual = make_tiny_scenes(decoder=settings)
        for row in measure_covariance(GeoCoModel(model), factual, only(factual, 0), 8):
            assert row.native.defined == native
            assert row.extended.defined == 12


def test_single_precision_is_near_double() -> None:
    model, factual = make_tiny_scenes()
    double = measure_covariance(GeoCoModel(model), factual, only(factual, 1), 8)
    single = measure_covariance(GeoCoModel(model.float()), factual, only(factual, 1), 8)
    for one, two in zip(double, single, strict=True):
        assert one.extended.value == pytest.approx(two.extended.value, rel=1e-3)
        assert one.probability.value == pytest.approx(two.probability.value, rel=1e-2)
        assert one.extended.value != two.extended.value


@torch.no_grad()
def test_a_finer_decoder_is_more_covariant() -> None:
    """The same continuous decoder on two grids: taps as far apart in space, more pixels between."""
    errors = []
    slots, attention = blob_scenes(2)
    slots = replace(slots, appearance=torch.randn(2, 3, 8, generator=torch.manual_seed(5)))
    for fineness in (1, 2):
        torch.manual_seed(0)
        settings = config.DecoderConfig(
            broadcast=8 * fineness + 1,
            layers=((16 * fineness + 1, 3), (32 * fineness + 1, 3)),
            reference_scale=0.2 / fineness,
        )
        model = GeoCo(make_tiny_settings(decoder=settings)).double()
        model.decoder.place.weight.mul_(6)
        factual = record(Blobs(slots, attention, model.size), 2)
        errors.append(measure_covariance(GeoCoModel(model), factual, only(factual, 1), 8)[1])
    # Six pixels are whole ones on every grid that is rectified: only scalings are inexact.
    assert 0 < errors[1].extended.value < 0.7 * errors[0].extended.value
    assert errors[1].native.value < 0.7 * errors[0].native.value


def assert_same(one: CovarianceRow, two: CovarianceRow) -> None:
    for part in fields(CovarianceRow)[:-1]:
        first, second = getattr(one, part.name), getattr(two, part.name)
        assert first.value == pytest.approx(second.value, rel=1e-9, nan_ok=True)
        assert (first.defined, first.total) == (second.defined, second.total)


def test_the_compute_batch_changes_nothing() -> None:
    model, factual = make_tiny_scenes()
    chosen = only(factual, 1)
    rows = [measure_covariance(GeoCoModel(model), factual, chosen, batch) for batch in (1, 3, 64)]
    for other in rows[1:]:
        for one, two in zip(rows[0], other, strict=True):
            assert_same(one, two)


def test_our_model_through_the_protocol() -> None:
    model, factual = make_tiny_scenes()
    scores = score_covariance(GeoCoModel(model), factual, 8)
    chosen = choose_objects(GeoCoModel(model), factual, 8)
    position, scale = measure_covariance(GeoCoModel(model), factual, chosen, 8)
    assert scores.objects == int(chosen.sum()) > 0
    assert_same(scores.position, position)
    assert_same(scores.scale, scale)
