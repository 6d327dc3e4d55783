"""Models side by side: common pools, paired differences, merged tables, refusals."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from evaluation_oracles import scenes, video_major
from test_matched import Painted, PaintedDeaf, Shown, shown

from geoco import metrics
from geoco.errors import GeocoError
from geoco.evaluation import archive, compare, evaluate, matched, read_matched
from geoco.evaluation.compare import common_pool, paired_differences, side_by_side
from geoco.evaluation.results import as_values

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
    found = compare(folders, tmp_path, figures=True)
    assert found.models == ("obedient", "deaf")
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
    f1 = next(d for d in found.differences if d.measure == "F1 (%)" and d.kind == "position")
    assert f1.value.high < -20  # the deaf one is far worse, surely
    assert "| deaf − obedient | position | F1 (%) |" in text


def test_the_pool_is_what_is_valid_for_all() -> None:
    _, _, records = shown()
    some = np.arange(len(records)) % 3 != 0
    others = replace(records, valid=records.valid & some)
    pool = common_pool([records, others])
    np.testing.assert_array_equal(pool, records.reference_valid & records.valid & some)
    scores = matched.matched_scores(records, pool)
    assert scores.position.common == int((pool & (records.kind == 0)).sum())
    with pytest.raises(GeocoError, match="label differs"):
        common_pool([records, replace(records, label=records.label + 1)])


def test_differences_are_paired_by_edit_and_video() -> None:
    """By hand: a gap that is the same in every edit has an interval of no width."""
    _, _, records = shown()
    better = replace(records, oracle=records.oracle + 2.0)
    pool = common_pool([records, better])
    found = {
        (d.kind, d.measure): d for d in paired_differences(["a", "b"], [records, better], pool)
    }
    gap = found["position", "Oracle PSNR: full image"].value
    assert (gap.estimate, gap.low, gap.high) == pytest.approx((2, 2, 2))
    assert found["scale", "RGB MAE ×10³"].value.estimate == 0
    assert ("transplant", "F1 (%)") not in found
    assert ("position", "Exact PSNR: region") not in found  # nobody knows the truth here
    # F1 is compared within the pool alone.
    some = pool & (np.arange(len(pool)) % 2 == 0)
    odd = replace(records, f1=records.f1 - np.where(some, 0.25, 0.75))
    gaps = paired_differences(["a", "b"], [records, odd], some)
    found = {(d.kind, d.measure): d for d in gaps}
    assert found["position", "F1 (%)"].value.estimate == pytest.approx(-25)
    assert found["position", "F1 (%)"].edits == int((some & (records.kind == 0)).sum())
    # A gap in one video only: the mean over three videos, resampled as videos are.
    uneven = replace(records, change=records.change + 0.003 * (records.video == 1))
    found = {
        (d.kind, d.measure): d for d in paired_differences(["a", "b"], [records, uneven], pool)
    }
    value = found["scale", "RGB MAE ×10³"].value
    assert value.estimate == pytest.approx(1)
    expected = metrics.paired_interval(np.array([0, 3.0, 0]), matched.REPLICATES)
    assert (value.low, value.high) == pytest.approx((expected.low, expected.high))


def test_scores_are_those_of_the_common_pool(folders: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = folders
    part = tmp_path / "part"
    part.mkdir()
    (part / "matched.json").write_bytes((second / "matched.json").read_bytes())
    records = read_matched(second)
    archive.write(
        part, "matched", replace(records, valid=records.valid & (records.window % 2 == 0))
    )
    found = compare([first, part], tmp_path / "out")
    before = json.loads((first / "matched.json").read_text())["values"]["position"]["common"]
    for tables in found.tables.values():
        assert tables["matched"]["position"]["common"] == before // 2


def test_only_what_all_have_is_compared(folders: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = folders
    part = tmp_path / "part"
    part.mkdir()
    for name in ("editing.json", "editing-records.npz"):
        (part / name).write_bytes((second / name).read_bytes())
    found = compare([first, part], tmp_path / "out")
    assert set(found.tables["obedient"]) == {"editing"}
    assert found.differences == ()
    (part / "editing.json").unlink()
    with pytest.raises(GeocoError, match="there are no results here"):
        compare([first, part], tmp_path / "out")


def test_models_of_one_name_are_told_apart(folders: tuple[Path, Path], tmp_path: Path) -> None:
    found = compare([folders[0], folders[0], folders[1]], tmp_path)
    assert found.models == ("obedient (1)", "obedient (2)", "deaf")


def test_other_populations_are_refused(folders: tuple[Path, Path], tmp_path: Path) -> None:
    objects = scenes(6, radii=(8.0, 9.0), objects=2)
    dataset = Shown(Painted(objects), video_major(3, 2))
    evaluate(Painted(objects), dataset, tmp_path, "fewer", ("editing",), batch=4, windows=4)
    with pytest.raises(GeocoError, match=r"another population than .*windows"):
        compare([folders[0], tmp_path], tmp_path / "out")
    with pytest.raises(GeocoError, match="at least two"):
        compare([folders[0]], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_rows_of_all_models_stand_below_the_papers(folders: tuple[Path, Path]) -> None:
    found = {"a": {"matched": as_values(matched.matched_scores(read_matched(folders[0])))}}
    one = side_by_side(found)
    two = side_by_side({**found, "b": found["a"]})
    for single, double in zip(one, two, strict=True):
        assert single.printed == double.printed
        assert len(double.rows) == 2 * len(single.rows)


def test_records_come_back_as_they_were(folders: tuple[Path, Path], tmp_path: Path) -> None:
    records = read_matched(folders[0])
    archive.write(tmp_path, "matched", records)
    again = read_matched(tmp_path)
    for name, value in vars(records).items():
        np.testing.assert_array_equal(value, getattr(again, name))
        assert value.dtype == getattr(again, name).dtype
    (tmp_path / "matched-records.npz").write_bytes(b"nothing")
    with pytest.raises(GeocoError, match="damaged"):
        read_matched(tmp_path)
    with pytest.raises(GeocoError, match="evaluate 'matched' first"):
        read_matched(tmp_path / "nowhere")
