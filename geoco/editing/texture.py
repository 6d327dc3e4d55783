"""The picture's own texture, continued where objects stand.

Texture is what the visible floor has beyond the model's background and its slow errors. Each hole
is filled with the texture of another place, the hole shifted as a whole: onto visible floor, where
what surrounds the hole looks most as what surrounds it here, and not farther than needed.
"""

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy import ndimage
from torch import Tensor

COARSEST = 1 / 20  # of the picture: the deviation of what is not texture any more
RIM = 1 / 40  # of the picture: how far around a hole shifts are compared, and fills blended
STRONGEST = 0.95  # quantile of the texture of sure floor; what is stronger is none
FAINTEST = 2 / 255  # less than that is rounding or a GIF's grain, and stays smooth
UNCOVERED = 4.0  # what a hole that finds no floor costs, in variances of the texture
FAR = 0.2  # what a shift by the whole picture costs

Picture = Float[Tensor, "3 side side"]
Mask = Bool[Tensor, "side side"]


def add_texture(frame: Picture, clean: Picture, covered: Mask, certain: Mask) -> Picture:
    """The clean background with the texture of `frame`, which goes on where it is `covered`.

    What shows on the rest may be the edge of a shadow, unless it is `certain` to be floor: there
    one learns how strong texture is.
    """
    holes, count = ndimage.label(covered.cpu().numpy())
    visible, sure = holes == 0, certain.cpu().numpy() & (holes == 0)
    if not sure.any():
        return clean
    texture = _find_texture((frame - clean).cpu().double().numpy(), visible)
    strongest = np.quantile(np.abs(texture[:, sure]), STRONGEST)
    if strongest < FAINTEST:
        return clean
    texture = texture.clip(-strongest, strongest)
    filled = texture
    spectra = _Spectra(texture.mean(0), visible)
    reach = max(2, RIM * len(visible))
    for number in range(1, count + 1):
        hole = holes == number
        weight = (1 - ndimage.distance_transform_edt(~hole) / reach).clip(0)
        shift = spectra.choose_shift(hole, weight > 0)
        taken, seen = (np.roll(part, shift, (-2, -1)) for part in (texture, visible))
        filled = filled + weight * (seen * taken - filled)
    return (clean + torch.from_numpy(filled).to(clean)).clamp(0, 1)


def _find_texture(
    residual: Float[np.ndarray, "3 side side"], visible: Bool[np.ndarray, "side side"]
) -> Float[np.ndarray, "3 side side"]:
    """What visible floor has beyond its own mean nearby; 0 elsewhere."""
    reach = (0, *(COARSEST * side for side in visible.shape))
    seen = ndimage.gaussian_filter(visible.astype(float), reach[1:])
    mean = ndimage.gaussian_filter(residual * visible, reach) / (seen + 1e-6)
    return (residual - mean) * visible


class _Spectra:
    """Compares a hole's surroundings with all places at once, by Fourier transforms."""

    def __init__(
        self, texture: Float[np.ndarray, "side side"], visible: Bool[np.ndarray, "side side"]
    ) -> None:
        self._texture, self._visible = texture, visible
        self._variance = float(texture[visible].var()) + 1e-9
        self._seen, self._first, self._second = (
            np.fft.rfft2(planes) for planes in (visible, texture, texture**2)
        )

    def choose_shift(
        self, hole: Bool[np.ndarray, "side side"], near: Bool[np.ndarray, "side side"]
    ) -> tuple[int, int]:
        """By how many rows and columns the texture for a hole, and what is near it, is moved."""
        rim = near & self._visible
        around = rim * self._texture
        ring, inside, toned, squared = (
            np.fft.rfft2(plane).conj() for plane in (rim, hole, around, around**2)
        )
        apart = squared * self._seen - 2 * toned * self._first + ring * self._second
        difference = np.fft.irfft2(apart, s=hole.shape) / (max(rim.sum(), 1) * self._variance)
        covered = np.fft.irfft2(inside * self._seen, s=hole.shape) / hole.sum()
        side = len(hole)
        places = np.fft.fftfreq(side, 1 / side).round().astype(int)
        cost = difference + UNCOVERED * (1 - covered)
        cost += FAR * np.hypot(places[:, None], places[None]) / side
        (box,) = ndimage.find_objects(near.astype(int))
        for part, beyond in zip(box, (cost, cost.T), strict=True):
            beyond[(places < -part.start) | (places > side - part.stop)] = np.inf
        row, column = np.unravel_index(cost.argmin(), cost.shape)
        return -int(places[row]), -int(places[column])
