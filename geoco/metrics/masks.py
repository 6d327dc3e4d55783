"""One pure function per column of the paper's tables (Sec. "Shared Evaluation Metrics").

Each docstring gives the range, the direction, and the equation. Functions of pixels and objects
take torch tensors and keep leading dimensions; statistics of whole populations take numpy arrays.
Undefined values are nan and never quietly zero, except where the paper says zero. Who belongs to a
population is not decided here (see `geoco.edit_maps`).

Agreement of labels is in `geoco.metrics.labels`, metrics of colours in `geoco.metrics.rgb`,
finite-grid diagnostics in `geoco.evaluation.covariance_bounds`.
"""

import math
from dataclasses import astuple, dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64, Integer
from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]
from torch import Tensor

from geoco.geometry import build_grid

UNASSOCIATED = -1
PERCENTILES = (2.5, 97.5)


@dataclass(frozen=True)
class SupportMoments:
    """Centroid, RMS radius and coverage of hard supports, on the grid [-1, 1]^2."""

    center: Float64[Tensor, "*supports 2"]  # nan where the support is empty
    radius: Float64[Tensor, "*supports"]  # zero where it is empty, or one pixel
    coverage: Float64[Tensor, "*supports"]  # share of the canvas, [0, 1]


def support_moments(mask: Bool[Tensor, "*supports height width"]) -> SupportMoments:
    """Moments of measurement or reference supports: Eq. (shared-support-moments).

    Unlike `geometry.compute_moments` there is no epsilon: an empty support has no centroid, and a
    support of one pixel has radius zero, so that its log-response is undefined, not very small.
    """
    height, width = mask.shape[-2:]
    points = build_grid(height, width, dtype=torch.float64, device=mask.device)
    count = mask.sum((-2, -1)).double()
    center, square = [], torch.zeros_like(count)
    # Squared distance is a sum over the axes, so column and row counts say all.
    for along, places in ((-2, points[0, :, 0]), (-1, points[:, 0, 1])):
        share = mask.sum(along) / count[..., None]
        mean = (share * places).sum(-1)
        square = square + (share * (places - mean[..., None]).square()).sum(-1)
        center.append(mean)
    return SupportMoments(
        center=torch.stack(center, -1),
        radius=square.sqrt().where(count > 0, 0),
        coverage=count / (height * width),
    )


def attention_overlap(
    attention: Float[Tensor, "*frames slot token"],
    active: Bool[Tensor, "*frames slot"] | None = None,
) -> Float64[Tensor, "*frames"]:
    """O_attn of each frame over the maps given: [0, 1], lower is better, 1 / tokens if uniform.

    Eq. (shared-attention-overlap); maps are normalised here, and one without mass overlaps none.
    With `active` of those slots alone; nan where fewer than two are.
    """
    if active is None:
        active = torch.ones_like(attention[..., 0], dtype=torch.bool)
    count = active.sum(-1).double()
    attention = attention.double()
    mass = attention.sum(-1, keepdim=True)
    share = torch.where((mass > 0) & active[..., None], attention / mass, 0)
    # The sum over ordered pairs i != j is that over all pairs less the diagonal.
    together = share.sum(-2).square().sum(-1) - share.square().sum((-2, -1))
    return (together / (count * (count - 1))).where(count > 1, torch.nan)


def position_error(
    center: Float[Tensor, "*objects 2"], expected: Float[Tensor, "*objects 2"]
) -> Float64[Tensor, "*objects"]:
    """Distance on the grid [-1, 1]^2: [0, 2 sqrt 2], lower is better; nan where undefined.

    E_p->c, E_p->c* and E_c->c* of Eq. (shared-position-errors), by what is passed.
    """
    return torch.linalg.vector_norm(center.double() - expected.double(), dim=-1)


