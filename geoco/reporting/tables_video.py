"""The tables of whole videos that differ from those of single frames: the paper's Tables 2 and 3.

Those with the same columns are made by the same functions (`tables`, `tables_matched`), from the
same kinds of values over all frames. What a model without positions and scales cannot have is N/A.
"""

from collections.abc import Mapping
from dataclasses import replace

from geoco.reporting import paper_video, tables, tables_matched
from geoco.reporting.cells import (
    DASH,
    KINDS,
    TextTable,
    add_rows,
    format_defined,
    format_intervals,
    format_number,
    label_measured,
    look_up,
    multiply,
)
from geoco.reporting.measures import MAIN_SCALE
from geoco.reporting.results import Values
from geoco.reporting.tables_matched import list_counts

UNSUPPORTED = "N/A"


def build_main_tables(name: str, results: Mapping[str, Values]) -> list[TextTable]:
    """The two halves of Table 3, each made from several results."""
    built: list[TextTable] = []
    if "factual" in results or "stability" in results:
        built.append(build_main_factual(name, results))
    if "editing" in results or "tubes" in results:
        built.append(build_main_editing(name, results))
    return built


def build_main_factual(name: str, results: Mapping[str, Values]) -> TextTable:
    factual, stability = results.get("factual", {}), results.get("stability", {})
    spreads = stability.get("spreads", ())
    spread: Values = next((each for each in spreads if each["scale"] == MAIN_SCALE), {})
    parts = ("position_to_decoded", "position_to_reference", "decoded_to_reference")
    errors = [look_up(factual, "reference_errors", part) for part in parts]
    cells = (
        format_number(factual.get("psnr"), 3),
        *(format_number(look_up(error, "value"), 4) for error in errors),
        format_number(look_up(factual, "attention_overlap", "value"), 4),
        format_number(look_up(spread, "radius", "deviation"), 4),
        format_number(look_up(spread, "coverage", "deviation"), 4),
    )
    caption = (
        f"PSNR (dB) is by video, its MSE over all frames, of {factual.get('windows', DASH)} videos "
        f"of {factual.get('frames', DASH)} frames. Position errors are over "
        f"{format_defined(errors[-1])} tracks, O_attn over {_describe_attention(factual)}. Spreads "
        f"fix s = 0.2 and are over {stability.get('objects', DASH)} objects of single frames."
    )
    rows = [_mark_unsupported((label_measured(name), *cells), results)]
    title = "Factual reconstruction and geometry of videos"
    return add_rows(paper_video.MAIN_FACTUAL, title, rows, caption)


def build_main_editing(name: str, results: Mapping[str, Values]) -> TextTable:
    tubes, inside = results.get("tubes", {}), look_up(results, "editing", "interior")

    def count_defined(*path: str) -> str:
        return format_defined(look_up(inside, *path))

    cells = (
        *(format_number(look_up(tubes, kind, "f1", "estimate"), 2) for kind in KINDS),
        format_number(look_up(inside, "position", "error", "value"), 4),
        format_number(look_up(inside, "curves", "radius", "value"), 4),
        format_number(look_up(inside, "curves", "coverage", "value"), 4),
        format_number(look_up(inside, "transplant", "error", "value"), 4),
    )
    caption = (
        f"F1 (percent) pools all frames of a video and is over {tubes.get('eligible', DASH)} "
        "videos with one edited object each. Over interior edits of all frames: E_Δp (a fraction "
        f"of the diagonal), {count_defined('position', 'error')}, β_r and β_A, "
        f"{count_defined('curves', 'radius')} and {count_defined('curves', 'coverage')}, and D_app "
        f"(grid L2), {count_defined('transplant', 'error')}."
    )
    rows = [_mark_unsupported((label_measured(name), *cells), results)]
    return add_rows(paper_video.MAIN_EDITING, "Video editing and geometry response", rows, caption)


def build_segmentation(name: str, values: Values) -> TextTable:
    """Table 2."""
    scores = ("foreground_ari", "ari", "mean_iou", "mean_best_overlap")
    measured = [look_up(values, "segmentation", score) for score in scores]
    cells = (format_number(look_up(score, "value"), 4) for score in measured)
    caption = (
        f"All {values.get('frames', 1)} frames of a video together, {format_defined(measured[1])} "
        "videos weighing the same; masks at their own size, to which alpha is enlarged before its "
        "argmax. ARI has the background."
    )
    rows = [(label_measured(name), *cells)]
    return add_rows(paper_video.SEGMENTATION, "Segmentation of videos", rows, caption)


def build_external_centers(name: str, values: Values) -> TextTable | None:
    errors = values["reference_errors"]
    if errors is None:
        return None
    parts = ("position_to_decoded", "position_to_reference", "decoded_to_reference")
    caption = (
        "Grid L2, each track in the frame in which most of it is visible; here "
        f"{format_defined(errors['decoded_to_reference'])} of them."
    )
    rows = [(label_measured(name), *(format_number(errors[part]["value"], 5) for part in parts))]
    title = "External position evaluation of tracks"
    return add_rows(paper_video.EXTERNAL_CENTERS, title, rows, caption)


def build_rgb_preservation(name: str, values: Values) -> TextTable:
    intervals = [
        {
            end: multiply(look_up(values, kind, part, end), factor)
            for end in ("estimate", "low", "high")
        }
        for part, factor in (("change", 1000), ("changed", 100))
        for kind in KINDS
    ]
    videos = ", ".join(str(_count(values, kind, "carried_videos")) for kind in KINDS)
    caption = (
        "Changes from the factual reconstruction outside of the supports' surroundings, of objects "
        "whose core and slot agree for the better part: "
        f"{list_counts(values, 'carried', KINDS)} edits, of {videos} videos."
    )
    rows = format_intervals(label_measured(name), intervals, 4)
    return add_rows(paper_video.RGB_PRESERVATION, "RGB preservation in videos", rows, caption)


def build_editing(name: str, values: Values) -> TextTable:
    table = tables.build_editing(name, values)
    return _add_population(table, f"Here {values['objects']} valid objects of all frames.")


def build_noop(name: str, values: Values) -> TextTable:
    edits = ", ".join(f"{values['all'][kind]['edits']} {kind}" for kind in KINDS)
    return _add_population(tables.build_noop(name, values), f"Here {edits}.")


def build_oracle_rgb(name: str, values: Values) -> TextTable:
    videos = _count(values, "position", "videos")
    return _add_population(
        tables_matched.build_oracle_rgb(name, values),
        f"They are of tracks of {videos} videos, which weigh the same.",
    )


def _add_population(table: TextTable, sentence: str) -> TextTable:
    return replace(table, caption=f"{table.caption} {sentence}")


def _count(values: Values, *path: str) -> int | str:
    """A number of a result; results of earlier versions may lack it."""
    count = look_up(values, *path)
    return DASH if count is None else int(count)


def _describe_attention(factual: Values) -> str:
    """Which slots' attention an overlap is of."""
    frames = factual.get("attention_overlap") or {"defined": 0, "total": 0}
    counted = f"{format_defined(frames)} frames"
    active = factual.get("active_slots")
    if active is None:
        return f"all slots of {counted}"
    return f"the active slots alone ({format_number(active, 2)} of a frame) of {counted}"


def _mark_unsupported(row: tuple[str, ...], results: Mapping[str, Values]) -> tuple[str, ...]:
    """Dashes become N/A in the row of a model without positions and scales."""
    error = look_up(results, "factual", "position_error") or {}
    if error.get("total", 0) == 0 or error.get("defined", 0) > 0:
        return row
    return tuple(UNSUPPORTED if cell == DASH else cell for cell in row)
