"""Evaluation end to end: our own model on the embedded generator, files, tables, resumption."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from evaluation_oracles import Discs, Numbered, scenes, video_major
from helpers import SMALL_SOLIDS, TINY_MODEL, make_small_solids, make_tiny_model

from geoco import config
from geoco.data import ClipBatch, SolidsDataset
from geoco.errors import GeocoError
from geoco.evaluation import (
    TABLES,
    Evaluation,
    GeoCoModel,
    OneSlotModel,
    SlotModel,
    Table,
    as_values,
    draw_starting_positions,
    editing,
    evaluate,
    order_window_major,
    read_matched,
    read_records,
    read_tubes,
    stability,
    windows,
)
from geoco.evaluation.interfaces import Decoded
from geoco.evaluation.matched import score_matched
from geoco.evaluation.video import score_tubes
from geoco.evaluation.windows import Progress
from geoco.models.slots import Slots
from geoco.reporting.cells import TextTable
from geoco.reporting.results import Values


def test_protocols() -> None:
    assert isinstance(make_tiny_model(), SlotModel)
    assert isinstance(make_tiny_model(), OneSlotModel)
    assert isinstance(Discs(scenes(1)), SlotModel)
    assert not isinstance(Discs(scenes(1)), OneSlotModel)


def test_one_slot_decoded_anew_is_the_whole_scene_decoded_anew() -> None:
    model = make_tiny_model()
    factual = windows.compute_factual(model, make_small_solids(), 4)
    encoded = factual.encoded(torch.arange(len(factual)))
    fields_ = model.fields(encoded.slots)
    for index in range(model.slots):
        one = Slots(
            encoded.slots.appearance[:, [index]].flip(0),
            encoded.slots.position[:, [index]] + 0.2,
            encoded.slots.scale[:, [index]] * 1.5,
        )
        single = model.compose(encoded, fields_.with_slot(index, model.fields(one)))
        whole = model.decode(encoded, encoded.slots.with_slot(index, one))
        for got, expected in zip(single, whole, strict=True):
            torch.testing.assert_close(got, expected)
    # The selector did something, or the test would say little about it.
    assert model.model.selector is not None
    assert not torch.equal(model.decode(encoded, encoded.slots)[1], fields_.logits)


class Plain:
    """Ours without the short cut."""

    def __init__(self, model: GeoCoModel) -> None:
        self.slots, self.size = model.slots, model.size
        self.encode, self.decode = model.encode, model.decode


def test_slots_that_are_drawn_once_give_the_same_stability() -> None:
    model = make_tiny_model()
    factual = windows.compute_factual(model, make_small_solids(), 4)
    for scores in (stability.score_stability, stability.score_shared_background):
        one, two = (
            as_values(scores(m, factual, batch)) for m, batch in ((model, 7), (Plain(model), 5))
        )
        assert one["spreads"][0]["radius"]["deviation"] > 0
        for left, right in zip(one["spreads"], two["spreads"], strict=True):
            for part in ("radius", "coverage"):
                assert left[part] == pytest.approx(right[part], rel=1e-9)


def test_both_ways_of_decoding_give_the_same_records() -> None:
    model = make_tiny_model()
    factual = windows.compute_factual(model, make_small_solids(), 4)
    assert factual.valid.sum() > 4
    one, two = (editing.record_edits(m, factual, 4) for m in (model, Plain(model)))
    assert not isinstance(Plain(model), OneSlotModel)
    assert_same_records(one, two)


def test_rows_of_fields() -> None:
    model = make_tiny_model()
    encoded = windows.compute_factual(model, make_small_solids(), 4).encoded(torch.arange(3))
    whole = model.fields(encoded.slots)
    some = whole[torch.tensor([2, 0, 2])]
    expected = model.fields(encoded.rows(torch.tensor([2, 0, 2])).slots)
    for part in fields(whole):
        torch.testing.assert_close(getattr(some, part.name), getattr(expected, part.name))


def test_the_compute_batch_changes_nothing() -> None:
    model, dataset = make_tiny_model(), make_small_solids()
    one, two = (windows.compute_factual(model, dataset, batch) for batch in (3, 12))
    for part in fields(one):
        first, second = getattr(one, part.name), getattr(two, part.name)
        if isinstance(first, torch.Tensor):
            torch.testing.assert_close(first, second)
        elif isinstance(first, Slots):
            torch.testing.assert_close(vars(first), vars(second))
        else:
            np.testing.assert_array_equal(first, second)
    assert_same_records(editing.record_edits(model, one, 3), editing.record_edits(model, two, 50))


def test_every_initialisation_of_psnr_starts_from_its_own_positions() -> None:
    model, dataset = make_tiny_model(), make_small_solids()
    factual = windows.compute_factual(model, dataset, 3, 5)
    frames = dataset.batch(factual.window.tolist()).video[:, 0].double() / 255
    for initialization in (0, 2):
        starts = [
            draw_starting_positions(int(w), model.slots, initialization) for w in factual.window
        ]
        with torch.no_grad():
            bound = model.model.bind(frames[:, None], torch.stack(starts).double())
            image = model.model.decode(bound).image[:, 0]
        expected = -10 * (image - frames).square().mean((1, 2, 3)).log10()
        psnr = windows.measure_reconstruction(model, factual, initialization, 2)
        torch.testing.assert_close(psnr, expected, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(psnr, factual.psnr)


def test_starting_positions_are_those_of_batches_of_four() -> None:
    model = make_tiny_model()
    for window in range(10):
        generator = torch.Generator().manual_seed(42 + window // 4)
        expected = model.model.draw_positions(4, generator)[window % 4]
        torch.testing.assert_close(draw_starting_positions(window, 4), expected.float())
    assert not torch.equal(draw_starting_positions(0, 4), draw_starting_positions(0, 4, 1))


def test_a_part_of_the_windows_starts_as_it_does_among_all() -> None:
    model, dataset = make_tiny_model(), make_small_solids()
    some, all_ = (
        windows.compute_factual(model, dataset, 4, 5),
        windows.compute_factual(model, dataset, 4),
    )
    assert some.window.tolist() == [0, 1, 3, 6, 9]  # the first of each of four videos, then on
    assert len(set(some.source)) == 4
    torch.testing.assert_close(
        some.slots.position, all_.slots.position[torch.from_numpy(some.window)]
    )


def test_spread_windows_are_at_equal_steps_from_all_and_a_population_of_their_own(
    tmp_path: Path,
) -> None:
    model, dataset = make_tiny_model(), make_small_solids()
    assert len(dataset) == 12
    assert windows.choose_windows(dataset, 4, spread=True).tolist() == [0, 4, 7, 11]
    assert windows.choose_windows(dataset, 99, spread=True).tolist() == list(range(12))
    assert windows.choose_windows(dataset, None, spread=True).size == 12
    here, there = tmp_path / "first", tmp_path / "spread"
    first = evaluate(model, dataset, here, "tiny", ("factual",), windows=4)
    spread = evaluate(model, dataset, there, "tiny", ("factual",), windows=4, spread=True)
    assert spread.tables["factual"]["windows"] == first.tables["factual"]["windows"] == 4
    assert spread.tables["factual"]["psnr"] != first.tables["factual"]["psnr"]
    with pytest.raises(GeocoError, match="choice of windows"):
        evaluate(model, dataset, there, "tiny", ("factual",), windows=4)


def test_window_major_order() -> None:
    assert order_window_major(["a", "a", "b", "b", "b", "c"]).tolist() == [0, 2, 5, 1, 3, 4]


def test_end_to_end_on_solids(tmp_path: Path) -> None:
    model, dataset = make_tiny_model(), make_small_solids()
    heard: list[tuple[str, int, int]] = []
    results = evaluate(
        model, dataset, tmp_path, "tiny", batch=8, progress=lambda *news: heard.append(news)
    )
    # Windows of one frame have no whole-video table, and nobody asked for it.
    assert set(results.tables) == set(TABLES) - {"tubes"}
    for table in ("factual slots", *results.tables):
        done, total = [news[1:] for news in heard if news[0] == table][-1]
        assert done == total > 0
    factual = results.tables["factual"]
    assert factual["windows"] == len(dataset) == 12
    assert len(factual["psnr_of_initializations"]) == 4
    assert factual["reference_errors"]["position_to_reference"]["total"] > 0
    assert 0 <= factual["segmentation"]["mean_iou"]["value"] <= 1
    edited = results.tables["editing"]
    assert edited["objects"] == factual["objects"] > 0
    assert edited["all"]["position"]["error"]["total"] == 4 * factual["objects"]
    assert edited["all"]["position"]["f1"]["low"] <= edited["all"]["position"]["f1"]["high"]
    assert r"\textbf{tiny (measured here)}" in (tmp_path / "tables.tex").read_text()
    text = (tmp_path / "tables.md").read_text()
    assert "| GeoCo-SAVi (paper, Obj3D) | 44.210 | 0.0107 | 0.0436 | 0.0391 | 0.0007 |" in text
    assert f"| **tiny (measured here)** | {factual['psnr']:.3f} |" in text
    records = read_records(tmp_path)
    assert as_values(editing.score_editing(records)) == edited
    pairs = results.tables["matched"]
    assert as_values(score_matched(read_matched(tmp_path))) == pairs
    known = factual["reference_errors"]["position_to_reference"]["total"]
    assert pairs["position"]["edits"] == 4 * known
    assert 0 < pairs["objects"] <= known
    assert pairs["position"]["exact"] is not None  # solids knows the truth
    assert results.tables["finite-grid"]["windows"] == 12


def test_whole_videos_where_there_are_any(tmp_path: Path) -> None:
    video = SMALL_SOLIDS.model_copy(update={"window": config.WindowConfig(length=3)})
    model = make_tiny_model()
    results = evaluate(
        model,
        SolidsDataset(video, "val"),
        tmp_path,
        "tiny",
        ("tubes",),
        batch=8,
    )
    assert results.tables["tubes"]["videos"] == 4
    assert results.tables["tubes"]["frames"] == 3
    assert as_values(score_tubes(read_tubes(tmp_path))) == results.tables["tubes"]
    with pytest.raises(GeocoError, match="length"):
        evaluate(model, make_small_solids(), tmp_path / "other", "tiny", ("tubes",))


def test_the_finite_grid_table_can_be_of_fewer_windows(tmp_path: Path) -> None:
    model, dataset = make_tiny_model(), make_small_solids()
    arguments = {"name": "tiny", "tables": ("finite-grid",), "batch": 8}
    one = evaluate(model, dataset, tmp_path, extended_windows=3, **arguments)  # type: ignore[arg-type]
    assert one.tables["finite-grid"]["windows"] == 3
    with pytest.raises(GeocoError, match="windows of this table differ"):
        evaluate(model, dataset, tmp_path, extended_windows=4, **arguments)  # type: ignore[arg-type]
    both = evaluate(
        model, dataset, tmp_path, "tiny", ("factual",), extended_windows=3, figures=False
    )
    assert set(both.tables) == {"factual", "finite-grid"}


def test_finished_tables_are_not_computed_again(tmp_path: Path) -> None:
    dataset = Numbered(video_major(3, 2))
    model = Discs(scenes(6))
    first = evaluate(model, dataset, tmp_path, "discs", ["stability"], batch=4)
    done = model.decoded
    evaluate(model, dataset, tmp_path, "discs", ["stability"], batch=3)
    assert model.decoded == done
    both = evaluate(model, dataset, tmp_path, "discs", ["stability", "editing"], batch=4)
    assert model.decoded > done
    assert both.tables["stability"] == first.tables["stability"]
    (tmp_path / "stability.json").unlink()
    again = evaluate(model, dataset, tmp_path, "discs", ["stability"], batch=5)
    assert again.tables == both.tables  # with the table that was not asked for this time


def test_every_table_is_computed_in_full_precision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Watched(Discs):
        def draw(self, slots: Slots) -> Decoded:
            seen.add((torch.backends.cudnn.allow_tf32, torch.is_autocast_enabled("cpu")))
            return super().draw(slots)

    seen: set[tuple[bool, bool]] = set()
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    with torch.autocast("cpu", torch.bfloat16):
        for folder in "ab":  # also the second time
            evaluate(
                Watched(scenes(4)), Numbered(video_major(2, 2)), tmp_path / folder, "discs",
                ["factual", "editing"], batch=4,
            )  # fmt: skip
        assert torch.is_autocast_enabled("cpu")
    assert torch.backends.cudnn.allow_tf32
    assert seen == {(False, False)}


def test_a_failing_table_leaves_the_finished_ones(tmp_path: Path) -> None:
    class Failing(Discs):
        def decode(self, encoded, slots):  # type: ignore[no-untyped-def]
            if slots.scale.shape[1] == 2 and float(slots.scale[0, 0]) == pytest.approx(0.3):
                raise KeyboardInterrupt
            return super().decode(encoded, slots)

    dataset, objects = Numbered(video_major(3, 2)), scenes(6, (5, 6), objects=2)
    with pytest.raises(KeyboardInterrupt):
        evaluate(Failing(objects), dataset, tmp_path, "discs", ["editing", "stability"])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "editing-records.npz",
        "editing.json",
    ]


@pytest.mark.parametrize(
    ("change", "what"),
    [({"name": "other"}, "model"), ({"windows": 4}, "windows")],
)
def test_other_results_are_not_mixed_in(tmp_path: Path, change: dict[str, int], what: str) -> None:
    dataset, model = Numbered(video_major(3, 2)), Discs(scenes(6))
    wanted = {"name": "discs", "tables": ["stability"]}
    evaluate(model, dataset, tmp_path, **wanted)  # type: ignore[arg-type]
    with pytest.raises(GeocoError, match=rf"another evaluation \(.*{what}.* differ\): delete it"):
        evaluate(model, dataset, tmp_path, **{**wanted, **change})  # type: ignore[arg-type]


def test_another_model_of_the_same_name_is_told_apart(tmp_path: Path) -> None:
    """By its weights, and by what decides how the selector acts."""
    evaluate(make_tiny_model(), make_small_solids(), tmp_path, "tiny", ["stability"], windows=4)
    assert evaluate(
        make_tiny_model(), make_small_solids(), tmp_path, "tiny", ["stability"], windows=4
    ).tables
    other = make_tiny_model()
    with torch.no_grad():
        other.model.decoder.alpha.bias[0] += 1e-3  # type: ignore[index]
    bolder = GeoCoModel(make_tiny_model().model)
    selector = TINY_MODEL.selector.model_copy(update={"threshold": 0.6})
    assert bolder.model.selector is not None
    bolder.model.selector.settings = selector
    assert len({model.fingerprint for model in (make_tiny_model(), other, bolder)}) == 3
    for model in (other, bolder):
        with pytest.raises(GeocoError, match=r"\(checksum of the model differ\)"):
            evaluate(model, make_small_solids(), tmp_path, "tiny", ["stability"], windows=4)


def test_other_masks_and_other_windows_are_told_apart(tmp_path: Path) -> None:
    class Unmasked(SolidsDataset):
        def batch(self, indices: Sequence[int]) -> ClipBatch:
            clips = super().batch(indices)
            assert clips.masks is not None
            return replace(clips, masks=torch.zeros_like(clips.masks))

    longer = SMALL_SOLIDS.model_copy(update={"window": config.WindowConfig(length=2)})
    evaluate(make_tiny_model(), make_small_solids(), tmp_path, "tiny", ["stability"], windows=4)
    with pytest.raises(GeocoError, match=r"\(checksum of two windows differ\)"):
        evaluate(
            make_tiny_model(),
            Unmasked(SMALL_SOLIDS, "val"),
            tmp_path,
            "tiny",
            ["stability"],
            windows=4,
        )
    with pytest.raises(GeocoError, match="frames of a window"):
        evaluate(make_tiny_model(), SolidsDataset(longer, "val"), tmp_path, "tiny", windows=4)


def test_results_say_what_they_are_of(tmp_path: Path) -> None:
    evaluate(
        make_tiny_model(), make_small_solids(), tmp_path, "tiny", ["editing", "matched"], windows=4
    )
    editing_, matched_ = (
        json.loads((tmp_path / f"{table}.json").read_text())["population"]
        for table in ("editing", "matched")
    )
    said = "solids, val split: 4 videos of 20 frames, 16 x 16, seed 42"
    assert editing_["data"] == matched_["data"] == said
    assert (editing_["interval replicates"], matched_["interval replicates"]) == (10_000, 5_000)
    assert matched_["changed pixels"] == "by more than 2/255"


def test_a_smaller_tile_changes_nothing(tmp_path: Path) -> None:
    values = [
        evaluate(
            make_tiny_model(),
            make_small_solids(),
            tmp_path / str(tile),
            "tiny",
            ["finite-grid"],
            8,
            4,
            tile=tile,
        ).tables
        for tile in (None, 1)
    ]
    assert values[0] == values[1]


def test_a_finished_evaluation_looks_at_nothing_again(tmp_path: Path) -> None:
    dataset, model = Numbered(video_major(3, 2)), Discs(scenes(6))
    results = evaluate(model, dataset, tmp_path, "discs")
    done = model.decoded
    assert evaluate(model, dataset, tmp_path, "discs").tables == results.tables
    assert model.decoded == done


def test_messages(tmp_path: Path) -> None:
    dataset, model = Numbered(["a", "b"]), Discs(scenes(2))
    with pytest.raises(GeocoError, match="there is no table 'edit': choose from factual, editing"):
        evaluate(model, dataset, tmp_path, "discs", ["edit"])
    with pytest.raises(GeocoError, match="at least one window"):
        evaluate(model, dataset, tmp_path, "discs", windows=0)
    with pytest.raises(GeocoError, match="64 x 64 pixels, but the dataset has 16 x 16"):
        evaluate(model, replace(dataset, size=16), tmp_path, "discs")
    with pytest.raises(GeocoError, match="evaluate 'editing' first"):
        read_records(tmp_path)


def assert_same_records(one: editing.EditRecords, two: editing.EditRecords) -> None:
    for kind in ("position", "scale", "transplant"):
        first, second = getattr(one, kind), getattr(two, kind)
        assert len(first) > 0
        for part in fields(first):
            np.testing.assert_allclose(getattr(first, part.name), getattr(second, part.name))


def test_a_table_of_ones_own_is_one_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class ToyScores:
        objects: int
        undefined: float = float("nan")

    def compute(evaluation: Evaluation, progress: Progress) -> ToyScores:
        progress(1, 1)
        return ToyScores(int(evaluation.factual.valid.sum()))

    def build(name: str, values: Values) -> TextTable:
        return TextTable("Toys", ("Method", "Objects"), ((name, str(values["objects"])),), "Said.")

    monkeypatch.setitem(TABLES, "toy", Table(compute, (build,), about=lambda _: {"toys": 1}))
    heard: list[tuple[str, int, int]] = []
    model, dataset = Discs(scenes(4)), Numbered(video_major(2, 2))
    results = evaluate(
        model, dataset, tmp_path, "discs", ["toy"], progress=lambda *news: heard.append(news)
    )
    count = int(windows.compute_factual(model, dataset, 4).valid.sum())
    assert results.tables == {"toy": {"objects": count, "undefined": None}}
    stored = json.loads((tmp_path / "toy.json").read_text())
    assert stored["values"] == results.tables["toy"]
    assert stored["population"] == results.population | {"toys": 1}
    assert f"| discs | {count} |" in (tmp_path / "tables.md").read_text()
    assert f"discs & {count} \\\\" in (tmp_path / "tables.tex").read_text()
    assert ("toy", 1, 1) in heard
    assert "toy" in evaluate(model, dataset, tmp_path / "all", "discs").tables
    monkeypatch.setitem(TABLES, "toy", Table(compute, (build,), fits=lambda _: False))
    assert "toy" not in evaluate(model, dataset, tmp_path / "fewer", "discs").tables
