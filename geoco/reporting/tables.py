"""One function for each table of the paper: ours below what the paper prints.

Nothing here computes anything, and nothing needs torch: a text table is made from what JSON holds.
`geoco.evaluation.tables` says which text tables a result has.
"""

from collections.abc import Callable, Mapping

from geoco.reporting import paper, paper_video
from geoco.reporting.cells import (
    KINDS,
    TextTable,
    add_rows,
    format_defined,
    format_intervals,
    format_number,
    format_share,
    label_measured,
    look_up,
    multiply,
)
from geoco.reporting.measures import count_digits, read_measure
from geoco.reporting.paper import Cells
from geoco.reporting.results import Values

SCOPES = ("all", "interior")

Builder = Callable[[str, Values], TextTable | None]  # from our row's name and a result's values


def build_main_tables(name: str, results: Mapping[str, Values]) -> list[TextTable]:
    """The two halves of the paper's main table, each made from several results."""
    tables: list[TextTable] = []
    if "factual" in results or "stability" in results:
        tables.append(build_main_factual(name, results))
    if "editing" in results:
        tables.append(build_main_editing(name, results))
    return tables


def build_main_factual(name: str, results: Mapping[str, Values]) -> TextTable:
    cells = _read_cells(paper.MAIN_FACTUAL.columns, results)
    caption = (
        "PSNR is the mean over initialisations in dB. E_p→ĉ is over all valid objects, the other "
        "two errors over reference objects. Spreads fix s = 0.2."
    )
    rows = [(label_measured(name), *cells)]
    return add_rows(paper.MAIN_FACTUAL, "Factual reconstruction and geometry", rows, caption)


def build_main_editing(name: str, results: Mapping[str, Values]) -> TextTable:
    cells = _read_cells(paper.MAIN_EDITING.columns, results)
    caption = (
        "F1 is in percent over all valid edits; E_Δp (a fraction of the diagonal), slopes and "
        "D_app (grid L2) are over interior objects."
    )
    rows = [(label_measured(name), *cells)]
    return add_rows(paper.MAIN_EDITING, "Counterfactual editing capability", rows, caption)


def _read_cells(columns: Cells, results: Mapping[str, Values]) -> Cells:
    return tuple(
        format_number(read_measure(results, column), count_digits(column)) for column in columns[1:]
    )


def build_reconstruction(name: str, values: Values) -> TextTable:
    """Not a table of the paper's Obj3D section: PSNR by initialisation, agreement with masks."""
    starts = values["psnr_of_initializations"]
    scores = ("foreground_ari", "ari", "mean_iou", "mean_best_overlap")
    columns = (
        "Method",
        *(f"PSNR of each initialisation: {number + 1} ↑" for number in range(len(starts))),
        *(f"Reference masks: {title} ↑" for title in ("FG-ARI", "ARI", "mIoU", "mBO")),
    )
    cells = (
        *(format_number(value, 3) for value in starts),
        *(format_number(look_up(values, "segmentation", score, "value"), 4) for score in scores),
    )
    caption = f"First frames of {values['windows']} windows; scores by frame, then averaged."
    return TextTable(
        "Reconstruction and segmentation", columns, ((label_measured(name), *cells),), caption
    )


def build_external_centers(name: str, values: Values) -> TextTable | None:
    errors = values["reference_errors"]
    if errors is None:
        return None
    parts = ("position_to_decoded", "position_to_reference", "decoded_to_reference")
    counted = errors["decoded_to_reference"]
    caption = (
        f"Grid L2 over associated reference objects; here {format_defined(counted)} of them. "
        "The paper uses 9,255 objects of pseudo-labels."
    )
    rows = [(label_measured(name), *(format_number(errors[part]["value"], 5) for part in parts))]
    return add_rows(paper.EXTERNAL_CENTERS, "External position evaluation", rows, caption)


def build_all_slot_position(name: str, values: Values) -> TextTable:
    error = values["position_error"]
    cells = (format_number(error["value"], 5), str(error["defined"]), str(values["objects"]))
    caption = "Grid L2 over all valid objects of the model."
    title = "All-slot position error"
    return add_rows(paper.ALL_SLOT_POSITION, title, [(label_measured(name), *cells)], caption)


def build_scale_calibration(name: str, values: Values) -> TextTable:
    calibration = values["calibration"]
    parts = ("linear", "unit_slope_log", "log_ratio_deviation")
    cells = (
        str(calibration["observations"]),
        *(format_number(calibration[part], 4) for part in parts),
    )
    caption = "Inferred scale and decoded radius of all valid objects."
    title = "Factual scale calibration"
    return add_rows(paper.SCALE_CALIBRATION, title, [(label_measured(name), *cells)], caption)


