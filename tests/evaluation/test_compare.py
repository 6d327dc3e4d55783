"""Models side by side: common pools, paired differences, merged tables, refusals."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from evaluation_oracles import scenes, video_major
from helpers_matched import Painted, PaintedDeaf, PaintedMute, Shown, record_discs
from helpers_tables import make_all_tables

from geoco import metrics
from geoco.errors import GeocoError
from geoco.evaluation import compare, evaluate, matched, read_matched
from geoco.evaluation.compare import (
    average_common_errors,
    compute_differences,
    drop_repeated_rows,
    find_common_pool,
    keep_carried_by_all,
    merge_captions,
    merge_tables,
)
from geoco.evaluation.factual import CenterRecords, Mean, average_reference_errors
from geoco.evaluation.run import read_centers
from geoco.reporting.records import save_records
from geoco.reporting.results import as_values, read_results, write_table

TABLES = ("factual", "editing", "matched")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("models")
    objects = scenes(6, radii=(8.0, 9.0), objects=2)
    dataset = Shown(Painted(objects), video_major(3, 2))
    for kind, name in ((Painted, "obedient"), (PaintedDeaf, "deaf")):
        evaluate(kind(objects), dataset, root / name, name, TABLES, batch=4)
    return root / "obedient", root / "deaf"


def test_end_to_end(folders: tuple[Path, Path], tmp_path: Path) -> None:
    comparison = compare(folders, tmp_path, figures=True)
    assert comparison.models == ("obedient", "deaf")
    names = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*"))
    assert names == [
        "comparison.json",
        "comparison.md",
        "comparison.tex",
        "figures/comparison-drift.png",
        "figures/comparison-errors.png",
        "figures/comparison-response.png",
    ]
    text = (tmp_path / "comparison.md").read_text()
    lines = text.splitlines()
    editing = lines.index("## Counterfactual editing capability")
    rows = [line for line in lines[editing : editing + 12] if "(measured here)" in line]
    assert [row.split("|")[1].strip(" *") for row in rows] == [
        "obedient (measured here)",
        "deaf (measured here)",
    ]
    stored = json.loads((tmp_path / "comparison.json").read_text())["values"]
    assert set(stored["tables"]["deaf"]) == set(TABLES)
    f1 = next(d for d in comparison.differences if d.measure == "F1 (%)" and d.kind == "position")
    assert f1.value.high < -20  # the deaf one is far worse, surely
    assert "| deaf − obedient | position | F1 (%) |" in text


def test_the_pool_is_what_is_valid_for_all() -> None:
    _, _, records = record_discs()
    some = np.arange(len(records)) % 3 != 0
    others = replace(records, valid=records.valid & some)
    pool = find_common_pool([records, others])
    np.testing.assert_array_equal(pool, records.reference_valid & records.valid & some)
    scores = matched.score_matched(records, pool)
    assert scores.position.common == int((pool & (records.kind == 0)).sum())
    with pytest.raises(GeocoError, match="label differs"):
        find_common_pool([records, replace(records, label=records.label + 1)])


def test_position_errors_are_over_objects_that_all_have() -> None:
    """By hand: of three objects the second model has no slot for the first."""
    first, second = (
        CenterRecords(np.array([0, 0, 4]), np.array([1, 2, 1]), *(np.array(row) for row in rows))
        for rows in (
            ([0.25, 0.5, 1.0], [1.0, 2.0, 6.0], [3.0, 5.0, 6.0]),
            ([np.nan, 0.3, 0.5], [np.nan, 1.0, 2.0], [np.nan, 0.0, 4.0]),
        )
    )
    alone = average_reference_errors(first)
    assert alone.position_to_reference == Mean(3.0, 3, 3)
    one, two = average_common_errors([first, second])
    assert one.position_to_decoded == Mean(0.75, 2, 3)
    assert one.position_to_reference == Mean(4.0, 2, 3)
    assert one.decoded_to_reference == Mean(5.5, 2, 3)
    assert two.decoded_to_reference == Mean(2.0, 2, 3)
    # A model without positions takes part with the last error alone.
    nowhere = replace(second, position_to_decoded=np.full(3, np.nan))
    assert average_common_errors([first, nowhere])[0] == one
    with pytest.raises(GeocoError, match="other reference objects"):
        average_common_errors([first, replace(second, label=np.array([1, 2, 2]))])


def test_position_errors_of_the_tables_are_those(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    other = shutil.copytree(folders[1], tmp_path / "other")
    centers = read_centers(other)
    missing = centers.decoded_to_reference.copy()
    missing[0] = np.nan
    save_records(other, "factual", replace(centers, decoded_to_reference=missing))
    comparison = compare([folders[0], other], tmp_path / "out")
    everyone = read_results(folders[0], ["factual"])[1]["factual"]["reference_errors"]
    for tables in comparison.tables.values():
        errors = tables["factual"]["reference_errors"]["decoded_to_reference"]
        assert errors["defined"] == everyone["decoded_to_reference"]["defined"] - 1
        assert errors["total"] == everyone["decoded_to_reference"]["total"]


def test_differences_are_paired_by_edit_and_video() -> None:
    """By hand: a gap that is the same in every edit has an interval of no width."""
    _, _, records = record_discs()
    better = replace(records, oracle=records.oracle + 2.0)
    pool = find_common_pool([records, better])
    differences = {
        (d.kind, d.measure): d for d in compute_differences(["a", "b"], [records, better], pool)
    }
    gap = differences["position", "Oracle PSNR: full image"].value
    assert (gap.estimate, gap.low, gap.high) == pytest.approx((2, 2, 2))
    assert differences["scale", "RGB MAE ×10³"].value.estimate == 0
    assert ("transplant", "F1 (%)") not in differences
    # Nobody knows the truth here.
    assert not [measure for _, measure in differences if measure.startswith("Exact")]
    known = replace(records, exact=records.oracle, exact_f1=np.where(records.kind, 0.5, np.nan))
    other = replace(known, exact=known.exact - 3, exact_f1=known.exact_f1 + 0.25)
    differences = {
        (d.kind, d.measure): d for d in compute_differences(["a", "b"], [known, other], pool)
    }
    assert differences["position", "Exact PSNR: full image"].value.estimate == pytest.approx(-3)
    assert differences["transplant", "Exact F1 (%)"].value.estimate == pytest.approx(25)
    assert ("position", "Exact F1 (%)") not in differences
    # F1 is compared within the pool alone.
    some = pool & (np.arange(len(pool)) % 2 == 0)
    odd = replace(records, f1=records.f1 - np.where(some, 0.25, 0.75))
    gaps = compute_differences(["a", "b"], [records, odd], some)
    differences = {(d.kind, d.measure): d for d in gaps}
    assert differences["position", "F1 (%)"].value.estimate == pytest.approx(-25)
    assert differences["position", "F1 (%)"].edits == int((some & (records.kind == 0)).sum())
    # A gap in one video only: the mean over three videos, resampled as videos are.
    uneven = replace(records, change=records.change + 0.003 * (records.video == 1))
    differences = {
        (d.kind, d.measure): d for d in compute_differences(["a", "b"], [records, uneven], pool)
    }
    value = differences["scale", "RGB MAE ×10³"].value
    assert value.estimate == pytest.approx(1)
    expected = metrics.paired_interval(np.array([0, 3.0, 0]), matched.REPLICATES)
    assert (value.low, value.high) == pytest.approx((expected.low, expected.high))


def test_scores_are_those_of_the_common_pool(folders: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = folders
    part = tmp_path / "part"
    part.mkdir()
    (part / "matched.json").write_bytes((second / "matched.json").read_bytes())
    records = read_matched(second)
    even = records.window % 2 == 0
    save_records(part, "matched", replace(records, valid=records.valid & even, edited=even))
    comparison = compare([first, part], tmp_path / "out")
    before = json.loads((first / "matched.json").read_text())["values"]
    assert before["objects"] == 12
    for tables in comparison.tables.values():
        assert tables["matched"]["objects"] == 6
        for count in ("common", "carried"):
            assert tables["matched"]["position"][count] == before["position"][count] // 2


def test_nothing_is_claimed_of_what_a_model_cannot_be_asked() -> None:
    _, _, records = record_discs()
    _, _, deaf = record_discs(PaintedDeaf)
    _, _, mute = record_discs(PaintedMute)
    for pair in ([records, mute], [mute, records]):
        differences = compute_differences(
            ["a", "b"], keep_carried_by_all(pair), find_common_pool(pair)
        )
        assert {one.kind for one in differences} == {"transplant"}
    # Nor does it keep the others from being compared.
    alone, three = [records, deaf], [records, deaf, mute]
    told = records.kind < 2
    np.testing.assert_array_equal(find_common_pool(three)[told], find_common_pool(alone)[told])
    for before, after in zip(keep_carried_by_all(alone), keep_carried_by_all(three), strict=False):
        np.testing.assert_array_equal(before.change, after.change)
    scores = matched.score_matched(mute, find_common_pool(three))
    assert (scores.objects, scores.position.common, scores.position.f1) == (0, 0, None)


def test_preservation_is_of_what_all_carried_out() -> None:
    _, _, records = record_discs()
    some = np.arange(len(records)) % 3 != 0
    other = replace(
        records, edited=some, change=np.where(some, 0.5, np.nan), changed=np.where(some, 1, np.nan)
    )
    first, second = keep_carried_by_all([records, other])
    for one in (first, second):
        for name in ("change", "changed"):
            np.testing.assert_array_equal(np.isfinite(getattr(one, name)), some)
    kept = int((some & (records.kind == 0)).sum())
    assert matched.score_matched(first).position.carried == kept
    np.testing.assert_array_equal(first.oracle, records.oracle)  # which is of all edits


def test_only_what_all_have_is_compared(folders: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = folders
    part = tmp_path / "part"
    part.mkdir()
    for name in ("editing.json", "editing-records.npz"):
        (part / name).write_bytes((second / name).read_bytes())
    comparison = compare([first, part], tmp_path / "out")
    assert set(comparison.tables["obedient"]) == {"editing"}
    assert comparison.differences == ()
    (part / "editing.json").unlink()
    with pytest.raises(GeocoError, match="there are no results here"):
        compare([first, part], tmp_path / "out")


def test_models_of_one_name_are_told_apart(folders: tuple[Path, Path], tmp_path: Path) -> None:
    comparison = compare([folders[0], folders[0], folders[1]], tmp_path)
    assert comparison.models == ("obedient (1)", "obedient (2)", "deaf")


def test_models_may_differ(folders: tuple[Path, Path], tmp_path: Path) -> None:
    about, tables = read_results(folders[0], ["factual"])
    for name, own in (("a", {"slots": 3}), ("b", {"slots": 7, "checksum of the model": "b"})):
        write_table(tmp_path / name, "factual", about | own, tables["factual"])
        save_records(tmp_path / name, "factual", read_centers(folders[0]))
    comparison = compare([tmp_path / "a", tmp_path / "b"], tmp_path / "out")
    assert not {"model", "slots", "checksum of the model"} & set(comparison.population)


def test_other_populations_are_refused(folders: tuple[Path, Path], tmp_path: Path) -> None:
    objects = scenes(6, radii=(8.0, 9.0), objects=2)
    dataset = Shown(Painted(objects), video_major(3, 2))
    evaluate(Painted(objects), dataset, tmp_path, "fewer", ("editing",), batch=4, windows=4)
    with pytest.raises(GeocoError, match=r"another population than .*windows"):
        compare([folders[0], tmp_path], tmp_path / "out")
    with pytest.raises(GeocoError, match="at least two"):
        compare([folders[0]], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_table_of_other_windows_is_refused(folders: tuple[Path, Path], tmp_path: Path) -> None:
    """Though all other tables are of the same population."""
    copies = []
    for folder, limit in zip((*folders, folders[1]), (25, 25, None), strict=True):
        copies.append(tmp_path / str(len(copies)))
        copies[-1].mkdir()
        for table in ("editing.json", "editing-records.npz"):
            (copies[-1] / table).write_bytes((folder / table).read_bytes())
        about, _ = read_results(folder, ["editing"])
        del about["interior"]  # which is of that table alone
        limited = {} if limit is None else {"windows of this table": limit}
        write_table(copies[-1], "finite-grid", about | limited, make_all_tables()["finite-grid"])
    comparison = compare(copies[:2], tmp_path / "out")
    assert set(comparison.tables["deaf"]) == {"editing", "finite-grid"}
    assert comparison.population["windows"] == 6
    assert not {"interior", "windows of this table"} & set(comparison.population)
    with pytest.raises(GeocoError) as refused:
        compare([copies[0], copies[2]], tmp_path / "not")
    assert str(refused.value) == (
        f"finite-grid: {copies[2]} has results of another population than {copies[0]} (windows of "
        "this table differ): evaluate all models on the same windows"
    )
    assert not (tmp_path / "not").exists()


def test_captions_are_right_for_every_model() -> None:
    one, two = make_all_tables(), json.loads(json.dumps(make_all_tables()))
    two["factual"]["reference_errors"]["decoded_to_reference"]["defined"] = 66
    two["shared-background"]["appearances"] = 32
    two["finite-grid"]["objects"] = 7
    two["tubes"]["scale"]["edits"] = 5
    two["matched"]["scale"]["visible"] = 9
    alone = {grid.title: grid.caption for grid in merge_tables({"a": one})}
    captions = {grid.title: grid.caption for grid in merge_tables({"a": one, "b": two})}
    assert captions["External position evaluation"] == (
        "a: Grid L2 over associated reference objects; here 80/88 of them. "
        "b: Grid L2 over associated reference objects; here 66/88 of them. "
        "The paper uses 9,255 objects of pseudo-labels."
    )
    for title, counts in (
        ("Shared-background stability", ("a: Here 64 objects", "b: Here 32 objects")),
        ("Finite-grid covariance", ("a: Here 10 objects", "b: Here 7 objects")),
        ("Whole-video editing", ("12 scale", "5 scale")),
        ("PSNR (dB) and F1 against the generator’s edits", ("37/40 scale", "9/40 scale")),
    ):
        assert all(count in captions[title] for count in counts), title
        del captions[title], alone[title]
    del captions["External position evaluation"], alone["External position evaluation"]
    assert captions == alone  # nothing else has counts that differ
    assert merge_captions({"a": "One. Two.", "b": "One."}) == "One. a: Two."


def test_rows_that_models_share_stand_once() -> None:
    one, two = ("one", "1.0"), ("two", "1.0")
    oracle, wide, open_ended = ("oracle", "9.0"), ("", "[8, 10]"), ("", "–")
    rows = [one, open_ended, oracle, wide, two, open_ended, oracle, wide]
    # An interval is its model's own, also where it reads like another's.
    assert drop_repeated_rows(rows) == (one, open_ended, oracle, wide, two, open_ended)
    # The same label with another interval is another row.
    assert drop_repeated_rows([oracle, wide, oracle, open_ended]) == (
        oracle,
        wide,
        oracle,
        open_ended,
    )


def test_rows_of_all_models_stand_below_the_papers(folders: tuple[Path, Path]) -> None:
    values = {"a": {"matched": as_values(matched.score_matched(read_matched(folders[0])))}}
    one = merge_tables(values)
    two = merge_tables({**values, "b": values["a"]})
    for single, double in zip(one, two, strict=True):
        assert single.printed == double.printed
        assert len(double.rows) == 2 * len(single.rows)


def test_records_come_back_as_they_were(folders: tuple[Path, Path], tmp_path: Path) -> None:
    records = read_matched(folders[0])
    save_records(tmp_path, "matched", records)
    again = read_matched(tmp_path)
    for name, value in vars(records).items():
        np.testing.assert_array_equal(value, getattr(again, name))
        assert value.dtype == getattr(again, name).dtype
    (tmp_path / "matched-records.npz").write_bytes(b"nothing")
    with pytest.raises(GeocoError, match="damaged"):
        read_matched(tmp_path)
    with pytest.raises(GeocoError, match="evaluate 'matched' first"):
        read_matched(tmp_path / "nowhere")
