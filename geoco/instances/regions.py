"""Coloured regions of a video on a grey floor: the first half of the instance bank.

Colour says where objects are: a floor, its shadows and its light are grey, solids are not. A pixel
at an object's edge belongs to it where its chroma is nearly half of that of the object beside it,
so dim and bright solids are outlined alike. The video's own hues divide what is coloured.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Int
from scipy import ndimage  # type: ignore[import-untyped]

GREY = 0.12  # saturation below which a pixel tells what tint the floor has
CORE_SATURATION, CORE_CHROMA = 0.3, 18.0  # certainly coloured
EDGE_SHARE = 0.42  # of the chroma beside it that makes an edge pixel part of an object
LEAST_CHROMA = 10.0
HUE_BINS = 72
LEAST_HUE = 0.01  # share of the coloured light that makes a hue of its own
SMALLEST = 8  # pixels of a region at 64 x 64
PATCH_SHARE, PATCH_BORDER = 0.3, 0.7  # a reflection: small, and bordered by one region mostly


@dataclass(frozen=True)
class Regions:
    """Four-connected regions of one hue: `labels` counts from 1 in every frame."""

    labels: Int[np.ndarray, "time height width"]
    hues: tuple[Int[np.ndarray, " _region"], ...]  # by label, per frame; the background's is -1


def compute_unit(height: int, width: int) -> float:
    """A pixel of a 64 x 64 frame in pixels of this one: all lengths here scale with it."""
    return math.sqrt(height * width) / 64


def find_regions(frames: Float32[np.ndarray, "time height width 3"]) -> Regions:
    """Regions of every frame."""
    chroma = _remove_floor(frames)
    plane = _project_to_hue_plane(chroma)
    coloured = _find_coloured(frames, chroma)
    hue = _assign_hues(plane, coloured)
    _, height, width = hue.shape
    smallest = round(SMALLEST * compute_unit(height, width) ** 2)
    labelled = [_label_regions(frame, smallest) for frame in hue]
    return Regions(
        np.stack([labels for labels, _ in labelled]), tuple(hues for _, hues in labelled)
    )


def _remove_floor(
    frames: Float32[np.ndarray, "time height width 3"],
) -> Float32[np.ndarray, "time height width 3"]:
    """Colour less its grey and the floor's tint, a quadratic over the frame."""
    _, height, width, _ = frames.shape
    chroma = frames - frames.mean(-1, keepdims=True)
    y, x = np.mgrid[0:height, 0:width]
    y, x = y.reshape(-1) / height - 0.5, x.reshape(-1) / width - 0.5
    basis = np.stack([np.ones_like(x), x, y, x * x, x * y, y * y], axis=-1)
    grey = _compute_span(frames) < GREY * frames.max(-1)
    weight = grey.sum(0).reshape(-1)
    tint = (chroma * grey[..., None]).sum(0).reshape(-1, 3)
    normal = (basis * weight[:, None]).T @ basis + 1e-3 * np.eye(basis.shape[1])
    fitted = basis @ np.linalg.solve(normal, basis.T @ tint)
    return chroma - fitted.reshape(height, width, 3).astype(np.float32)


def _find_coloured(
    frames: Float32[np.ndarray, "time height width 3"],
    chroma: Float32[np.ndarray, "time height width 3"],
) -> Bool[np.ndarray, "time height width"]:
    amount = _compute_span(chroma)
    saturation = amount / np.maximum(frames.max(-1), 1)
    core = (saturation > CORE_SATURATION) & (amount > CORE_CHROMA)
    size = 2 * round(2 * compute_unit(*amount.shape[1:])) + 1
    total = ndimage.uniform_filter(np.where(core, amount, 0), (0, size, size))
    share = ndimage.uniform_filter(core.astype(np.float32), (0, size, size))
    near = share > 0.5 / size**2
    beside = total / np.maximum(share, 0.5 / size**2)
    edge = amount > np.maximum(EDGE_SHARE * beside, LEAST_CHROMA)
    return _fill_holes(near & edge, round(12 * compute_unit(*amount.shape[1:]) ** 2))


def _fill_holes(
    mask: Bool[np.ndarray, "time height width"], largest: int
) -> Bool[np.ndarray, "time height width"]:
    """Glints and black reflections are grey, but objects have no holes."""
    filled = mask.copy()
    for frame in filled:
        holes, count = ndimage.label(~frame)
        if count > 1:
            areas = np.bincount(holes.reshape(-1))
            frame |= (areas <= largest)[holes]
    return filled


