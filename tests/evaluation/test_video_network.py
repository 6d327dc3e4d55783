"""Whole-video editing of a network, against a loop over edits and frames."""

import math
from dataclasses import fields
from itertools import product

import numpy as np
import pytest
import torch
from evaluation_oracles import Discs, scenes
from helpers_tubes import (
    POSITION,
    SCALE,
    TRANSPLANT,
    Moving,
    discs,
    make_videos,
    record_tubes,
)
from torch import Tensor

from geoco import config
from geoco.data import SolidsDataset
from geoco.evaluation.adapters import GeoCoModel
from geoco.evaluation.commands import FACTORS, IDENTITY, MOVES
from geoco.evaluation.interfaces import (
    OneSlotModel,
    VideoModel,
)
from geoco.evaluation.reference_tracks import find_anchors
from geoco.evaluation.video import (
    TubeEdits,
)
from geoco.evaluation.video_rows import choose_first_windows, compute_video_factual
from geoco.evaluation.windows import SEED, VIDEO_SEED, draw_starting_positions
from geoco.models.geoco import GeoCo
from geoco.models.slots import Binding, Slots


def make_tiny_model(temporal: bool = False) -> GeoCoModel:
    """Without training, but loud enough that slots differ; also the temporal initializer."""
    torch.manual_seed(1)
    settings = config.ModelConfig(
        encoder=config.ConvEncoderConfig(width=8),
        slots=config.SlotsConfig(count=4, dim=8, update_dim=8, grid_dim=8),
        decoder=config.DecoderConfig(broadcast=4, layers=((8, 3), (16, 3))),
        selector=config.SelectorConfig(
            threshold=0.5, least_area=1, least_peak=0.0, label_limit=0.1
        ),
        temporal=config.TemporalConfig(enabled=temporal, width=8, heads=2, hidden=8, history=2),
    )
    model = GeoCo(settings).double()
    assert model.selector is not None
    with torch.no_grad():
        for weight in (model.decoder.place.weight, model.decoder.alpha.weight):
            weight.mul_(6)
        model.attention.query.weight.mul_(8)
        for weight in model.selector.judge.parameters():
            weight.mul_(4)
        if model.temporal is not None:
            model.temporal.residual.weight.normal_(0, 0.1)
    return GeoCoModel(model)


def make_small_solids(length: int = 3) -> SolidsDataset:
    return SolidsDataset(
        config.SolidsConfig(
            episodes=config.EpisodesConfig(train=1, val=8, test=1),
            frames=20,
            height=16,
            width=16,
            supersample=1,
            window=config.WindowConfig(length=length, stride=8),
        ),
        "val",
    )


def warp_by_loop(mask: np.ndarray, factor: float, old: list[float], new: list[float]) -> np.ndarray:
    """The map that takes one place to another and scales about it, pixel by pixel."""
    size = len(mask)
    result = np.zeros_like(mask)
    for row, column in product(range(size), range(size)):
        point = (2 * column / (size - 1) - 1, 2 * row / (size - 1) - 1)
        source = [(q - n) / factor + o for q, o, n in zip(point, old, new, strict=True)]
        x, y = (math.floor((q + 1) / 2 * (size - 1) + 0.5 + 1e-6) for q in source)
        if 0 <= x < size and 0 <= y < size:
            result[row, column] = mask[y, x]
    return result