def associate(
    reference: Bool[Tensor, "*frames object height width"],
    decoded: Bool[Tensor, "*frames slot height width"],
) -> Int64[Tensor, "*frames object"]:
    """The slot of each reference object: one to one, for the most shared pixels in total.

    Fixed on factual supports before any edit. An object that shares no pixel with its slot has none
    (-1): which of the remaining slots it got would be an accident of their order.
    """
    shared = reference.flatten(-2).double() @ decoded.flatten(-2).double().mT
    result = np.full(shared.shape[:-1], UNASSOCIATED, dtype=np.int64)
    counts = shared.cpu().numpy()
    for frame in np.ndindex(counts.shape[:-2]):
        rows, columns = linear_sum_assignment(counts[frame], maximize=True)
        taken = counts[frame][rows, columns] > 0
        result[frame][rows[taken]] = columns[taken]
    return torch.from_numpy(result).to(reference.device)


def f1(
    edited: Bool[Tensor, "*edits height width"], target: Bool[Tensor, "*edits height width"]
) -> Float64[Tensor, "*edits"]:
    """Editing F1, Eq. (shared-editing-f1): [0, 1], higher is better; an empty output scores 0."""
    return tube_f1(edited.unsqueeze(-3), target.unsqueeze(-3))


def tube_f1(
    edited: Bool[Tensor, "*edits time height width"],
    target: Bool[Tensor, "*edits time height width"],
) -> Float64[Tensor, "*edits"]:
    """F1 of a whole video, Eq. (shared-tube-f1): areas are summed over time before the ratio.

    [0, 1], higher is better; an output that is empty in all frames scores 0.
    """
    shared = (edited & target).sum((-3, -2, -1)).double()
    area = edited.sum((-3, -2, -1)) + target.sum((-3, -2, -1))
    return 2 * shared / area.clamp_min(1)


def translation_error(
    factual: Float[Tensor, "*edits 2"],
    edited: Float[Tensor, "*edits 2"],
    pixels: Float[Tensor, "*edits 2"],
    height: int,
    width: int,
) -> Float64[Tensor, "*edits"]:
    """E_dp, Eq. (shared-translation-error): how far centers missed a move, in image diagonals.

    Centers are on the grid, the command in pixels. From 0, lower is better; nan where undefined.
    """
    pitch = torch.tensor([width - 1, height - 1], dtype=torch.float64, device=factual.device) / 2
    moved = (edited.double() - factual.double()) * pitch
    return torch.linalg.vector_norm(moved - pixels.double(), dim=-1) / math.hypot(height, width)


def drift(
    factual: Float[Tensor, "*edits 2"], edited: Float[Tensor, "*edits 2"]
) -> Float64[Tensor, "*edits"]:
    """D_app, Eq. (shared-appearance-drift): how far a transplant moved the recipient's center.

    [0, 2 sqrt 2] on the grid, lower is better; nan where a center is undefined.
    """
    return position_error(edited, factual)


def response_slope(
    factors: Float[Tensor, "command"], values: Float[Tensor, "*curves command"]
) -> Float64[Tensor, "*curves"]:
    """beta: least-squares slope, with intercept, of log value against log factor.

    Any number, ideally 1 for radius and 2 for coverage; nan unless the value is positive at every
    command.
    """
    away = factors.double().log()
    away = away - away.mean()
    slope = (values.double().log() * away).sum(-1) / away.square().sum()
    return slope.where((values > 0).all(-1), torch.nan)


@dataclass(frozen=True)
class Spread:
    """Mean, population standard deviation and coefficient of variation."""

    mean: float
    deviation: float
    variation: float  # nan where the mean is zero


def fixed_geometry_spread(values: Float[np.ndarray, "appearance"]) -> Spread:
    """sigma_{x|g}, Eq. (shared-fixed-geometry-std): radii or coverages of all appearances.

    Deviation and variation from 0, lower is better; empty outputs take part with value zero.
    """
    mean, deviation = (float(of(values, dtype=np.float64)) for of in (np.mean, np.std))
    return Spread(mean, deviation, deviation / mean if mean else math.nan)


def background_averaged_spread(values: Float[np.ndarray, "background appearance"]) -> Spread:
    """The spread across appearances within each shared background, averaged over backgrounds.

    From 0, lower is better. Its variation is the mean of the backgrounds' own, not the ratio of the
    other two.
    """
    each = [astuple(fixed_geometry_spread(row)) for row in values]
    return Spread(*np.mean(each, axis=0).tolist())


