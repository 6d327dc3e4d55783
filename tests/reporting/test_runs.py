"""Tables of trainings: which row a run is, several seeds as one row, and what is refused."""

import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers_runs import CONFIGS, FILES, make_run
from typer.testing import CliRunner

from geoco import config
from geoco.cli.main import app
from geoco.errors import GeocoError
from geoco.reporting.runs import ROWS, Summary, name_row, read_run
from geoco.reporting.tables_runs import compare_runs, find_best, format_summary


def read_table(folder: Path, name: str) -> dict[str, dict[str, Any]]:
    rows = json.loads((folder / f"{name}.json").read_text())["values"]["rows"]
    return {row["row"]: row for row in rows}


# -- rows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", FILES)
def test_every_row_is_known_by_its_configuration(row: str) -> None:
    changes = ["train.seed=43", "train.budget=0.25"]
    assert set(FILES) == set(ROWS)
    assert name_row(config.load(CONFIGS / f"{FILES[row]}.yaml", changes)) == row


@pytest.mark.parametrize(
    "changes",
    [
        ["train.weights={ov: 0, pos: 0}"],
        ["model.decoder.design=canonical", "model.slots.readout=false"],
        ["model.slots.readout=false"],
    ],
)
def test_other_configurations_are_no_row(changes: list[str], tmp_path: Path) -> None:
    settings = config.load(CONFIGS / "geoco.yaml", changes)
    assert name_row(settings) is None
    (tmp_path / "config.yaml").write_text(settings.to_yaml())
    with pytest.raises(GeocoError, match="its configuration is none of the paper's rows"):
        read_run(tmp_path)


# -- several seeds ---------------------------------------------------------------------------------


def test_means_and_deviations_of_three_seeds(tmp_path: Path) -> None:
    folders = [
        make_run(tmp_path / f"geoco-{seed}", "GeoCo-SAVi", f"train.seed={seed}", psnr=psnr)
        for seed, psnr in ((42, 40.0), (43, 41.0), (44, 43.0))
    ]
    folders.append(make_run(tmp_path / "tail", "Without L_tail", psnr=46.0))
    folders.append(make_run(tmp_path / "readout", "Without terminal readout", psnr=42.5))
    path = compare_runs(folders, "ablation", tmp_path / "out")
    rows = read_table(tmp_path / "out", "ablation")
    psnr = rows["GeoCo-SAVi"]["measures"]["PSNR ↑"]
    assert psnr["mean"] == pytest.approx(124 / 3)
    assert psnr["deviation"] == pytest.approx(math.sqrt((16 + 1 + 25) / 9 / 2))  # over two, not 3
    assert psnr["deviation"] == pytest.approx(statistics.stdev([40, 41, 43]))
    assert (psnr["defined"], psnr["runs"], psnr["failed"]) == (3, 3, 0)
    assert rows["GeoCo-SAVi"]["seeds"] == [42, 43, 44]
    text = path.read_text()
    full = "41.3333 ± 1.5275 (3/3)"
    # Ahead by more than the deviation, and by less.
    assert f"| **Without L_tail, PSNR ↑ (measured here)** | **46.0000** | {full} |" in text
    assert f"| **Without terminal readout, PSNR ↑ (measured here)** | 42.5000 | {full} |" in text
    assert (
        "| **Without L_ov, O_attn ↓ (measured here)** | not run | 0.0012 ± 0.0000 (3/3) |" in text
    )
    assert "| Without L_ov, O_attn ↓ (paper, Obj3D) | 0.0077 | 0.0007 |" in text
    assert "Nobody has trained Conventional decoder, Without L_ov, Without L_pos" in text
    assert "70,000 steps (the whole schedule), batches of 64, seeds 42, 43, 44" in text
    latex = (tmp_path / "out" / "ablation.tex").read_text()
    assert (
        r"Without $\mathcal{L}_{\rm tail}$, PSNR $\uparrow$ (measured here)} & \textbf{46.0000}"
        in (latex)
    )


def test_failed_runs_are_counted_in_every_column(tmp_path: Path) -> None:
    """One that stopped in all of them, one whose value is undefined in that column."""
    folders = [
        make_run(tmp_path / f"isa-{seed}", "ISA", f"train.seed={seed}", psnr=psnr)
        for seed, psnr in ((42, 40.0), (43, None), (44, 42.0), (45, 0.0))
    ]
    (folders[3] / "failed").mkdir()
    text = compare_runs(folders, "main", tmp_path / "out").read_text()
    measures = read_table(tmp_path / "out", "main")["ISA"]["measures"]
    assert measures["PSNR ↑"]["mean"] == 41
    assert (measures["PSNR ↑"]["failed"], measures["F_pos ↑"]["failed"]) == (2, 1)
    assert "| **ISA (measured here)** | 41.000 ± 1.414 (2/4) | 0.0123 ± 0.0000 (3/4) |" in text
    assert "| **SlotAug (measured here)** | not run |" in text
    assert "the others failed, or leave it undefined" in text


