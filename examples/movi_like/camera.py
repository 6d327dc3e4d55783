"""The camera, and how it sees the world. Needs numpy alone.

The world's axes are x and y on the floor and z up. A picture of `size` pixels covers the sensor
from edge to edge: pixel (i, j) is centred at (i + 0.5, j + 0.5), x to the right and y down.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

FOCAL_LENGTH, SENSOR = 35.0, 32.0  # millimetres
NEAREST, FARTHEST, LOWEST = 7.0, 9.0, 1.0  # where cameras stand, in units of the world


@dataclass(frozen=True)
class Camera:
    """A pinhole. The rows of `axes` are what it calls right, down and forward."""

    position: Float[np.ndarray, "3"]
    axes: Float[np.ndarray, "3 3"]

    @classmethod
    def look_at_middle(cls, position: Float[np.ndarray, "3"]) -> "Camera":
        """From `position` to the middle of the floor, upright."""
        forward = -position / np.linalg.norm(position)
        right = np.cross(forward, (0.0, 0.0, 1.0))
        right /= np.linalg.norm(right)
        return cls(position, np.stack((right, np.cross(forward, right), forward)))


def draw_camera(generator: np.random.Generator) -> Camera:
    """A place evenly drawn from the half shell around the middle, not too low."""
    while True:
        position = generator.uniform(-FARTHEST, FARTHEST, 3)
        if NEAREST <= np.linalg.norm(position) <= FARTHEST and position[2] >= LOWEST:
            return Camera.look_at_middle(position)


def make_rays(camera: Camera, size: int) -> Float[np.ndarray, "size size 3"]:
    """The unit direction through the centre of each pixel."""
    places = ((np.arange(size) + 0.5) / size - 0.5) * SENSOR / FOCAL_LENGTH
    across, down = np.meshgrid(places, places)
    seen = np.stack((across, down, np.ones_like(across)), -1)
    return seen / np.linalg.norm(seen, axis=-1, keepdims=True) @ camera.axes


def project_points(
    camera: Camera, points: Float[np.ndarray, "... 3"], size: int
) -> tuple[Float[np.ndarray, "... 2"], Float[np.ndarray, "..."]]:
    """Where points are seen, in pixels, and their depths. Points behind have negative depths."""
    seen = (points - camera.position) @ camera.axes.T
    depth = seen[..., 2]
    return (seen[..., :2] / depth[..., None] * FOCAL_LENGTH / SENSOR + 0.5) * size, depth


def compute_shift(
    camera: Camera, depth: Float[np.ndarray, "..."], pixels: tuple[float, float], size: int
) -> Float[np.ndarray, "... 3"]:
    """The step in the world, along the picture plane, that moves what is at `depth` by pixels."""
    across, down = camera.axes[0], camera.axes[1]
    step = (pixels[0] * across + pixels[1] * down) * SENSOR / FOCAL_LENGTH / size
    return np.asarray(depth)[..., None] * step


def to_matrices(quaternions: Float[np.ndarray, "... 4"]) -> Float[np.ndarray, "... 3 3"]:
    """Rotations as matrices that act on columns; quaternions are (x, y, z, w), as PyBullet's."""
    x, y, z, w = np.moveaxis(quaternions, -1, 0)
    rows = (
        (1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)),
        (2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)),
        (2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)),
    )
    return np.stack([np.stack(row, -1) for row in rows], -2)


def draw_rotation(generator: np.random.Generator) -> Float[np.ndarray, "4"]:
    """A quaternion evenly drawn from all rotations."""
    quaternion = generator.normal(size=4)
    return quaternion / np.linalg.norm(quaternion)
