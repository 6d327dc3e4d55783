"""One function for each table of the paper: ours below what the paper prints.

Nothing here computes anything, and nothing needs torch: a table is made from what JSON holds. A
new table is one function and its name in `BUILDERS`.
"""

from collections.abc import Callable, Mapping

from geoco.reporting import paper
from geoco.reporting.cells import (
    KINDS,
    Grid,
    beside,
    defined,
    get,
    number,
    ours,
    share,
    times,
    with_intervals,
)
from geoco.reporting.paper import Cells
from geoco.reporting.results import Values
from geoco.reporting.tables_matched import common_edit, exact, oracle_rgb, rgb_preservation

SCOPES = ("all", "interior")
MAIN_SCALE = 0.2

Builder = Callable[[str, Values], Grid | None]  # from our row's name and a result's values


def grids(name: str, results: Mapping[str, Values]) -> list[Grid]:
    """Every table for which there are results; `name` is what our rows are called."""
    found: list[Grid | None] = []
    if "factual" in results or "stability" in results:
        found.append(main_factual(name, results))
    if "editing" in results:
        found.append(main_editing(name, results))
    for result, values in results.items():
        found += [build(name, values) for build in BUILDERS[result]]
    return [grid for grid in found if grid is not None]


def main_factual(name: str, results: Mapping[str, Values]) -> Grid:
    factual, stability = results.get("factual", {}), results.get("stability", {})
    spreads = stability.get("spreads", ())
    spread: Values = next((each for each in spreads if each["scale"] == MAIN_SCALE), {})
    errors = get(factual, "reference_errors")
    cells = (
        number(factual.get("psnr"), 3),
        number(get(factual, "position_error", "value"), 4),
        number(get(errors, "position_to_reference", "value"), 4),
        number(get(errors, "decoded_to_reference", "value"), 4),
        number(get(factual, "attention_overlap", "value"), 4),
        number(get(spread, "radius", "deviation"), 4),
        number(get(spread, "coverage", "deviation"), 4),
    )
    caption = (
        "PSNR is the mean over initialisations in dB. E_p→ĉ is over all valid objects, the other "
        "two errors over reference objects. Spreads fix s = 0.2."
    )
    rows = [(ours(name), *cells)]
    return beside(paper.MAIN_FACTUAL, "Factual reconstruction and geometry", rows, caption)


def main_editing(name: str, results: Mapping[str, Values]) -> Grid:
    everywhere, inside = (get(results, "editing", scope) for scope in SCOPES)
    cells = (
        *(number(get(everywhere, kind, "f1", "estimate"), 2) for kind in KINDS),
        number(get(inside, "position", "error", "value"), 4),
        number(get(inside, "curves", "radius", "value"), 4),
        number(get(inside, "curves", "coverage", "value"), 4),
        number(get(inside, "transplant", "error", "value"), 4),
    )
    caption = (
        "F1 is in percent over all valid edits; E_Δp (a fraction of the diagonal), slopes and "
        "D_app (grid L2) are over interior objects."
    )
    rows = [(ours(name), *cells)]
    return beside(paper.MAIN_EDITING, "Counterfactual editing capability", rows, caption)


def reconstruction(name: str, values: Values) -> Grid:
    """Not a table of the paper's Obj3D section: PSNR by initialisation, agreement with masks."""
    starts = values["psnr_of_initializations"]
    scores = ("foreground_ari", "ari", "mean_iou", "mean_best_overlap")
    columns = (
        "Method",
        *(f"PSNR of each initialisation: {number + 1} ↑" for number in range(len(starts))),
        *(f"Reference masks: {title} ↑" for title in ("FG-ARI", "ARI", "mIoU", "mBO")),
    )
    cells = (
        *(number(value, 3) for value in starts),
        *(number(get(values, "segmentation", score, "value"), 4) for score in scores),
    )
    caption = f"First frames of {values['windows']} windows; scores by frame, then averaged."
    return Grid("Reconstruction and segmentation", columns, ((ours(name), *cells),), caption)


def external_centers(name: str, values: Values) -> Grid | None:
    errors = values["reference_errors"]
    if errors is None:
        return None
    parts = ("position_to_decoded", "position_to_reference", "decoded_to_reference")
    counted = errors["decoded_to_reference"]
    caption = (
        f"Grid L2 over associated reference objects; here {defined(counted)} of them. The paper "
        "uses 9,255 objects of pseudo-labels."
    )
    rows = [(ours(name), *(number(errors[part]["value"], 5) for part in parts))]
    return beside(paper.EXTERNAL_CENTERS, "External position evaluation", rows, caption)


def all_slot_position(name: str, values: Values) -> Grid:
    error = values["position_error"]
    cells = (number(error["value"], 5), str(error["defined"]), str(values["objects"]))
    caption = "Grid L2 over all valid objects of the model."
    title = "All-slot position error"
    return beside(paper.ALL_SLOT_POSITION, title, [(ours(name), *cells)], caption)


def scale_calibration(name: str, values: Values) -> Grid:
    found = values["calibration"]
    parts = ("linear", "unit_slope_log", "log_ratio_deviation")
    cells = (str(found["observations"]), *(number(found[part], 4) for part in parts))
    caption = "Inferred scale and decoded radius of all valid objects."
    title = "Factual scale calibration"
    return beside(paper.SCALE_CALIBRATION, title, [(ours(name), *cells)], caption)


