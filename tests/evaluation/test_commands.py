"""Models with commands of their own, and models whose slots have no position and no scale."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from evaluation_oracles import Discs, Numbered, scenes, video_major
from torch import Tensor

from geoco.errors import GeocoError
from geoco.evaluation import (
    CommandModel,
    Encoded,
    commands,
    decode_edits,
    editing,
    evaluate,
    make_unplaced_slots,
    windows,
)
from geoco.evaluation.factual import score_factual
from geoco.evaluation.interfaces import Decoded
from geoco.models.slots import Slots


class Told(Discs):
    """Discs that are moved and resized on command; geometry that is set is taken as it is."""

    def command(self, encoded: Encoded, index: int, move: Tensor, factor: Tensor) -> Decoded:
        slots = encoded.slots
        position, scale = slots.position.clone(), slots.scale.clone()
        position[:, index] += move
        scale[:, index] *= factor
        return self.draw(Slots(slots.appearance, position, scale))


class Hidden(Discs):
    """The same discs, but their place and size are part of the appearance."""

    def encode(self, frames: Tensor, starts: Tensor) -> Encoded:
        known = super().encode(frames, starts).slots
        parts = (known.appearance, known.position, known.scale[..., None])
        return Encoded(make_unplaced_slots(torch.cat(parts, -1)), None)

    def decode(self, encoded: Encoded, slots: Slots) -> Decoded:
        return self.draw(self.read_slots(slots))

    @staticmethod
    def read_slots(slots: Slots) -> Slots:
        appearance, position, scale = slots.appearance.split((2, 2, 1), -1)
        return Slots(appearance, position, scale[..., 0])


class HiddenTold(Hidden):
    """And obeys commands."""

    def command(self, encoded: Encoded, index: int, move: Tensor, factor: Tensor) -> Decoded:
        known = self.read_slots(encoded.slots)
        position, scale = known.position.clone(), known.scale.clone()
        position[:, index] += move
        scale[:, index] *= factor
        return self.draw(replace(known, position=position, scale=scale))


def test_who_takes_commands() -> None:
    assert isinstance(Told(scenes(1)), CommandModel)
    assert isinstance(HiddenTold(scenes(1)), CommandModel)
    assert not isinstance(Discs(scenes(1)), CommandModel)


def test_commands_and_set_geometry_give_the_same_records() -> None:
    """Set at float64, told at float32: the same discs to well below a pixel."""
    dataset = Numbered(video_major(3, 2))
    set_, told = (kind(scenes(6, objects=2)) for kind in (Discs, Told))
    one, two = (
        editing.record_edits(m, windows.compute_factual(m, dataset, 4), 4) for m in (set_, told)
    )
    for kind in ("position", "scale", "transplant"):
        first, second = getattr(one, kind), getattr(two, kind)
        assert len(first) == len(second) > 0
        assert abs(first.f1 - second.f1).max() < 0.02
    # And it was told: nothing but the factual scenes and the transplants was decoded.
    assert told.decoded == 6 + len(two.transplant)


def test_without_geometry_masks_say_where_slots_are() -> None:
    """Centroid and radius of a disc stand for its position and, but for a factor, its scale."""
    dataset = Numbered(video_major(3, 2))
    known = windows.compute_factual(Discs(scenes(6, objects=2)), dataset, 4)
    hidden = windows.compute_factual(HiddenTold(scenes(6, objects=2)), dataset, 4)
    assert known.explicit
    assert not hidden.explicit
    assert torch.equal(known.anchor, known.slots.position)
    assert torch.equal(known.extent, known.slots.scale)
    place = hidden.valid
    assert (hidden.anchor - known.slots.position)[place].abs().max() < 0.5 * 2 / 63
    # A disc of radius R has RMS radius R / sqrt 2.
    radius = known.slots.appearance[..., 0] * known.slots.scale / 2**0.5
    assert (hidden.extent / radius - 1)[place].abs().max() < 0.03
    records = editing.record_edits(HiddenTold(scenes(6, objects=2)), hidden, 4)
    assert records.position.f1[records.position.valid].min() == pytest.approx(1.0)
    assert records.scale.f1[records.scale.valid].mean() > 0.95


def test_without_geometry_or_commands_only_transplants_are_asked() -> None:
    dataset = Numbered(video_major(3, 2))
    model = Hidden(scenes(6, objects=2))
    factual = windows.compute_factual(model, dataset, 4)
    records = editing.record_edits(model, factual, 4)
    assert len(records.position) == len(records.scale) == 0
    assert len(records.transplant) > 0
    scores = editing.score_editing(records)
    assert scores.all.position.edits == 0
    assert scores.all.transplant.edits > 0
    with pytest.raises(GeocoError, match="position edits need slots with a position"):
        list(decode_edits.decode_edits(model, factual, commands.build_moves(factual), 4))


def test_scores_that_need_geometry_are_undefined_without_it() -> None:
    sources = video_major(3, 2)
    model = Hidden(scenes(6, objects=2))
    plain = windows.compute_factual(model, Numbered(sources), 4)
    masks = plain.masks.to(torch.uint8).argmax(1).to(torch.uint8)
    dataset = Numbered(sources, masks=masks)
    factual = windows.compute_factual(model, dataset, 4)
    scores = score_factual(model, factual, 4)
    assert scores.position_error.defined == 0
    assert scores.calibration.linear != scores.calibration.linear
    assert scores.reference_errors is not None
    assert scores.reference_errors.position_to_reference.defined == 0
    assert scores.reference_errors.decoded_to_reference.defined == 12
    assert scores.reference_errors.decoded_to_reference.value == 0


def test_tables_that_need_geometry_say_so(tmp_path: Path) -> None:
    model, dataset = Hidden(scenes(6)), Numbered(video_major(3, 2))
    with pytest.raises(GeocoError, match="stability needs slots with a position and a scale"):
        evaluate(model, dataset, tmp_path, "hidden", ("stability",))
    results = evaluate(model, dataset, tmp_path, "hidden", ("factual", "editing"))
    assert set(results.tables) == {"factual", "editing"}
