"""The tables of an evaluation as records: whom each fits, how it is computed and printed.

A new table is one more entry, `TABLES["mine"] = Table(compute, builders)`. It is then computed by
`evaluate` and `geoco eval`, stored as mine.json, and printed in Markdown and LaTeX.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from geoco import edit_maps
from geoco.errors import GeocoError
from geoco.evaluation import (
    covariance_bounds,
    matched,
    reference_tracks,
    stability,
    video_rows,
    windows,
)
from geoco.evaluation.editing import REPLICATES, record_edits, score_editing
from geoco.evaluation.factual import record_centers, score_factual
from geoco.evaluation.finite_grid import score_covariance
from geoco.evaluation.interfaces import ExtendedModel, SlotModel
from geoco.evaluation.video import record_tubes, score_tubes
from geoco.evaluation.windows import Factual, Progress, Windows
from geoco.metrics import rgb
from geoco.reporting import tables, tables_matched, tables_video
from geoco.reporting.cells import TextTable
from geoco.reporting.records import save_records
from geoco.reporting.results import Values

TableProgress = Callable[[str, int, int], None]  # what is under way, done, in total


@dataclass(frozen=True)
class Evaluation:
    """What tables are computed from; the factual pass runs once, when a table needs it."""

    model: SlotModel
    dataset: Windows
    folder: Path
    batch: int
    windows: int | None
    extended_windows: int | None
    progress: TableProgress
    tile: int | None
    whole_videos: bool = False  # all frames of every window, or the first
    spread: bool = False  # so many windows at equal steps from all, or the first

    @cached_property
    def factual(self) -> Factual:
        report = self.report_on("factual slots")
        if not self.whole_videos:
            return windows.compute_factual_of(
                self.model, self.dataset, self.chosen, self.batch, report
            )
        return video_rows.compute_video_factual(
            self.model, self.dataset, self.chosen, self.batch, report
        )

    @cached_property
    def chosen(self) -> Int64[np.ndarray, " window"]:
        return windows.choose_windows(self.dataset, self.windows, self.spread)

    @property
    def first_windows(self) -> Factual:
        """All that whole-video editing looks at: no more is computed than that, if it is alone."""
        if "factual" in vars(self):
            return self.factual
        chosen = video_rows.choose_first_windows(self.dataset, self.chosen)
        report = self.report_on("factual slots")
        return video_rows.compute_video_factual(
            self.model, self.dataset, chosen, self.batch, report
        )

    def report_on(self, table: str) -> Progress:
        return lambda done, total: self.progress(table, done, total)


def _fits_all(evaluation: Evaluation) -> bool:
    return True


def _say_nothing(evaluation: Evaluation) -> Values:
    return {}


@dataclass(frozen=True)
class Table:
    """One table. `compute` gives a dataclass of scores, which becomes the values of its JSON."""

    compute: Callable[[Evaluation, Progress], Any]
    builders: tuple[tables.Builder, ...]  # of the text tables that are made from the values
    video_builders: tuple[tables.Builder, ...] | None = None  # the same over all frames, if others
    fits: Callable[[Evaluation], bool] = _fits_all  # whether model and dataset can have it
    # What its own definition depends on, besides what all tables share: stored with the values.
    about: Callable[[Evaluation], Values] = _say_nothing


def build_text_tables(
    name: str, results: Mapping[str, Values], whole_videos: bool = False
) -> list[TextTable]:
    """Every text table for which there are results; `name` is what our rows are called.

    Results over all frames stand below what the paper prints of MOVi-C.
    """
    built: list[TextTable | None] = []
    for key, values in results.items():
        table = TABLES[key]
        builders = table.builders
        if whole_videos and table.video_builders is not None:
            builders = table.video_builders
        built += [build(name, values) for build in builders]
    build_main = tables_video.build_main_tables if whole_videos else tables.build_main_tables
    return [*build_main(name, results), *(table for table in built if table)]


# -- what the tables are computed by ---------------------------------------------------------------


def _compute_factual(evaluation: Evaluation, progress: Progress) -> Any:
    factual, centers = evaluation.factual, None
    if factual.reference is not None:
        centers = record_centers(factual)
        save_records(evaluation.folder, "factual", centers)
    return score_factual(evaluation.model, factual, evaluation.batch, progress, centers)


def _compute_editing(evaluation: Evaluation, progress: Progress) -> Any:
    records = record_edits(evaluation.model, evaluation.factual, evaluation.batch, progress)
    save_records(evaluation.folder, "editing", records)
    return score_editing(records)


def _compute_stability(evaluation: Evaluation, progress: Progress) -> Any:
    return stability.score_stability(
        evaluation.model, evaluation.factual, evaluation.batch, progress
    )


def _compute_shared_background(evaluation: Evaluation, progress: Progress) -> Any:
    return stability.score_shared_background(
        evaluation.model, evaluation.factual, evaluation.batch, progress
    )


def _compute_matched(evaluation: Evaluation, progress: Progress) -> Any:
    records = matched.record_matched(
        evaluation.model, evaluation.dataset, evaluation.factual, evaluation.batch, progress
    )
    save_records(evaluation.folder, "matched", records)
    return matched.score_matched(records)


def _compute_finite_grid(evaluation: Evaluation, progress: Progress) -> Any:
    return score_covariance(
        evaluation.model,
        evaluation.factual,
        evaluation.batch,
        evaluation.extended_windows,
        progress,
        evaluation.tile,
    )


def _compute_tubes(evaluation: Evaluation, progress: Progress) -> Any:
    if not evaluation.whole_videos:
        raise GeocoError(
            "whole-video editing is of all frames: evaluate a model that tracks slots, on windows "
            "of several frames (the length of the data's window), not on their first frames alone"
        )
    records = record_tubes(evaluation.model, evaluation.first_windows, evaluation.batch, progress)
    save_records(evaluation.folder, "tubes", records)
    return score_tubes(records)


# -- whom they fit ---------------------------------------------------------------------------------


def _has_explicit_slots(evaluation: Evaluation) -> bool:
    return evaluation.factual.explicit


def _has_reference_masks(evaluation: Evaluation) -> bool:
    return evaluation.dataset.batch([0]).masks is not None


def _draws_extended(evaluation: Evaluation) -> bool:
    return isinstance(evaluation.model, ExtendedModel)


def _has_masked_videos(evaluation: Evaluation) -> bool:
    return evaluation.whole_videos and _has_reference_masks(evaluation)


# -- what they are about ---------------------------------------------------------------------------


def _about_factual(evaluation: Evaluation) -> Values:
    if evaluation.whole_videos:
        return {"fewest pixels of a track": reference_tracks.FEWEST_PIXELS}
    return {"fewest pixels of a reference object": edit_maps.FEWEST_PIXELS}


def _about_editing(evaluation: Evaluation) -> Values:
    return {
        "interval replicates": REPLICATES,
        "interior": "object and ideal image avoid the outermost band of pixels",
    }


def _about_matched(evaluation: Evaluation) -> Values:
    about = {
        "interval replicates": matched.REPLICATES,
        "fewest pixels of a reference object": edit_maps.FEWEST_PIXELS,
        "editing region": f"supports expanded by {rgb.EXPANSION} pixels",
        "changed pixels": f"by more than {255 * rgb.CHANGED:.0f}/255",
    }
    if evaluation.whole_videos:
        size = 2 * rgb.EXPANSION + 1
        return about | {
            "fewest pixels of a track": reference_tracks.FEWEST_PIXELS,
            "preserved region": f"all but supports dilated by {size} x {size} pixels",
            "preserved edits": "recall and purity of the core at least "
            f"{reference_tracks.AGREEMENT:g}",
        }
    return about


def _about_finite_grid(evaluation: Evaluation) -> Values:
    values: dict[str, Any] = {
        "fewest pixels of a measurement": covariance_bounds.FEWEST_PIXELS,
        "precision": "float32, no TF32",
    }
    if evaluation.extended_windows is not None:
        values["windows of this table"] = evaluation.extended_windows
    return values


def _about_tubes(evaluation: Evaluation) -> Values:
    return {
        "interval replicates": REPLICATES,
        "fewest pixels of a track": reference_tracks.FEWEST_PIXELS,
    }


# In the order in which they are computed and printed.
TABLES: dict[str, Table] = {
    "factual": Table(
        _compute_factual,
        (
            tables.build_reconstruction,
            tables.build_external_centers,
            tables.build_all_slot_position,
            tables.build_scale_calibration,
        ),
        (
            tables_video.build_segmentation,
            tables_video.build_external_centers,
            tables.build_all_slot_position,
            tables.build_scale_calibration,
        ),
        about=_about_factual,
    ),
    "editing": Table(
        _compute_editing,
        (
            tables.build_editing,
            tables.build_curves,
            tables.build_counts,
            tables.build_disappearance,
            tables.build_noop,
        ),
        (
            tables_video.build_editing,
            tables.build_curves,
            tables.build_counts,
            tables.build_disappearance,
            tables_video.build_noop,
        ),
        about=_about_editing,
    ),
    "stability": Table(
        _compute_stability, (tables.build_fixed_geometry,), fits=_has_explicit_slots
    ),
    "shared-background": Table(
        _compute_shared_background, (tables.build_shared_background,), fits=_has_explicit_slots
    ),
    "matched": Table(
        _compute_matched,
        (
            tables_matched.build_common_edit,
            tables_matched.build_oracle_rgb,
            tables_matched.build_exact,
            tables_matched.build_rgb_preservation,
        ),
        (
            tables_matched.build_common_edit,
            tables_video.build_oracle_rgb,
            tables_video.build_rgb_preservation,
        ),
        fits=_has_reference_masks,
        about=_about_matched,
    ),
    "finite-grid": Table(
        _compute_finite_grid,
        (tables.build_finite_grid,),
        fits=_draws_extended,
        about=_about_finite_grid,
    ),
    "tubes": Table(
        _compute_tubes, (tables.build_tubes,), fits=_has_masked_videos, about=_about_tubes
    ),
}
