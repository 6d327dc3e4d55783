"""Results as files: one JSON per table, and Markdown in the layout of the paper's tables.

Nothing here computes anything, and nothing needs torch. A value that is undefined is null in JSON
and a dash in tables. The paper's printed values stand beside ours, labelled as such: they are of
Obj3D and of the authors' own runs.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from geoco.errors import GeocoError
from geoco.files import write_whole

FORMAT = 1
_DASH = "–"

# The paper's Table tab:obj3d-main, as printed.
PAPER_FACTUAL = {
    "ISA": (44.145, 0.1049, 0.1023, 0.0420, 0.0148, 0.0440, 0.0183),
    "SlotAug": (43.216, 0.0476, 0.0579, 0.0358, 0.0124, 0.0520, 0.0226),
    "GeoCo-SAVi": (44.210, 0.0107, 0.0436, 0.0391, 0.0007, 0.0211, 0.0086),
}
PAPER_EDITING = {
    "ISA": (86.35, 62.84, 75.73, 0.0091, 0.0939, -0.0092, 0.0442),
    "SlotAug": (90.78, 82.19, 78.20, 0.0060, 0.5412, 1.0575, 0.0321),
    "GeoCo-SAVi": (93.29, 92.72, 91.09, 0.0051, 1.0339, 2.0225, 0.0124),
}
FACTUAL_COLUMNS = (
    "PSNR ↑",
    "E_p→ĉ ↓",
    "E_p→c* ↓",
    "E_ĉ→c* ↓",
    "O_attn ↓",
    "σ_r\\|g ↓",
    "σ_A\\|g ↓",
)
EDITING_COLUMNS = ("F_pos ↑", "F_scl ↑", "F_app ↑", "E_Δp ↓", "β_r → 1", "β_A → 2", "D_app ↓")
_FACTUAL_DIGITS = (3, 4, 4, 4, 4, 4, 4)
_EDITING_DIGITS = (2, 2, 2, 4, 4, 4, 4)
_MAIN_SCALE = 0.2

Values = Mapping[str, Any]


def as_values(scores: Any) -> dict[str, Any]:
    """A dataclass of scores as what JSON holds: nan becomes null, tuples lists."""
    assert is_dataclass(scores)
    assert not isinstance(scores, type)
    values = _plain(asdict(scores))
    assert isinstance(values, dict)
    return values


def write_table(folder: Path, table: str, population: Values, values: Values) -> Path:
    """Write a finished table, whole or not at all."""
    content = {"format": FORMAT, "table": table, "population": population, "values": values}
    text = json.dumps(_plain(content), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    path = table_path(folder, table)
    write_whole(path, text.encode())
    return path


def read_table(folder: Path, table: str, population: Values) -> dict[str, Any] | None:
    """The values of a finished table of this population; None if there is none yet."""
    path = table_path(folder, table)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version, found, values = content["format"], content["population"], content["values"]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise GeocoError(f"{path}: damaged: delete it, and it is computed again") from None
    if version != FORMAT:
        raise GeocoError(
            f"{path}: results of format {version}, but this version of geoco-savi reads format "
            f"{FORMAT}: delete it, or write to another folder"
        )
    wanted = _plain(dict(population))
    changed = [name for name in {**found, **wanted} if found.get(name) != wanted.get(name)]
    if changed:
        raise GeocoError(
            f"{path}: results of another evaluation ({', '.join(changed)} differ): delete it, or "
            "write to another folder"
        )
    return dict(values)


def table_path(folder: Path, table: str) -> Path:
    return folder / f"{table}.json"


def markdown(name: str, population: Values, results: Mapping[str, Values]) -> str:
    """All finished tables; `name` is what our row is called."""
    parts = [f"# Evaluation of {name}", _population(population)]
    if {"factual", "stability"} & set(results) or "editing" in results:
        parts.append(main_table(name, results))
    writers = {
        "factual": _factual_details,
        "editing": _editing_details,
        "stability": _stability_details,
        "shared-background": _stability_details,
    }
    parts += [writers[table](table, values) for table, values in results.items()]
    return "\n\n".join(parts) + "\n"


def main_table(name: str, results: Mapping[str, Values]) -> str:
    """The paper's Table 1: its printed Obj3D rows, then ours."""
    factual, editing = results.get("factual", {}), results.get("editing", {})
    references = factual.get("reference_errors") or {}
    at_main = _at(results.get("stability", {}).get("spreads", ()), _MAIN_SCALE)
    ours = (
        factual.get("psnr"),
        _get(factual, "position_error", "value"),
        _get(references, "position_to_reference", "value"),
        _get(references, "decoded_to_reference", "value"),
        _get(factual, "attention_overlap", "value"),
        _get(at_main, "radius", "deviation"),
        _get(at_main, "coverage", "deviation"),
    )
    edits = (
        _get(editing, "all", "position", "f1", "estimate"),
        _get(editing, "all", "scale", "f1", "estimate"),
        _get(editing, "all", "transplant", "f1", "estimate"),
        _get(editing, "interior", "position", "error", "value"),
        _get(editing, "interior", "curves", "radius", "value"),
        _get(editing, "interior", "curves", "coverage", "value"),
        _get(editing, "interior", "transplant", "error", "value"),
    )
    label = f"**{name} (measured here)**"
    return "\n\n".join(
        (
            "## Factual reconstruction and geometry",
            _grid(
                ("Method", *FACTUAL_COLUMNS),
                [*_printed(PAPER_FACTUAL, _FACTUAL_DIGITS), _row(label, ours, _FACTUAL_DIGITS)],
            ),
            "## Counterfactual editing capability",
            _grid(
                ("Method", *EDITING_COLUMNS),
                [*_printed(PAPER_EDITING, _EDITING_DIGITS), _row(label, edits, _EDITING_DIGITS)],
            ),
            "Rows marked “paper, Obj3D” are the values that the paper prints, of its own data and "
            "training. F1 is in percent, over all valid edits; E_Δp, slopes and D_app are over "
            "interior objects; spreads fix s = 0.2.",
        )
    )


