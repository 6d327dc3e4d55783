"""Run folders with made-up results, one for each row of the paper's tables."""

from pathlib import Path
from typing import Any

from helpers import ROOT
from helpers_tables import make_all_tables

from geoco import config
from geoco.reporting.results import write_table

CONFIGS = ROOT / "configs"
FILES = {
    "GeoCo-SAVi": "geoco",
    "Conventional decoder": "conventional",
    "Without L_ov": "without-ov",
    "Without L_pos": "without-pos",
    "Without L_geo": "without-geo",
    "Without terminal readout": "without-readout",
    "Without selector": "without-selector",
    "Without L_tail": "without-tail",
    "Canonical-canvas": "canonical",
    "ISA": "isa",
    "SlotAug": "slotaug",
}
POPULATION = {
    "model": "a run",
    "data": "solids, val split: 200 videos of 100 frames",
    "windows": 2600,
    "frame": "the first of each window",
}


def make_run(
    folder: Path,
    row: str,
    *overrides: str,
    psnr: float | None = 31.25,
    population: dict[str, Any] | None = None,
) -> Path:
    """A run's folder with a configuration of the row and made-up results."""
    settings = config.load(CONFIGS / f"{FILES[row]}.yaml", overrides)
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(settings.to_yaml())
    tables = make_all_tables()
    tables["factual"] = {**tables["factual"], "psnr": psnr}
    for name in ("factual", "editing", "stability", "matched"):
        values = tables[name]
        about = {**POPULATION, "model": folder.name, **(population or {})}
        write_table(folder / "evaluation", name, about, values)
    return folder