def editing(name: str, values: Values) -> Grid:
    rows: list[Cells] = []
    for scope in SCOPES:
        found = values[scope]
        errors = (get(found, kind, "error", "value") for kind in ("position", "transplant"))
        label = ours(f"{name}, {scope}")
        first, second = with_intervals(label, [found[kind]["f1"] for kind in KINDS], 2)
        rows += [(*first, *(number(error, 5) for error in errors)), (*second, "", "")]
    caption = (
        "F1 (percent) is over the valid edits of a scope, with 95% intervals over source videos. "
        "E_Δp is a fraction of the diagonal, D_app grid L2."
    )
    return beside(paper.EDITING, "Editing", rows, caption)


def curves(name: str, values: Values) -> Grid:
    rows = []
    for scope in SCOPES:
        parts = [values[scope]["curves"][part] for part in ("radius", "coverage")]
        cells = (*(number(part["value"], 5) for part in parts), *map(defined, parts))
        rows.append((ours(f"{name}, {scope}"), *cells))
    caption = "Slopes are means over defined curves; counts are defined/total."
    return beside(paper.CURVES, "Five-point scale response", rows, caption)


def counts(name: str, values: Values) -> Grid:
    rows = []
    for scope in SCOPES:
        found = values[scope]
        errors = (found[kind]["error"] for kind in ("position", "transplant"))
        cells = (*(str(found[kind]["edits"]) for kind in KINDS), *map(defined, errors))
        rows.append((ours(f"{name}, {scope}"), *cells))
    caption = "Denominators of F1, and defined/total center errors."
    return beside(paper.COUNTS, "Counts", rows, caption)


def disappearance(name: str, values: Values) -> Grid:
    rows = []
    for scope in reversed(SCOPES):
        parts = (values[scope][kind] for kind in KINDS)
        cells = (share(part["disappeared"], part["disappearable"]) for part in parts)
        rows.append((ours(f"{name}, {scope}"), *cells))
    caption = "Empty outputs / edits whose ideal target has any area (percent)."
    return beside(paper.DISAPPEARANCE, "Disappearance", rows, caption)


def noop(name: str, values: Values) -> Grid:
    rows = [(ours(name), *(number(values["all"][kind]["noop"], 2) for kind in KINDS))]
    caption = "F1 (percent) of the unchanged recipient, on the same edits."
    return beside(paper.NOOP, "No-op scores", rows, caption)


def fixed_geometry(name: str, values: Values) -> Grid:
    rows = [
        (
            ours(name),
            f"{spread['scale']:.1f}",
            *(number(spread["radius"][part], 5) for part in ("mean", "deviation", "variation")),
            number(spread["coverage"]["deviation"], 5),
            str(values["objects"]),
        )
        for spread in values["spreads"]
    ]
    caption = "Every valid object at the centre with its own background; N counts all."
    return beside(paper.FIXED_GEOMETRY, "Fixed-geometry stability", rows, caption)


def shared_background(name: str, values: Values) -> Grid:
    rows = []
    for spread in values["spreads"]:
        parts = (spread[part] for part in ("radius", "coverage"))
        cells = [part[of] for part in parts for of in ("mean", "deviation", "variation")]
        rows.append((ours(name), f"{spread['scale']:.1f}", *(number(cell, 5) for cell in cells)))
    caption = (
        f"Here {values['appearances']} objects with each of {len(values['backgrounds'])} "
        "backgrounds; statistics within a background, averaged over backgrounds."
    )
    return beside(paper.SHARED_BACKGROUND, "Shared-background stability", rows, caption)


def finite_grid(name: str, values: Values) -> Grid:
    rows = []
    for part, title in (("position", "translation"), ("scale", "scaling")):
        found = values[part]
        errors = (found[of] for of in ("native", "extended"))
        cells = (
            *(f"{number(times(error['value'], 100), 4)} ({error['defined']})" for error in errors),
            number(found["probability"]["value"], 5),
            *(number(times(found[of]["value"], 100), 2) for of in ("f1", "f1_bound")),
            str(found["f1"]["defined"]),
        )
        rows.append((ours(f"{name}, {title}"), *cells))
    caption = (
        f"Here {values['objects']} objects of {values['windows']} windows. Relative errors in "
        "percent with the number of edits that have enough pixels; F1 and its bound in percent."
    )
    return beside(paper.FINITE_GRID, "Finite-grid covariance", rows, caption)


def tubes(name: str, values: Values) -> Grid:
    rows = with_intervals(ours(name), [values[kind]["f1"] for kind in KINDS], 2)
    rows.append((ours(f"{name}, no-op"), *(number(values[kind]["noop"], 2) for kind in KINDS)))
    edits = ", ".join(f"{values[kind]['edits']} {kind}" for kind in KINDS)
    caption = (
        f"Tube F1 (percent) of one object in each of {values['eligible']} videos, all "
        f"{values['frames']} frames retained; edits: {edits}."
    )
    return beside(paper.TUBES, "Whole-video editing", rows, caption)


BUILDERS: dict[str, tuple[Builder, ...]] = {
    "factual": (reconstruction, external_centers, all_slot_position, scale_calibration),
    "editing": (editing, curves, counts, disappearance, noop),
    "stability": (fixed_geometry,),
    "shared-background": (shared_background,),
    "finite-grid": (finite_grid,),
    "matched": (common_edit, oracle_rgb, exact, rgb_preservation),
    "tubes": (tubes,),
}
