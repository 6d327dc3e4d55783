"""The tables of object-matched editing: the same reference objects for all models.

Targets of the paper's Obj3D are made from pictures; a generator can also draw the edited scene
itself, which gives a table that the paper does not have. Nothing needs torch.
"""

from collections.abc import Sequence

from geoco.reporting import paper
from geoco.reporting.cells import (
    KINDS,
    TextTable,
    add_rows,
    format_intervals,
    label_measured,
    look_up,
    multiply,
)
from geoco.reporting.paper import Cells
from geoco.reporting.results import Values


def build_common_edit(name: str, values: Values) -> TextTable:
    kinds = ("position", "scale")
    rows = format_intervals(label_measured(name), [values[kind]["f1"] for kind in kinds], 2)
    edits = " and ".join(f"{values[kind]['common']} {kind}" for kind in kinds)
    caption = (
        f"F1 (percent) of reference objects; here {edits} edits of {values['objects']} objects in "
        f"{values['videos']} videos, which weigh the same."
    )
    return add_rows(paper.COMMON_EDIT, "Object-matched editing", rows, caption)


def build_oracle_rgb(name: str, values: Values) -> TextTable:
    rows = [
        *_likeness(name, values, "oracle"),
        *_likeness(f"{name}, unedited", values, "unedited"),
    ]
    counts = ", ".join(f"{values[kind]['edits']} {kind}" for kind in KINDS)
    caption = f"Targets are made from the input and reference masks. Edits here: {counts}."
    return add_rows(paper.ORACLE_RGB, "PSNR (dB) against RGB oracle edits", rows, caption)


def build_exact(name: str, values: Values) -> TextTable | None:
    """Where the generator can draw what was asked for."""
    if all(values[kind]["exact"] is None for kind in KINDS):
        return None
    masks = format_intervals("", [values[kind]["exact_f1"] for kind in KINDS], 2)
    pictures = _likeness(name, values, "exact")
    rows = [(*row, *cells[1:]) for row, cells in zip(pictures, masks, strict=True)]
    rows += [(*row, *[""] * len(KINDS)) for row in _likeness("oracle", values, "oracle_exact")]
    columns = (*paper.ORACLE_RGB.columns, *(f"F1 (%): {kind.capitalize()} ↑" for kind in KINDS))
    caption = (
        "The generator drew the edited scene, and what is visible in it. F1 is over edits that "
        f"leave ten pixels visible: {list_counts(values, 'visible', KINDS)}."
    )
    title = "PSNR (dB) and F1 against the generator’s edits"
    return TextTable(title, columns, tuple(rows), caption)


def build_rgb_preservation(name: str, values: Values) -> TextTable:
    kinds = ("position", "scale")
    intervals = [
        {
            end: multiply(look_up(values, kind, part, end), factor)
            for end in ("estimate", "low", "high")
        }
        for part, factor in (("change", 1000), ("changed", 100))
        for kind in kinds
    ]
    rows = format_intervals(label_measured(name), intervals, 4)
    caption = (
        "Changes from the factual reconstruction outside the editing region. They are over edits "
        f"that could be carried out: {list_counts(values, 'carried', kinds)}."
    )
    return add_rows(paper.RGB_PRESERVATION, "RGB preservation", rows, caption)


def _likeness(name: str, values: Values, part: str) -> list[Cells]:
    """PSNR on the full image and on the editing region."""
    intervals = [look_up(values, kind, part, of) for of in ("full", "region") for kind in KINDS]
    return format_intervals(label_measured(name), intervals, 3)


def list_counts(values: Values, part: str, kinds: Sequence[str]) -> str:
    """Defined of all edits, kind by kind."""
    return ", ".join(f"{values[kind][part]}/{values[kind]['edits']} {kind}" for kind in kinds)
