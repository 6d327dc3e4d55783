"""Evaluation: do slots obey commands? Populations, edits, tables, for any slot model."""

from geoco.evaluation.adapters import ADAPTERS, GeoCoModel, adapter
from geoco.evaluation.commands import FACTORS, MOVES, Commands, Eligibility
from geoco.evaluation.compare import Comparison, compare
from geoco.evaluation.editing import EditingScores, EditRecords, Records, score_editing
from geoco.evaluation.factual import FactualScores
from geoco.evaluation.figures import write_figures
from geoco.evaluation.interfaces import (
    CommandModel,
    Encoded,
    ExtendedModel,
    OneSlotModel,
    SlotModel,
    TrackedSlots,
    VideoModel,
    make_unplaced_slots,
)
from geoco.evaluation.run import (
    FrameChoice,
    Results,
    evaluate,
    read_matched,
    read_records,
    read_tubes,
)
from geoco.evaluation.stability import SharedBackgroundScores, StabilityScores
from geoco.evaluation.tables import (
    TABLES,
    Evaluation,
    Table,
    build_text_tables,
)
from geoco.evaluation.video_rows import compute_video_factual
from geoco.evaluation.windows import Factual, Windows, draw_starting_positions, order_window_major
from geoco.reporting.formats import format_latex, format_markdown
from geoco.reporting.paper_rows import covers_videos
from geoco.reporting.results import as_values, read_table, write_table

__all__ = [
    "ADAPTERS",
    "FACTORS",
    "MOVES",
    "TABLES",
    "CommandModel",
    "Commands",
    "Comparison",
    "EditRecords",
    "EditingScores",
    "Eligibility",
    "Encoded",
    "Evaluation",
    "ExtendedModel",
    "Factual",
    "FactualScores",
    "FrameChoice",
    "GeoCoModel",
    "OneSlotModel",
    "Records",
    "Results",
    "SharedBackgroundScores",
    "SlotModel",
    "StabilityScores",
    "Table",
    "TrackedSlots",
    "VideoModel",
    "Windows",
    "adapter",
    "as_values",
    "build_text_tables",
    "compare",
    "compute_video_factual",
    "covers_videos",
    "draw_starting_positions",
    "evaluate",
    "format_latex",
    "format_markdown",
    "make_unplaced_slots",
    "order_window_major",
    "read_matched",
    "read_records",
    "read_table",
    "read_tubes",
    "score_editing",
    "write_figures",
    "write_table",
]
