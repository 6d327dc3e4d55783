"""The factual table: reconstruction, segmentation, attention, position errors, scale calibration.

Nothing is edited here. Position errors are of two populations that never mix: every valid object
of the model (E_p->c all-slot), and reference objects from outside, each with the slot that
Hungarian maximum overlap gives it. Scores of pictures and of masks are a window's, over all of its
rows: of videos their MSE and their pixels of all frames, of single frames what it always was.
"""

from dataclasses import dataclass, fields

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64, UInt8
from torch import Tensor

from geoco import metrics
from geoco.evaluation.interfaces import SlotModel
from geoco.evaluation.reference_objects import find_references
from geoco.evaluation.windows import INITIALIZATIONS, Factual, Progress, measure_reconstruction
from geoco.metrics.rgb import video_psnr


@dataclass(frozen=True)
class Mean:
    """A mean over the defined values of a population; nan where there are none."""

    value: float
    defined: int
    total: int


@dataclass(frozen=True)
class Segmentation:
    """Agreement with reference masks, of each frame or of each video, at the masks' own size.

    Averaged over those where it is defined.
    """

    foreground_ari: Mean
    ari: Mean
    mean_iou: Mean
    mean_best_overlap: Mean


@dataclass(frozen=True)
class CenterRecords:
    """The position errors of every reference object; nan where the object has no slot.

    They are defined together; a model without positions has the last alone.
    """

    window: Int64[np.ndarray, " object"]  # index in the dataset
    label: Int64[np.ndarray, " object"]
    position_to_decoded: Float64[np.ndarray, " object"]
    position_to_reference: Float64[np.ndarray, " object"]
    decoded_to_reference: Float64[np.ndarray, " object"]

    @property
    def defined(self) -> Bool[np.ndarray, " object"]:
        return ~np.isnan(self.decoded_to_reference)


@dataclass(frozen=True)
class ReferenceErrors:
    """The three position errors over one population: objects for which all three are defined."""

    position_to_decoded: Mean  # E_p->c on associated objects, not the all-slot column
    position_to_reference: Mean
    decoded_to_reference: Mean


@dataclass(frozen=True)
class ScaleCalibration:
    """How inferred scale tells decoded radius, over all valid objects."""

    linear: float
    unit_slope_log: float
    log_ratio_deviation: float
    observations: int


@dataclass(frozen=True)
class FactualScores:
    """The factual half of the paper's main table, less the fixed-geometry spreads."""

    windows: int
    objects: int
    psnr: float  # dB, mean over windows and initialisations
    psnr_of_initializations: tuple[float, ...]
    attention_overlap: Mean
    position_error: Mean  # E_p->c all-slot
    segmentation: Segmentation | None  # None without reference masks
    reference_errors: ReferenceErrors | None
    calibration: ScaleCalibration
    frames: int = 1  # of each window
    active_slots: float | None = None  # of a frame on average, if the model closes slots


def score_factual(
    model: SlotModel,
    factual: Factual,
    batch: int,
    progress: Progress = lambda done, total: None,
    centers: CenterRecords | None = None,
) -> FactualScores:
    """Every factual score. Only PSNR needs the model again, for its other initialisations.

    `centers` are the factual record's own (`record_centers`), if they have been made already.
    """
    initializations = INITIALIZATIONS if factual.length == 1 else 1
    means = [float(video_psnr(factual.psnr.view(-1, factual.length)).mean())]
    progress(1, initializations)
    for initialization in range(1, initializations):
        quality = measure_reconstruction(model, factual, initialization, batch)
        means.append(float(quality.mean()))
        progress(initialization + 1, initializations)
    reference = factual.reference
    return FactualScores(
        windows=len(factual) // factual.length,
        objects=int(factual.valid.sum()),
        psnr=float(np.mean(means)),
        psnr_of_initializations=tuple(means),
        attention_overlap=_average_overlap(factual),
        position_error=measure_position_error(factual),
        segmentation=None if reference is None else measure_segmentation(factual, reference),
        reference_errors=None
        if reference is None
        else average_reference_errors(centers or record_centers(factual)),
        calibration=calibrate_scale(factual),
        frames=factual.length,
        active_slots=None
        if factual.active is None
        else float(factual.active.sum(-1).double().mean()),
    )