def build_editing(name: str, values: Values) -> TextTable:
    rows: list[Cells] = []
    for scope in SCOPES:
        scores = values[scope]
        errors = (look_up(scores, kind, "error", "value") for kind in ("position", "transplant"))
        label = label_measured(f"{name}, {scope}")
        first, second = format_intervals(label, [scores[kind]["f1"] for kind in KINDS], 2)
        rows += [(*first, *(format_number(error, 5) for error in errors)), (*second, "", "")]
    caption = (
        "F1 (percent) is over the valid edits of a scope, with 95% intervals over source videos. "
        "E_Δp is a fraction of the diagonal, D_app grid L2."
    )
    return add_rows(paper.EDITING, "Editing", rows, caption)


def build_curves(name: str, values: Values) -> TextTable:
    rows = []
    for scope in SCOPES:
        parts = [values[scope]["curves"][part] for part in ("radius", "coverage")]
        cells = (*(format_number(part["value"], 5) for part in parts), *map(format_defined, parts))
        rows.append((label_measured(f"{name}, {scope}"), *cells))
    caption = "Slopes are means over defined curves; counts are defined/total."
    return add_rows(paper.CURVES, "Five-point scale response", rows, caption)


def build_counts(name: str, values: Values) -> TextTable:
    rows = []
    for scope in SCOPES:
        scores = values[scope]
        errors = (scores[kind]["error"] for kind in ("position", "transplant"))
        cells = (*(str(scores[kind]["edits"]) for kind in KINDS), *map(format_defined, errors))
        rows.append((label_measured(f"{name}, {scope}"), *cells))
    caption = "Denominators of F1, and defined/total center errors."
    return add_rows(paper.COUNTS, "Counts", rows, caption)


def build_disappearance(name: str, values: Values) -> TextTable:
    rows = []
    for scope in reversed(SCOPES):
        parts = (values[scope][kind] for kind in KINDS)
        cells = (format_share(part["disappeared"], part["disappearable"]) for part in parts)
        rows.append((label_measured(f"{name}, {scope}"), *cells))
    caption = "Empty outputs / edits whose ideal target has any area (percent)."
    return add_rows(paper.DISAPPEARANCE, "Disappearance", rows, caption)


def build_noop(name: str, values: Values) -> TextTable:
    rows = [
        (label_measured(name), *(format_number(values["all"][kind]["noop"], 2) for kind in KINDS))
    ]
    caption = "F1 (percent) of the unchanged recipient, on the same edits."
    return add_rows(paper.NOOP, "No-op scores", rows, caption)


def build_fixed_geometry(name: str, values: Values) -> TextTable:
    rows = [
        (
            label_measured(name),
            f"{spread['scale']:.1f}",
            *(
                format_number(spread["radius"][part], 5)
                for part in ("mean", "deviation", "variation")
            ),
            format_number(spread["coverage"]["deviation"], 5),
            str(values["objects"]),
        )
        for spread in values["spreads"]
    ]
    caption = "Every valid object at the centre with its own background; N counts all."
    return add_rows(paper.FIXED_GEOMETRY, "Fixed-geometry stability", rows, caption)


def build_shared_background(name: str, values: Values) -> TextTable:
    rows = []
    for spread in values["spreads"]:
        parts = (spread[part] for part in ("radius", "coverage"))
        cells = [part[of] for part in parts for of in ("mean", "deviation", "variation")]
        rows.append(
            (
                label_measured(name),
                f"{spread['scale']:.1f}",
                *(format_number(cell, 5) for cell in cells),
            )
        )
    caption = (
        f"Here {values['appearances']} objects with each of {len(values['backgrounds'])} "
        "backgrounds; statistics within a background, averaged over backgrounds."
    )
    return add_rows(paper.SHARED_BACKGROUND, "Shared-background stability", rows, caption)


def build_finite_grid(name: str, values: Values) -> TextTable:
    rows = []
    for part, title in (("position", "translation"), ("scale", "scaling")):
        measured = values[part]
        errors = (measured[of] for of in ("native", "extended"))
        cells = (
            *(
                f"{format_number(multiply(error['value'], 100), 4)} ({error['defined']})"
                for error in errors
            ),
            format_number(measured["probability"]["value"], 5),
            *(format_number(multiply(measured[of]["value"], 100), 2) for of in ("f1", "f1_bound")),
            str(measured["f1"]["defined"]),
        )
        rows.append((label_measured(f"{name}, {title}"), *cells))
    caption = (
        f"Here {values['objects']} objects of {values['windows']} windows. Relative errors in "
        "percent with the number of edits that have enough pixels; F1 and its bound in percent."
    )
    return add_rows(paper.FINITE_GRID, "Finite-grid covariance", rows, caption)


def build_tubes(name: str, values: Values) -> TextTable:
    rows = format_intervals(label_measured(name), [values[kind]["f1"] for kind in KINDS], 2)
    rows.append(
        (
            label_measured(f"{name}, no-op"),
            *(format_number(values[kind]["noop"], 2) for kind in KINDS),
        )
    )
    edits = ", ".join(f"{values[kind]['edits']} {kind}" for kind in KINDS)
    caption = (
        f"Tube F1 (percent) of one object in each of {values['eligible']} videos, all "
        f"{values['frames']} frames retained; edits: {edits}."
    )
    return add_rows(paper_video.TUBES, "Whole-video editing", rows, caption)