def test_decoders_beside_each_other(tmp_path: Path) -> None:
    changes = ("train.budget=0.25", "model.selector={attention: true, threshold: 0.73}")
    one = make_run(tmp_path / "full", "GeoCo-SAVi", *changes)
    two = make_run(tmp_path / "canvas", "Canonical-canvas", *changes)
    text = compare_runs([two, one], "decoders", tmp_path / "out").read_text()
    oracle = [read_run(one).results["matched"][kind]["oracle"]["full"]["estimate"]
              for kind in ("position", "scale", "transplant")]  # fmt: skip
    line = f"31.250 | {' | '.join(f'{value:.3f}' for value in oracle)} | 90.00 | 80.00 | 70.00 |"
    assert f"| **Scale-steered (measured here)** | {line}" in text
    assert f"| **Canonical-canvas (measured here)** | {line}" in text
    assert "| Canonical-canvas (paper, Obj3D) | 43.501 | 39.568 | 39.945 | 36.148 |" in text
    assert "17,500 steps (train.budget=0.25 of 70,000), batches of 64, seed 42" in text
    assert "Each row is one run" in text


def test_two_recipes_of_the_whole_method_are_two_rows(tmp_path: Path) -> None:
    one = make_run(tmp_path / "paper", "GeoCo-SAVi", "model.selector.attention=true")
    two = make_run(tmp_path / "ours", "GeoCo-SAVi", "train.seed=43")
    compare_runs([one, two], "main", tmp_path / "out")
    rows = read_table(tmp_path / "out", "main")
    assert list(rows) == ["ISA", "SlotAug", "GeoCo-SAVi (paper)", "GeoCo-SAVi (ours)"]
    with pytest.raises(GeocoError, match="another 'GeoCo-SAVi' among these runs"):
        compare_runs([one, two], "ablation", tmp_path / "out")


# -- what is best ----------------------------------------------------------------------------------


def summary(mean: float | None, deviation: float | None = None) -> Summary:
    return Summary(mean, deviation, int(mean is not None), 1)


@pytest.mark.parametrize(
    ("column", "values", "best"),
    [
        ("PSNR ↑", [(40, 0.5), (41, 0.9)], 1),
        ("PSNR ↑", [(40, 0.5), (41, 1.1)], None),
        ("PSNR ↑", [(40, 1.1), (41, 0.5)], None),
        ("PSNR ↑", [(40, None), (41, 0.5)], 1),
        ("PSNR ↑", [(40, None), (41, None)], None),
        ("D_app ↓", [(0.1, 0.01), (0.2, 0.01), (0.3, 0.01)], 0),
        ("D_app ↓", [(0.1, 0.01), (0.105, 0.01), (0.3, 0.01)], None),
        ("β_r → 1", [(1.2, 0.01), (0.9, 0.01)], 1),
        ("β_A → 2", [(1.95, 0.01), (1.0, 0.01)], 0),
        ("PSNR ↑", [(None, None), (41, 0.5)], None),
    ],
)
def test_a_difference_smaller_than_the_spread_is_none(
    column: str, values: Sequence[tuple[float | None, float | None]], best: int | None
) -> None:
    assert find_best(column, [summary(*value) for value in values]) == best


def test_how_a_summary_is_shown() -> None:
    assert format_summary(Summary(None, None, 0, 0), 2) == "not run"
    assert format_summary(Summary(1.234, None, 1, 1), 2) == "1.23"
    assert format_summary(Summary(None, None, 0, 1), 2) == "– (0/1)"
    assert format_summary(Summary(1.234, None, 1, 2), 2) == "1.23 (1/2)"
    assert format_summary(Summary(1.234, 0.056, 3, 4), 2) == "1.23 ± 0.06 (3/4)"


# -- what is refused -------------------------------------------------------------------------------


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    full = make_run(tmp_path / "full", "GeoCo-SAVi")
    cases = {
        "a table has one budget": make_run(tmp_path / "a", "Without L_ov", "train.budget=0.5"),
        r"trained otherwise than .*full \(train.batch\)": make_run(
            tmp_path / "b", "Without L_ov", "train.batch=32"
        ),
        r"another population than .*full \(windows differ\)": make_run(
            tmp_path / "c", "Without L_ov", population={"windows": 100}
        ),
        "'ISA' is no row of this table": make_run(tmp_path / "d", "ISA"),
        "another 'GeoCo-SAVi' of seed 42": make_run(tmp_path / "e", "GeoCo-SAVi"),
        "there is no config.yaml here": tmp_path,
    }
    (cases["there is no config.yaml here"] / "out").mkdir()
    for message, folder in cases.items():
        with pytest.raises(GeocoError, match=message):
            compare_runs([full, folder], "ablation", tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())
    with pytest.raises(GeocoError, match="expected one of main, ablation, decoders"):
        compare_runs([full], "ablations", tmp_path / "out")
    (tmp_path / "e" / "failed").write_text("")
    with pytest.raises(GeocoError, match="all of these runs failed"):
        compare_runs([tmp_path / "e"], "main", tmp_path / "out")


def test_a_run_that_is_not_evaluated_is_not_called_failed(tmp_path: Path) -> None:
    full = make_run(tmp_path / "full", "GeoCo-SAVi")
    for file in (full / "evaluation").iterdir():
        file.unlink()
    with pytest.raises(GeocoError, match="there are no results here"):
        compare_runs([full], "main", tmp_path / "out")


def test_by_the_command_line(tmp_path: Path) -> None:
    full = make_run(tmp_path / "full", "GeoCo-SAVi")
    arguments = ["compare", "--table", "ablation", str(full), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    assert "ablation.md" in done.output
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "ablation.json", "ablation.md", "ablation.tex",
    ]  # fmt: skip