def _factual_details(table: str, values: Values) -> str:
    rows = [("PSNR, each initialisation", _join(values["psnr_of_initializations"], 3), "")]

    def add(title: str, mean: Values | None) -> None:
        if mean is not None:
            rows.append((title, _number(mean["value"], 5), f"{mean['defined']}/{mean['total']}"))

    add("E_p→ĉ, all valid objects", values["position_error"])
    add("O_attn", values["attention_overlap"])
    for title, name in (("FG-ARI", "foreground_ari"), ("ARI", "ari"), ("mIoU", "mean_iou")):
        add(title, _get(values, "segmentation", name))
    add("mBO", _get(values, "segmentation", "mean_best_overlap"))
    add("E_p→ĉ, reference objects", _get(values, "reference_errors", "position_to_decoded"))
    add("E_p→c*", _get(values, "reference_errors", "position_to_reference"))
    add("E_ĉ→c*", _get(values, "reference_errors", "decoded_to_reference"))
    calibration = values["calibration"]
    observed = str(calibration["observations"])
    rows.append(("Linear R² of r on s", _number(calibration["linear"], 4), observed))
    rows.append(("Unit-slope log R²", _number(calibration["unit_slope_log"], 4), observed))
    rows.append(("Std log(r/s)", _number(calibration["log_ratio_deviation"], 4), observed))
    return f"## Table: {table}\n\n" + _grid(("Score", "Value", "Defined / total"), rows)


def _editing_details(table: str, values: Values) -> str:
    columns = (
        "Scope / edit",
        "F1 (%)",
        "95% interval",
        "no-op (%)",
        "N",
        "center error",
        "defined",
    )
    rows, curves = [], []
    for scope in ("all", "interior"):
        for kind in ("position", "scale", "transplant"):
            found = values[scope][kind]
            error = found["error"]
            rows.append(
                (
                    f"{scope}, {kind}",
                    _number(found["f1"]["estimate"], 2),
                    f"[{_number(found['f1']['low'], 2)}, {_number(found['f1']['high'], 2)}]",
                    _number(found["noop"], 2),
                    str(found["edits"]),
                    _number(error["value"], 5) if error else _DASH,
                    f"{error['defined']}/{error['total']}" if error else _DASH,
                    f"{found['disappeared']}/{found['disappearable']}",
                )
            )
        found = values[scope]["curves"]
        cells = [_number(found[part]["value"], 5) for part in ("radius", "coverage")]
        cells += [f"{found[p]['defined']}/{found[p]['total']}" for p in ("radius", "coverage")]
        curves.append((scope, *cells))
    return "\n\n".join(
        (
            f"## Table: {table}",
            _grid((*columns, "disappeared"), rows),
            _grid(("Scale response", "β_r", "β_A", "β_r defined", "β_A defined"), curves),
        )
    )


def _stability_details(table: str, values: Values) -> str:
    rows = []
    for spread in values["spreads"]:
        cells = [
            _number(spread[part][name], 5)
            for part in ("radius", "coverage")
            for name in ("mean", "deviation", "variation")
        ]
        rows.append((_number(spread["scale"], 1), *cells))
    count = values.get("objects", values.get("appearances"))
    shared = values.get("backgrounds")
    among = f"{count} objects" + (f", {len(shared)} backgrounds" if shared is not None else "")
    columns = ("s", "mean r", "σ_r", "CV_r", "mean A", "σ_A", "CV_A")
    return f"## Table: {table} ({among})\n\n" + _grid(columns, rows)


def _population(population: Values) -> str:
    return _grid(("Population", ""), [(key, str(value)) for key, value in population.items()])


def _printed(rows: Mapping[str, Sequence[float]], digits: Sequence[int]) -> list[tuple[str, ...]]:
    return [_row(f"{name} (paper, Obj3D)", values, digits) for name, values in rows.items()]


def _row(label: str, values: Sequence[float | None], digits: Sequence[int]) -> tuple[str, ...]:
    return label, *(_number(v, d) for v, d in zip(values, digits, strict=True))


def _grid(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] + ["---:"] * (len(columns) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _number(value: float | None, digits: int) -> str:
    return _DASH if value is None or math.isnan(value) else f"{value:.{digits}f}"


def _join(values: Sequence[float | None], digits: int) -> str:
    return ", ".join(_number(value, digits) for value in values)


def _at(spreads: Sequence[Values], scale: float) -> Values:
    return next((spread for spread in spreads if spread["scale"] == scale), {})


def _get(values: Values, *path: str) -> Any:
    """What lies at the end of a path, None if it breaks off."""
    found: Any = values
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _plain(value: Any) -> Any:
    """Nested values as JSON has them."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
