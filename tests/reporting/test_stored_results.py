"""Published tables are exactly what the stored results give."""

import json
import shutil
from pathlib import Path

import pytest
from helpers import ROOT
from helpers_runs import make_run

from geoco.reporting.tables_runs import TABLES, compare_runs

RESULTS = ROOT / "results"
PUBLISHED = sorted((RESULTS / "tables").glob("*.json"))


def list_changed(results: Path, table: str, folder: Path) -> list[str]:
    """Files of a published table that its runs, as stored, do not give."""
    stored = results / "tables"
    rows = json.loads((stored / f"{table}.json").read_text())["values"]["rows"]
    runs = [results / name for row in rows for name in row["runs"]]
    compare_runs(runs, table, folder)
    names = [f"{table}.{suffix}" for suffix in ("json", "md", "tex")]
    return [name for name in names if (folder / name).read_bytes() != (stored / name).read_bytes()]


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_a_published_table_is_of_the_stored_results(path: Path, tmp_path: Path) -> None:
    assert list_changed(RESULTS, path.stem, tmp_path) == []


def test_every_stored_run_is_in_a_table() -> None:
    folders = [path.parent.name for path in RESULTS.glob("*/config.yaml")]
    named = {
        name
        for path in PUBLISHED
        for row in json.loads(path.read_text())["values"]["rows"]
        for name in row["runs"]
    }
    assert set(folders) == named
    assert {path.stem for path in PUBLISHED} <= set(TABLES)


def test_a_changed_number_is_noticed(tmp_path: Path) -> None:
    """In a result, and in a table."""
    results = tmp_path / "results"
    for seed, psnr in ((42, 40.0), (43, 41.0)):
        run = make_run(tmp_path / "runs" / str(seed), "ISA", f"train.seed={seed}", psnr=psnr)
        target = results / f"isa-{seed}"
        shutil.copytree(run / "evaluation", target)
        shutil.copy(run / "config.yaml", target)
    compare_runs([results / "isa-42", results / "isa-43"], "main", results / "tables")
    assert list_changed(results, "main", tmp_path / "one") == []

    path = results / "tables" / "main.md"
    path.write_text(path.read_text().replace("40.500 ± 0.707", "40.600 ± 0.707"))
    assert list_changed(results, "main", tmp_path / "two") == ["main.md"]
    compare_runs([results / "isa-42", results / "isa-43"], "main", results / "tables")
    factual = results / "isa-43" / "factual.json"
    factual.write_text(factual.read_text().replace('"psnr": 41.0', '"psnr": 41.5'))
    assert list_changed(results, "main", tmp_path / "three") == ["main.json", "main.md", "main.tex"]