@dataclass(frozen=True)
class Calibration:
    """How well inferred scale tells decoded radius: Sec. "Factual Scale Calibration"."""

    linear: float  # R^2 of r = a s + b: [0, 1], higher is better
    unit_slope_log: float  # R^2 of log r = log s + b: up to 1, higher is better
    log_ratio_deviation: float  # population deviation of log(r / s): from 0, lower is better


def calibration(
    scale: Float[np.ndarray, "observation"], radius: Float[np.ndarray, "observation"]
) -> Calibration:
    """Of positive scales and radii of valid factual objects, each observation once.

    R^2 is 0 where scales do not vary, and nan where radii do not.
    """
    logs = np.log(scale.astype(np.float64)), np.log(radius.astype(np.float64))
    deviation = float(np.std(logs[1] - logs[0]))
    if np.ptp(radius) == 0:
        return Calibration(math.nan, math.nan, deviation)
    linear = float(np.corrcoef(scale, radius)[0, 1] ** 2) if np.ptp(scale) else 0.0
    return Calibration(linear, 1 - deviation**2 / float(np.var(logs[1])), deviation)


@dataclass(frozen=True)
class Interval:
    """A score and the 2.5th and 97.5th percentiles of its source-video bootstrap."""

    estimate: float
    low: float
    high: float


def video_means(
    values: Float[np.ndarray, "edit"], video: Integer[np.ndarray, "edit"]
) -> Float64[np.ndarray, "video"]:
    """The mean of each video's values, in the order of the videos' numbers."""
    _, index, counts = np.unique(video, return_inverse=True, return_counts=True)
    return np.asarray(np.bincount(index, values.astype(np.float64)) / counts)


def paired_interval(
    values_by_video: Float[np.ndarray, "video"], replicates: int = 5000, seed: int = 0
) -> Interval:
    """Of an equal mean over videos; paired when the values are two methods' differences."""
    return pooled_interval(values_by_video, np.arange(len(values_by_video)), replicates, seed)


def pooled_interval(
    values: Float[np.ndarray, "edit"],
    video: Integer[np.ndarray, "edit"],
    replicates: int = 10000,
    seed: int = 0,
) -> Interval:
    """Of a mean over all edits, of which a video has many or few: F_pos and F_scl."""
    _, index, counts = np.unique(video, return_inverse=True, return_counts=True)
    sums = np.bincount(index, values.astype(np.float64))
    weights = _video_weights(len(counts), replicates, seed)
    return _interval(values, weights @ sums, weights @ counts)


def pair_weighted_interval(
    values: Float[np.ndarray, "pair"],
    recipient_video: Integer[np.ndarray, "pair"],
    donor_video: Integer[np.ndarray, "pair"],
    replicates: int = 10000,
    seed: int = 0,
) -> Interval:
    """Of a mean over transplants, F_app: a pair weighs as its two videos' weights multiplied.

    Both come from the same resample. Replicates in which no pair survives are left out.
    """
    names, index = np.unique((recipient_video, donor_video), return_inverse=True)
    videos = len(names)
    place = np.ravel_multi_index(tuple(index.reshape(2, -1)), (videos, videos))
    weights = _video_weights(videos, replicates, seed)

    def sum_weighted(amount: np.ndarray) -> np.ndarray:
        table = np.bincount(place, amount, minlength=videos * videos).reshape(videos, videos)
        return np.asarray(((weights @ table) * weights).sum(1))

    return _interval(
        values, sum_weighted(values.astype(np.float64)), sum_weighted(np.ones(len(values)))
    )


def _video_weights(videos: int, replicates: int, seed: int) -> np.ndarray:
    """How often each video is drawn, with replacement, replicate by replicate."""
    generator = np.random.default_rng(seed)
    drawn = generator.multinomial(videos, np.full(videos, 1 / videos), size=replicates)
    return drawn.astype(np.float64)


def _interval(values: np.ndarray, sums: np.ndarray, counts: np.ndarray) -> Interval:
    kept = counts > 0
    low, high = np.percentile(sums[kept] / counts[kept], PERCENTILES)
    return Interval(float(values.mean(dtype=np.float64)), float(low), float(high))
