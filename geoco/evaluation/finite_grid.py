"""How covariant a model's logits and masks are on their finite grid: the paper's diagnostic.

One well-formed object per window, or the sure reference objects of a video, are moved and resized,
and what is drawn is compared with the factual drawing under the same map. Raw logits are compared
twice: as drawn, where the canvas' edge had no part in them, and as drawn on a canvas three times as
wide. The latter also gives final logits, whose propositions (`covariance_bounds`) are asserted on
every measurement.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from geoco import edit_maps
from geoco.config.training import SlotQualityConfig
from geoco.edit_maps import AffineMap, warp_image
from geoco.errors import GeocoError
from geoco.evaluation import covariance_bounds
from geoco.evaluation.commands import IDENTITY, MOVES, Commands, build_moves, build_resizes
from geoco.evaluation.covariance_bounds import Inequality
from geoco.evaluation.extended_canvas import (
    EXTENT,
    draw_extended,
    full_precision,
    require_extended,
)
from geoco.evaluation.factual import Mean, average_defined
from geoco.evaluation.interfaces import Encoded, ExtendedModel, SlotModel
from geoco.evaluation.reference_tracks import find_tracks
from geoco.evaluation.windows import Factual, Progress, order_window_major
from geoco.models import compositing, receptive_field, slot_quality
from geoco.models.decoders import Fields
from geoco.models.slots import Binding

MARGIN = 2  # pixels between a reference object and the edge
ROUNDING = 1e-14  # of probabilities in float64, in units of the largest logit


@dataclass(frozen=True)
class Slack:
    """The largest left side less right side of each proposition: none above zero but by rounding.

    That membership differs only where it is uncertain has no size; it is asserted alike.
    """

    probability: float
    transported_probability: float
    f1: float


@dataclass(frozen=True)
class CovarianceRow:
    """One edit family. Errors are fractions from 0, lower is better; F1 in [0, 1], higher is.

    `defined` of raw-logit errors counts interventions with at least 16 measurement pixels, that of
    F1 the comparisons in which the target has a pixel at all.
    """

    native: Mean  # relative RMSE of raw logits, receptive-field-valid domain
    extended: Mean  # the same on the extended canvas
    probability: Mean  # RMSE of alpha to the reference scene: the target transported, others edited
    transported_probability: Mean  # RMSE of alpha to the factual alpha transported
    f1: Mean  # of the target's hard masks in the edited and the reference scene
    f1_bound: Mean
    slack: Slack


@dataclass(frozen=True)
class CovarianceScores:
    """Four translations and four nonidentity scales of each object."""

    windows: int
    objects: int
    position: CovarianceRow
    scale: CovarianceRow


def score_covariance(
    model: SlotModel,
    factual: Factual,
    batch: int,
    windows: int | None = None,
    progress: Progress = lambda done, total: None,
    tile: int | None = None,
) -> CovarianceScores:
    """The table, of all windows or of those that come first in window-major order.

    `batch` is how many scenes may be decoded at once on the usual canvas, `tile` how many slots on
    the extended one; if it is not given, as many fewer as that is larger. They change nothing else.
    """
    drawing = require_extended(model)
    with full_precision():
        clips = len(factual) // factual.length
        count = clips if windows is None else min(windows, clips)
        chosen = choose_objects(model, factual, batch, windows)
        objects = int(chosen.sum())
        total = max(count, objects)  # of a video there can be several
        without = total - objects
        progress(without, total)
        position, scale = measure_covariance(
            drawing, factual, chosen, batch, lambda done, _: progress(without + done, total), tile
        )
    return CovarianceScores(count, objects, position, scale)


@torch.no_grad()
def choose_objects(
    model: SlotModel, factual: Factual, batch: int, windows: int | None = None
) -> Bool[Tensor, "window slot"]:
    """Of each window the slots that are measured: fit for transplants, or surely reference objects.

    In single frames, and in the first of videos without masks, the qualified slot of highest
    confidence, if any, by the limits that the model was trained with, or the paper's. Of videos
    with masks the tracks that are associated surely and stay off the edge.
    """
    if factual.attention is None:
        raise GeocoError("the covariance table needs slots with attention; these have none")
    if windows is not None and windows < 1:
        raise GeocoError(f"the covariance table needs at least one window, got {windows}")
    clips = np.sort(order_window_major(factual.source[:: factual.length])[:windows])
    if factual.length > 1 and factual.reference is not None:
        return _choose_tracks(factual, clips)
    rows = torch.from_numpy(clips * factual.length)
    quality = getattr(model, "quality", SlotQualityConfig())
    chosen = torch.zeros_like(factual.valid)
    for some in rows.split(batch):
        encoded = factual.encoded(some)
        assert encoded.attention is not None
        _, logits = model.decode(encoded, encoded.slots)
        gate = torch.zeros_like(encoded.slots.appearance)
        judged = slot_quality.assess_slots(
            logits.cpu(), Binding(encoded.slots, encoded.attention, gate), quality
        )
        best, slot = judged.confidence.masked_fill(~judged.valid, -1).max(1)
        chosen[some, slot] = best >= 0
    return chosen


def _choose_tracks(factual: Factual, clips: np.ndarray) -> Bool[Tensor, "window slot"]:
    """Tracks of some windows whose core and slot agree, and that are nobody's background."""
    tracks = find_tracks(factual)
    height, width = tracks.mask.shape[-2:]
    left, top, right, bottom = edit_maps.compute_cell_bounds(tracks.mask).unbind(-1)
    inside = (left >= MARGIN - 0.5) & (right <= width - MARGIN - 0.5)
    inside &= (top >= MARGIN - 0.5) & (bottom <= height - MARGIN - 0.5)
    wanted = torch.from_numpy(np.isin(factual.clip[tracks.row.numpy()], clips))
    kept = tracks.agrees & inside & wanted & (tracks.slot != factual.background[tracks.row])
    chosen = torch.zeros_like(factual.valid)
    chosen[tracks.row[kept], tracks.slot[kept]] = True
    return chosen