def average_defined(values: Tensor | np.ndarray) -> Mean:
    """The mean of the values that are not nan, and how many those are."""
    array = np.asarray(values, dtype=np.float64).reshape(-1)
    kept = array[~np.isnan(array)]
    return Mean(float(kept.mean()) if len(kept) else float("nan"), len(kept), len(array))


def measure_position_error(factual: Factual) -> Mean:
    """E_p->c over all valid objects of the model, matched with nothing."""
    center = factual.moments.center[factual.valid]
    return average_defined(metrics.position_error(factual.slots.position[factual.valid], center))


def measure_segmentation(
    factual: Factual, reference: UInt8[Tensor, "window rows columns"]
) -> Segmentation:
    """FG-ARI, ARI, Hungarian mIoU and mBO of windows, against labels from outside.

    Time is one more dimension of a window's pixels.
    """
    pairs = zip(reference.split(factual.length), factual.owners.split(factual.length), strict=True)
    scores = [metrics.measure_agreement(*pair) for pair in pairs]
    return Segmentation(
        *(
            average_defined(np.array([getattr(score, part.name) for score in scores]))
            for part in fields(Segmentation)
        )
    )


def record_centers(factual: Factual) -> CenterRecords:
    """E_p->c, E_p->c* and E_c->c* of all reference objects.

    Decoded centroids are those on the model's own canvas, as in all other tables.
    """
    objects = find_references(factual)
    window, chosen = objects.window, objects.slot
    known = chosen != metrics.UNASSOCIATED
    place = (window, chosen.clamp_min(0))
    wanted = objects.center
    decoded = factual.moments.center[place]
    position = factual.slots.position[place].double()
    errors = torch.stack(
        (
            metrics.position_error(position, decoded),
            metrics.position_error(position, wanted),
            metrics.position_error(decoded, wanted),
        )
    ).where(known, torch.nan)
    # One population for all three; a model without positions has the last alone.
    asked = errors if factual.explicit else errors[2:]
    errors = errors.where(~asked.isnan().any(0), torch.nan)
    labels = objects.label.numpy()
    return CenterRecords(factual.window[window.numpy()], labels, *errors.numpy())


def average_reference_errors(
    records: CenterRecords, common: Bool[np.ndarray, " object"] | None = None
) -> ReferenceErrors:
    """The means over all objects for which the errors are defined, or over some of them."""
    kept = records.defined if common is None else common & records.defined

    def over(errors: Float64[np.ndarray, " object"]) -> Mean:
        return average_defined(np.where(kept, errors, np.nan))

    return ReferenceErrors(
        over(records.position_to_decoded),
        over(records.position_to_reference),
        over(records.decoded_to_reference),
    )


def calibrate_scale(factual: Factual) -> ScaleCalibration:
    """Of inferred scale and decoded radius; nan with fewer than two objects or without scales."""
    radius = factual.moments.radius[factual.valid].numpy()
    scale = factual.slots.scale[factual.valid].double().numpy()
    if len(radius) < 2 or not factual.explicit:
        return ScaleCalibration(float("nan"), float("nan"), float("nan"), len(radius))
    fit = metrics.calibration(scale, radius)
    return ScaleCalibration(fit.linear, fit.unit_slope_log, fit.log_ratio_deviation, len(radius))


def _average_overlap(factual: Factual) -> Mean:
    if factual.attention is None:
        return Mean(float("nan"), 0, len(factual))
    return average_defined(metrics.attention_overlap(factual.attention, factual.active))
