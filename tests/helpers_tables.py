"""Made-up results of every table."""

import math
from typing import Any

from geoco.evaluation.editing import Curves, EditingScores, Kind, Scope
from geoco.evaluation.factual import (
    FactualScores,
    Mean,
    ReferenceErrors,
    ScaleCalibration,
    Segmentation,
)
from geoco.evaluation.matched import Likeness, MatchedKind, MatchedScores
from geoco.evaluation.stability import SharedBackgroundScores, SpreadAtScale, StabilityScores
from geoco.metrics import Interval, Spread
from geoco.reporting import results

Values = dict[str, Any]


def make_factual(
    segmentation: Segmentation | None = None, errors: ReferenceErrors | None = None
) -> Values:
    return results.as_values(
        FactualScores(
            windows=26,
            objects=93,
            psnr=31.25,
            psnr_of_initializations=(31.0, 31.5, 31.125, math.nan),
            attention_overlap=Mean(0.00123, 26, 26),
            position_error=Mean(0.012346, 90, 93),
            segmentation=segmentation,
            reference_errors=errors,
            calibration=ScaleCalibration(0.5, -0.25, 0.12345, 93),
        )
    )


def make_kind(start: float, error: Mean | None, edits: int = 8) -> Kind:
    f1 = Interval(start, start - 1.5, start + 1.25)
    return Kind(f1, start / 2, edits, error, disappeared=1, disappearable=edits)


def make_editing() -> Values:
    curves = Curves(Mean(1.03, 7, 9), Mean(-0.5, 8, 9))
    nothing = Interval(math.nan, math.nan, math.nan)
    none = Kind(nothing, math.nan, 0, Mean(math.nan, 0, 0), 0, 0)
    everywhere = Scope(
        make_kind(90, Mean(0.0123, 30, 36)),
        make_kind(80, None),
        make_kind(70, Mean(0.25, 8, 8)),
        curves,
    )
    inside = Scope(make_kind(91, Mean(0.0061, 20, 20)), make_kind(81, None), none, curves)
    return results.as_values(EditingScores(9, everywhere, inside))


def make_spreads() -> tuple[SpreadAtScale, ...]:
    return tuple(
        SpreadAtScale(scale, Spread(scale, scale / 8, 0.125), Spread(scale**2, 0.03125, 0.5))
        for scale in (0.1, 0.2, 0.3)
    )


def make_matched(exact: bool) -> Values:
    def score(value: float) -> Interval:
        return Interval(value, value - 0.5, value + 0.5)

    def likeness(value: float) -> Likeness:
        return Likeness(score(value), score(value - 10))

    def part(base: float, f1: Interval | None) -> MatchedKind:
        return MatchedKind(
            edits=40,
            unassociated=1,
            common=38,
            f1=f1,
            oracle=likeness(base),
            unedited=likeness(base - 5),
            exact=likeness(base + 1) if exact else None,
            exact_f1=score(2 * base) if exact else None,
            oracle_exact=likeness(base + 2) if exact else None,
            change=Interval(0.0005, 0.00025, 0.00075),
            changed=Interval(0.0125, 0.01, 0.015),
            visible=37 if exact else 0,
            carried=39,
            videos=3,
            carried_videos=2,
        )

    return results.as_values(
        MatchedScores(10, 6, 3, part(36, score(93)), part(37, score(92)), part(35, None))
    )


def make_finite_grid() -> Values:
    def mean(value: float, defined: int) -> Values:
        return {"value": value, "defined": defined, "total": 40}

    def part(error: float) -> Values:
        return {
            "native": mean(error, 39),
            "extended": mean(error / 2, 40),
            "probability": mean(0.0042, 40),
            "f1": mean(0.9587, 38),
            "f1_bound": mean(0.95, 38),
        }

    scale = {**part(0.02), "native": {"value": None, "defined": 0, "total": 40}}
    return {"windows": 12, "objects": 10, "position": part(0.000325), "scale": scale}


def make_tubes() -> Values:
    def part(value: float) -> Values:
        interval = {"estimate": value, "low": value - 1, "high": value + 1}
        return {"f1": interval, "noop": value / 2, "edits": 12}

    parts = {"position": part(86.5), "scale": part(84.5), "transplant": part(74)}
    return {"videos": 4, "eligible": 3, "frames": 20, **parts}


def make_all_tables() -> dict[str, Values]:
    agreement = Segmentation(Mean(0.9, 26, 26), Mean(0.8, 26, 26), Mean(0.7, 26, 26), Mean(1, 2, 2))
    errors = ReferenceErrors(Mean(0.01, 80, 88), Mean(0.02, 80, 88), Mean(0.03, 80, 88))
    return {
        "factual": make_factual(agreement, errors),
        "editing": make_editing(),
        "stability": results.as_values(StabilityScores(93, make_spreads())),
        "shared-background": results.as_values(
            SharedBackgroundScores(64, ("a", "b"), make_spreads())
        ),
        "finite-grid": make_finite_grid(),
        "matched": make_matched(exact=True),
        "tubes": make_tubes(),
    }