@torch.no_grad()
def measure_covariance(
    model: ExtendedModel,
    factual: Factual,
    chosen: Bool[Tensor, "window slot"],
    batch: int,
    progress: Progress = lambda done, total: None,
    tile: int | None = None,
) -> tuple[CovarianceRow, CovarianceRow]:
    """Translations and scalings of chosen objects, those of one slot number together."""
    window, slot = chosen.nonzero(as_tuple=True)
    families = (
        build_moves(factual, (window, slot)),
        _drop_identity(build_resizes(factual, (window, slot))),
    )
    measurements: tuple[list[Measured], ...] = ([], [])
    done = 0
    tile = tile or max(1, batch * chosen.shape[1] // EXTENT**2)
    each = len(MOVES)  # edits of an object, in either family
    for index in range(chosen.shape[1]):
        objects = (slot == index).nonzero()[:, 0]
        for some in objects.split(max(1, batch // each)) if len(objects) else ():
            scenes = _Scenes.of(model, factual.encoded(window[some]), index, tile)
            rows = (each * some[:, None] + torch.arange(each)).flatten()
            for commands, measured in zip(families, measurements, strict=True):
                measured.append(scenes.measure(model, commands.rows(rows), tile))
            done += len(some)
            progress(done, len(window))
    return _average_row(measurements[0]), _average_row(measurements[1])


@dataclass(frozen=True)
class Measured:
    """Some interventions; nan where something is not defined."""

    native: Float64[Tensor, " edit"]
    extended: Float64[Tensor, " edit"]
    probability: Float64[Tensor, " edit"]
    transported_probability: Float64[Tensor, " edit"]
    f1: Float64[Tensor, " edit"]
    f1_bound: Float64[Tensor, " edit"]
    probability_slack: Float64[Tensor, " edit"]
    transported_slack: Float64[Tensor, " edit"]
    f1_slack: Float64[Tensor, " edit"]


@dataclass(frozen=True)
class _Scenes:
    """Factual windows, one slot of which is edited: drawn once for all edits."""

    index: int
    attention: Float[Tensor, "scene slot token"]
    drawn: Fields  # of all slots, on the extended canvas
    # What the map transports, in float64: raw logits (native, extended), the final logit, the
    # competitors' logsumexp, alpha, validity, and ones.
    before: Float64[Tensor, "scene 7 height width"]

    @classmethod
    def of(cls, model: ExtendedModel, encoded: Encoded, index: int, tile: int) -> "_Scenes":
        slots, own = encoded.slots, encoded.slots[:, index]
        assert encoded.attention is not None
        count = slots.scale.shape
        drawn = draw_extended(model, slots.flatten(), tile).map(
            lambda part: part.unflatten(0, count)
        )
        final = model.final_logits(drawn, encoded.attention).double()
        others = torch.cat((final[:, :index], final[:, index + 1 :]), 1)
        before = torch.stack(
            (
                model.native_logits(own).double(),
                drawn.logits[:, index].double(),
                final[:, index],
                others.logsumexp(1),
                compositing.compute_alpha(final)[:, index],
                receptive_field.to_plane(model.validity(own.scale)),
                torch.ones_like(final[:, 0]),
            ),
            1,
        )
        return cls(index, encoded.attention, drawn, before)

    def measure(self, model: ExtendedModel, commands: Commands, tile: int) -> Measured:
        """The interventions of some commands, as many of each scene, scene by scene."""
        each, device = len(commands) // len(self.before), self.before.device
        one = draw_extended(model, commands.edited, tile)[:, None]
        scenes = self.drawn.map(lambda part: part.repeat_interleave(each, 0))
        edited = scenes.with_slot(self.index, one)
        native = model.native_logits(commands.edited).double()
        attention = self.attention.repeat_interleave(each, 0)
        final = model.final_logits(edited, attention).double()
        edit = AffineMap(commands.map.factor.to(device), commands.map.offset.to(device))
        moved = warp_image(self.before.repeat_interleave(each, 0), edit)
        _require_finite(native, one.logits, final, moved)
        raw, raw_extended, transported, others, alpha, support, canvas = moved.unbind(1)
        own = receptive_field.to_plane(model.validity(commands.edited.scale))
        valid = receptive_field.is_complete(own) & receptive_field.is_complete(support)
        domain = receptive_field.is_complete(canvas)  # what comes from the factual canvas
        return Measured(
            covariance_bounds.compute_covariance_error(native, raw, valid),
            covariance_bounds.compute_covariance_error(
                one.logits[:, 0].double(), raw_extended, domain
            ),
            *_measure_final(final, self.index, transported, others, alpha, domain),
        )


def _measure_final(
    logits: Float64[Tensor, "edit slot height width"],
    index: int,
    transported: Float64[Tensor, "edit height width"],
    transported_others: Float64[Tensor, "edit height width"],
    transported_alpha: Float64[Tensor, "edit height width"],
    domain: Bool[Tensor, "edit height width"],
) -> tuple[Float64[Tensor, " edit"], ...]:
    """Probabilities, F1 and its bound, and the slack of what must hold, which it is checked to."""
    slot = torch.full((len(logits),), index, device=logits.device)
    probability = covariance_bounds.bound_probability(logits, slot, transported)
    against_factual = covariance_bounds.bound_transported_probability(
        logits, slot, transported, transported_others, transported_alpha
    )
    members = covariance_bounds.compute_membership(logits, slot, transported, domain)
    f1 = covariance_bounds.bound_membership_f1(members)
    rounding = ROUNDING * max(1.0, float(logits.abs().max()))
    check_inequality("the membership condition", covariance_bounds.bound_membership(members), 0.0)
    return (
        covariance_bounds.compute_rms(probability.left, domain),
        covariance_bounds.compute_rms(against_factual.left, domain),
        f1.right,
        f1.left,
        check_inequality("the probability bound", _claim_on(domain, probability), rounding),
        check_inequality(
            "the transported probability bound", _claim_on(domain, against_factual), rounding
        ),
        check_inequality("the F1 bound", f1, 0.0),
    )


def check_inequality(name: str, inequality: Inequality, slack: float) -> Float64[Tensor, " edit"]:
    """Left less right of each edit, at its largest; an error, with the numbers, above the slack."""
    left, right = (
        side.double().reshape(len(side), -1) for side in (inequality.left, inequality.right)
    )
    unclaimed = left.isnan() & right.isnan()
    # A single missing side is the worst excess of all.
    excess = (left - right).nan_to_num(nan=torch.inf).masked_fill(unclaimed, -torch.inf)
    if not inequality.holds(slack):
        place = int(excess.argmax())
        raise ArithmeticError(
            f"{name} does not hold: {left.flatten()[place].item()!r} is not at most "
            f"{right.flatten()[place].item()!r}, the slack being {slack:.1e}"
        )
    return excess.amax(1)


def _drop_identity(commands: Commands) -> Commands:
    """Without the factor of one."""
    return commands.rows((commands.command != IDENTITY).nonzero()[:, 0])


def _claim_on(domain: Bool[Tensor, "edit height width"], inequality: Inequality) -> Inequality:
    """Claimed on a domain alone."""
    return Inequality(
        inequality.left.where(domain, torch.nan), inequality.right.where(domain, torch.nan)
    )


def _require_finite(*values: Tensor) -> None:
    if not all(bool(value.isfinite().all()) for value in values):
        raise GeocoError("the covariance table needs finite logits, but the model's are not")


def _average_row(measurements: Sequence[Measured]) -> CovarianceRow:
    def column(name: str) -> np.ndarray:
        parts = [getattr(some, name).cpu().numpy() for some in measurements]
        return np.concatenate(parts) if parts else np.zeros(0)

    def largest(name: str) -> float:
        values = column(name)
        values = values[~np.isneginf(values)]
        return float(values.max()) if len(values) else float("nan")

    return CovarianceRow(
        native=average_defined(column("native")),
        extended=average_defined(column("extended")),
        probability=average_defined(column("probability")),
        transported_probability=average_defined(column("transported_probability")),
        f1=average_defined(column("f1")),
        f1_bound=average_defined(column("f1_bound")),
        slack=Slack(
            largest("probability_slack"), largest("transported_slack"), largest("f1_slack")
        ),
    )
