"""The few numbers of an evaluation that a terminal shows; the rest is in its tables."""

from collections.abc import Mapping

from geoco.reporting.cells import DASH, KINDS, format_number, look_up
from geoco.reporting.results import Values

_EDITS = {"position": "moved", "scale": "resized", "transplant": "transplanted"}


def describe_headline(results: Mapping[str, Values]) -> list[str]:
    """Sentences with the main numbers of the tables that there are."""
    lines = []
    factual = results.get("factual")
    if factual is not None:
        masks = format_number(look_up(factual, "segmentation", "foreground_ari", "value"), 3)
        agreement = "" if masks == DASH else f", FG-ARI {masks}"
        lines.append(f"reconstruction: PSNR {format_number(factual.get('psnr'), 2)} dB{agreement}")
    for key, scope in (("editing", "all"), ("tubes", None)):
        scores = results.get(key)
        scores = scores if scope is None else look_up(scores, scope)
        if scores is None:
            continue
        parts = [
            f"{_EDITS[kind]} {format_number(look_up(scores, kind, 'f1', 'estimate'), 1)}"
            f" ({format_number(look_up(scores, kind, 'noop'), 1)} where nothing is done)"
            for kind in KINDS
        ]
        what = "whole videos" if key == "tubes" else "edits"
        lines.append(f"{what}, F1 in percent: {', '.join(parts)}")
    return lines
