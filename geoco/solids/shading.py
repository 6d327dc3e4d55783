"""Light: what the floor, rubber and metal send to the camera, as linear RGB.

Three area lights with a cosine profile, a weak constant light, and what the floor throws back. The
constants below were fitted to pictures of Obj3D's own scene: the powers and axes to its empty
floor, the surface constants to its rubber spheres and its metals.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from geoco.solids.geometry import Vector, dot, normalize, scale, select, smoothstep, subtract

Color = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Light:
    """An area light that faces the origin: place, size, and its power as the floor shows it."""

    position: tuple[float, float, float]
    radius: float
    power: tuple[float, float, float]

    @property
    def axis(self) -> tuple[float, float, float]:
        x, y, z = self.position
        length = math.sqrt(x * x + y * y + z * z)
        return -x / length, -y / length, -z / length


KEY = Light((6.447, -2.905, 4.258), 0.25, (5.65, 5.23, 4.50))
FILL = Light((-4.671, -4.014, 3.011), 0.25, (1.25, 1.36, 1.71))
BACK = Light((-1.169, 2.646, 5.816), 0.50, (2.52, 2.47, 2.45))
LIGHTS = (KEY, FILL, BACK)

AMBIENT_FLOOR = (0.1344, 0.1344, 0.1336)
AMBIENT_OBJECTS = 0.098
RUBBER_GAIN = 1.30  # over the floor's albedo, since the powers above are what the floor sends back
RUBBER_BOUNCE = 0.145
RUBBER_SHEEN = 0.0286
METAL_GAIN = 0.76
METAL_HAZE = 0.05
METAL_FOOT = 0.3
METAL_HORIZON = 0.45
METAL_GLOW, GLOW_WIDTH = 6.0, 0.08
METAL_GLINT, GLINT_WIDTH = 130.0, 0.01


def compute_irradiance(light: Light, point: Vector) -> tuple[Vector, Tensor, Tensor]:
    """Unit direction to a light, its irradiance there without colour, and the distance."""
    x, y, z = light.position
    toward = (x - point[0], y - point[1], z - point[2])
    distance = torch.sqrt(dot(toward, toward))
    toward = (toward[0] / distance, toward[1] / distance, toward[2] / distance)
    u, v, w = light.axis
    profile = (-(u * toward[0] + v * toward[1] + w * toward[2])).clamp(min=0.0)
    return toward, profile / (distance * distance), distance


def compute_floor_light(x: Tensor, y: Tensor) -> list[tuple[Tensor, Vector, Tensor]]:
    """At floor points, for each light: its share without colour, the direction and the distance."""
    point = (x, y, torch.zeros_like(x))
    shares = []
    for light in LIGHTS:
        toward, irradiance, distance = compute_irradiance(light, point)
        shares.append((irradiance * toward[2], toward, distance))
    return shares


def compute_floor_radiance(x: Tensor, y: Tensor) -> Color:
    """The clean floor."""
    shares = [share for share, _, _ in compute_floor_light(x, y)]
    return tuple(  # type: ignore[return-value]
        AMBIENT_FLOOR[c]
        + LIGHTS[0].power[c] * shares[0]
        + LIGHTS[1].power[c] * shares[1]
        + LIGHTS[2].power[c] * shares[2]
        for c in range(3)
    )


@dataclass(frozen=True)
class Surface:
    """Points on objects that the camera sees, as flat lists."""

    point: Vector
    normal: Vector
    view: Vector  # unit, toward the camera
    color: Color

    def select(self, index: Tensor) -> "Surface":
        return Surface(
            select(self.point, index),
            select(self.normal, index),
            select(self.view, index),
            select(self.color, index),
        )


def shade_rubber(surface: Surface, visible: list[Tensor]) -> Color:
    """Matte colour with a faint sheen. `visible` is the share of each light that others leave."""
    point, normal = surface.point, surface.normal
    ground = compute_floor_radiance(point[0], point[1])
    below = RUBBER_BOUNCE * 0.5 * (1.0 - normal[2])
    diffuse = [AMBIENT_OBJECTS + below * ground[c] for c in range(3)]
    sheen = [torch.zeros_like(below) for _ in range(3)]
    for light, share in zip(LIGHTS, visible, strict=True):
        toward, irradiance, _ = compute_irradiance(light, point)
        received = irradiance * share * dot(normal, toward).clamp(min=0.0)
        between = normalize(
            (
                toward[0] + surface.view[0],
                toward[1] + surface.view[1],
                toward[2] + surface.view[2],
            )
        )
        glossy = dot(normal, between).clamp(min=0.0)
        glossy = received * glossy * glossy
        diffuse = [diffuse[c] + light.power[c] * received for c in range(3)]
        sheen = [sheen[c] + light.power[c] * glossy for c in range(3)]
    return tuple(  # type: ignore[return-value]
        RUBBER_GAIN * surface.color[c] * diffuse[c] + RUBBER_SHEEN * sheen[c] for c in range(3)
    )


def reflect_view(surface: Surface) -> Vector:
    """The direction in which a metal surface looks on from the camera's line of sight."""
    twice = 2.0 * dot(surface.normal, surface.view)
    return subtract(scale(surface.normal, twice), surface.view)


def shade_metal(surface: Surface, mirrored: Color, looking: Vector) -> Color:
    """Tinted mirror: `mirrored` is what lies in the mirrored direction; lights add their glints."""
    colors = [METAL_HAZE + METAL_GAIN * mirrored[c] for c in range(3)]
    for light in LIGHTS:
        toward, _, distance = compute_irradiance(light, surface.point)
        off = 1.0 - dot(looking, toward)
        glow, core = 1.0 / (1.0 + off / GLOW_WIDTH), 1.0 / (1.0 + off / GLINT_WIDTH)
        core = core * core
        glint = METAL_GLOW * glow * glow + METAL_GLINT * core * core
        glint = glint / (distance * distance)
        colors = [colors[c] + light.power[c] * glint for c in range(3)]
    return tuple(surface.color[c] * colors[c] for c in range(3))  # type: ignore[return-value]


def reflect_floor(point: Vector, looking: Vector, center: Vector, size: Tensor) -> Color:
    """The floor that a metal object sees in itself, darkened towards its own foot; above, black."""
    distance = point[2] / (-looking[2]).clamp(min=0.05)
    x, y = point[0] + distance * looking[0], point[1] + distance * looking[1]
    offset = (x - center[0], y - center[1], center[2])
    nearness = size / torch.sqrt(dot(offset, offset))
    open_ = 1.0 - METAL_FOOT * nearness * nearness * nearness
    open_ = open_ * smoothstep(0.5 - 0.5 * looking[2] / METAL_HORIZON)
    return tuple(channel * open_ for channel in compute_floor_radiance(x, y))  # type: ignore[return-value]