def one_by_one(model: GeoCoModel, dataset: SolidsDataset) -> list[tuple[float, ...]]:
    """Every edit alone and frame by frame: video, donor, kind, command, F1, no-op."""
    anchors: dict[int, tuple[Binding, int, np.ndarray]] = {}
    network = model.model
    first = choose_first_windows(dataset)
    factual = compute_video_factual(model, dataset, first, 1000)
    for number, anchor in enumerate(find_anchors(factual, range(len(first)))):
        if anchor is not None:
            window = int(first[number])
            frames = dataset.batch([window]).images().double()
            seed = VIDEO_SEED if model.carries else SEED
            starts = draw_starting_positions(window, 4, seed=seed)[None].double()
            binding, slot = network.bind(frames, starts), anchor.slot
            owner = network.decode(binding).fields.logits[0].argmax(1).numpy()
            anchors[number] = binding, slot, owner == slot

    def find_pixels(binding: Binding, frame: int, slot: int, state: Slots) -> np.ndarray:
        """Where a slot is seen in a frame in which it has another state; all are drawn anew."""
        edited = binding.slots[0, [frame]].with_slot(slot, state)
        scene = Binding(edited, binding.attention[0, [frame]], binding.gate[0, [frame]])
        return (network.decode(scene).fields.logits[0].argmax(0) == slot).numpy()

    def parts(slots: Slots) -> tuple[Tensor, Tensor, Tensor]:
        return slots.appearance, slots.position, slots.scale

    result: list[tuple[float, ...]] = []
    videos = list(anchors)
    wanted = [(POSITION, c) for c in range(4)] + [(SCALE, c) for c in range(5) if c != IDENTITY]
    for video, (kind, command) in product(videos, [*wanted, (TRANSPLANT, 0)]):
        donor = videos[(videos.index(video) + 1) % len(videos)] if kind == TRANSPLANT else video
        (binding, slot, masks), (other, given, sources) = anchors[video], anchors[donor]
        shared, area, kept, before = 0, 0, 0, 0
        for frame in range(binding.slots.scale.shape[1]):
            look, place, scale = (part[0, [frame]][:, [slot]] for part in parts(binding.slots))
            theirs = [part[0, [frame]][:, [given]] for part in parts(other.slots)]
            factor, old = 1.0, place[0, 0].tolist()
            new = old
            if kind == POSITION:
                new = [q + 2 * d / 15 for q, d in zip(old, MOVES[command], strict=True)]
                state = Slots(look, torch.tensor([[new]], dtype=torch.float64), scale)
            elif kind == SCALE:
                factor = FACTORS[command]
                state = Slots(look, place, scale * factor)
            else:
                old, factor = theirs[1][0, 0].tolist(), float(scale / theirs[2])
                state = Slots(theirs[0], place, scale)
            target = warp_by_loop(sources[frame], factor, old, new)
            drawn, same = find_pixels(binding, frame, slot, state), masks[frame]
            shared, area = shared + (drawn & target).sum(), area + drawn.sum() + target.sum()
            kept, before = kept + (same & target).sum(), before + same.sum() + target.sum()
        result.append((video, donor, kind, command, 2 * shared / area, 2 * kept / before))
    return result


def test_records_of_a_network_are_those_of_a_loop() -> None:
    model, dataset = make_tiny_model(temporal=True), make_small_solids()
    with torch.no_grad():
        expected = np.array(one_by_one(model, dataset))
    edits = record_tubes(model, dataset, 7).edits
    assert len(edits) == len(expected) >= 3 * 9
    columns = (edits.video, edits.donor_video, edits.kind, edits.command, edits.f1, edits.noop)
    np.testing.assert_allclose(np.stack(columns, 1), expected)
    assert len(set(edits.f1.tolist())) > len(edits) / 2  # the numbers say something


@pytest.mark.parametrize("kind", ["tiny", "discs"])
def test_the_compute_batch_changes_nothing(kind: str) -> None:
    model = make_tiny_model() if kind == "tiny" else Moving(discs())
    dataset = make_small_solids() if kind == "tiny" else make_videos(Moving(discs()))
    one, two, three = (record_tubes(model, dataset, batch) for batch in (2, 9, 1000))
    assert one.eligible.any()
    for other in (two, three):
        np.testing.assert_array_equal(one.eligible, other.eligible)
        for part in fields(TubeEdits):
            np.testing.assert_allclose(
                getattr(one.edits, part.name), getattr(other.edits, part.name)
            )


def test_a_temporal_model_is_tracked_by_its_initializer() -> None:
    model, dataset = make_tiny_model(True), make_small_solids()
    network = model.model
    assert network.temporal is not None
    video = dataset.batch([0, 2]).images().double()
    starts = torch.stack([draw_starting_positions(window, 4) for window in (0, 2)])
    tracks = model.track(video, starts)
    assert tracks.attention is not None
    start = network.attention.start_slots(starts.double())
    history: list[Slots] = []
    with torch.no_grad():
        for frame in range(3):
            iterations = network.settings.slots.later_iterations
            if frame == 0:
                iterations = network.settings.slots.first_iterations
            bound = network.attention(network.encoder(video[:, frame]), start, iterations)
            history.append(bound.slots)
            start = network.temporal(history[-2:])
            torch.testing.assert_close(tracks.slots.position[:, frame], bound.slots.position)
            torch.testing.assert_close(tracks.slots.appearance[:, frame], bound.slots.appearance)
            torch.testing.assert_close(tracks.attention[:, frame], bound.attention)
        plain = network.bind(video, starts.double(), temporal=False)
    assert not torch.allclose(tracks.slots.position[:, 1], plain.slots.position[:, 1])


def test_protocols() -> None:
    assert isinstance(make_tiny_model(), VideoModel)
    assert isinstance(make_tiny_model(), OneSlotModel)
    assert isinstance(Moving(discs()), VideoModel)
    assert not isinstance(Discs(scenes(1)), VideoModel)
