"""The headline numbers of a result by the columns of the paper's tables, and how they are rounded.

Nothing here computes anything, and nothing needs torch.
"""

from collections.abc import Mapping

from geoco.reporting.cells import look_up
from geoco.reporting.results import Values

MAIN_SCALE = 0.2  # at which the main table's spreads are
_PATHS = {
    "PSNR ↑": ("factual", "psnr"),
    "E_p→ĉ ↓": ("factual", "position_error", "value"),
    "E_p→c* ↓": ("factual", "reference_errors", "position_to_reference", "value"),
    "E_ĉ→c* ↓": ("factual", "reference_errors", "decoded_to_reference", "value"),
    "O_attn ↓": ("factual", "attention_overlap", "value"),
    "σ_r|g ↓": ("spread", "radius", "deviation"),
    "σ_A|g ↓": ("spread", "coverage", "deviation"),
    "F_pos ↑": ("editing", "all", "position", "f1", "estimate"),
    "F_scl ↑": ("editing", "all", "scale", "f1", "estimate"),
    "F_app ↑": ("editing", "all", "transplant", "f1", "estimate"),
    "E_Δp ↓": ("editing", "interior", "position", "error", "value"),
    "β_r → 1": ("editing", "interior", "curves", "radius", "value"),
    "β_A → 2": ("editing", "interior", "curves", "coverage", "value"),
    "D_app ↓": ("editing", "interior", "transplant", "error", "value"),
    "PSNR_pos ↑": ("matched", "position", "oracle", "full", "estimate"),
    "PSNR_scl ↑": ("matched", "scale", "oracle", "full", "estimate"),
    "PSNR_app ↑": ("matched", "transplant", "oracle", "full", "estimate"),
}


def read_measure(results: Mapping[str, Values], column: str) -> float | None:
    """What a column of the main tables says of a result; None where it is undefined."""
    spreads = results.get("stability", {}).get("spreads", ())
    spread: Values = next((each for each in spreads if each["scale"] == MAIN_SCALE), {})
    value: float | None = look_up({**results, "spread": spread}, *_PATHS[column])
    return value


def count_digits(column: str) -> int:
    """Digits after the point: of decibels, percent, and everything else."""
    if column.startswith("PSNR"):
        return 3
    return 2 if column.startswith("F_") else 4