def _assign_hues(
    plane: Float32[np.ndarray, "time height width 2"],
    coloured: Bool[np.ndarray, "time height width"],
) -> Int[np.ndarray, "time height width"]:
    """Which of the video's hues each coloured pixel has, after a little smoothing; -1 elsewhere."""
    hue = np.full(coloured.shape, -1)
    if not coloured.any():
        return hue
    peaks = _find_hue_peaks(plane[coloured])
    sigma = 0.6 * compute_unit(*coloured.shape[1:])
    smooth = ndimage.gaussian_filter(plane * coloured[..., None], (0, sigma, sigma, 0))
    directions = np.stack([np.cos(peaks), np.sin(peaks)])
    hue[coloured] = (smooth[coloured] @ directions).argmax(-1)
    return hue


def _find_hue_peaks(plane: Float32[np.ndarray, "pixel 2"]) -> Float32[np.ndarray, " hue"]:
    angle, weight = np.arctan2(plane[:, 1], plane[:, 0]), np.hypot(plane[:, 0], plane[:, 1])
    counts, edges = np.histogram(angle, HUE_BINS, (-np.pi, np.pi), weights=weight)
    smooth = ndimage.gaussian_filter1d(counts.astype(np.float32), 1.5, mode="wrap")
    highest = smooth == ndimage.maximum_filter1d(smooth, 7, mode="wrap")
    places = np.nonzero(highest & (smooth >= LEAST_HUE * smooth.sum()))[0]
    return ((edges[places] + edges[places + 1]) / 2).astype(np.float32)


def _label_regions(
    hue: Int[np.ndarray, "height width"], smallest: int
) -> tuple[Int[np.ndarray, "height width"], Int[np.ndarray, " region"]]:
    """Number the regions; specks go to the nearest region, patches to the one around them."""
    labels, hues = np.zeros_like(hue), [-1]
    for value in range(hue.max() + 1):
        parts, count = ndimage.label(hue == value)
        labels[parts > 0] = parts[parts > 0] + len(hues) - 1
        hues += [value] * count
    areas = np.bincount(labels.reshape(-1), minlength=len(hues))
    speck = (areas < smallest)[labels] & (labels > 0)
    if speck.any():
        kept = (labels > 0) & ~speck
        labels[speck] = 0
        if kept.any():
            distance, (y, x) = ndimage.distance_transform_edt(~kept, return_indices=True)
            reach = speck & (distance < 3)
            labels[reach] = labels[y, x][reach]
    _absorb_patches(labels, len(hues))
    present, inverse = np.unique(labels, return_inverse=True)
    if present[0] != 0:
        present, inverse = np.insert(present, 0, 0), inverse + 1
    return inverse.reshape(labels.shape), np.array(hues)[present]


def _absorb_patches(labels: Int[np.ndarray, "height width"], count: int) -> None:
    """A neighbour mirrored in metal is a small patch of another hue inside the object."""
    shared = np.zeros((count, count), int)
    for one, other in ((labels[:, :-1], labels[:, 1:]), (labels[:-1], labels[1:])):
        different = one != other
        np.add.at(shared, (one[different], other[different]), 1)
    shared = shared + shared.T
    areas = np.bincount(labels.reshape(-1), minlength=count)
    for label in np.argsort(areas, kind="stable"):
        if label == 0 or areas[label] == 0:
            continue
        around = int(shared[label, 1:].argmax()) + 1 if count > 1 else 0
        mostly = shared[label, around] >= PATCH_BORDER * shared[label].sum()
        if around and mostly and areas[label] <= PATCH_SHARE * areas[around]:
            labels[labels == label] = around


def _compute_span(
    colors: Float32[np.ndarray, "time height width 3"],
) -> Float32[np.ndarray, "time height width"]:
    return colors.max(-1) - colors.min(-1)


def _project_to_hue_plane(
    chroma: Float32[np.ndarray, "time height width 3"],
) -> Float32[np.ndarray, "time height width 2"]:
    red, green, blue = np.moveaxis(chroma, -1, 0)
    return np.stack([red - (green + blue) / 2, (green - blue) * np.float32(0.75**0.5)], axis=-1)
