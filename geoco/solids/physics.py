"""Episodes of the embedded dataset: what stands where, and how it moves once it is hit.

One rubber sphere is launched at two to four resting solids on a frictionless floor. Everything
stays upright, so that a sphere and a cylinder are discs and a cube is a square that may turn.
Float64 NumPy, additions, multiplications, divisions and square roots only: an episode depends on
its own seed alone, never on which others are simulated beside it.

Units are Blender's (length) and frames (time); the constants are those of Obj3D's generator.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from geoco.config import SolidsConfig, Split

SHAPES = ("cube", "cylinder", "sphere")
MATERIALS = ("rubber", "metal")
CUBE, CYLINDER, SPHERE = range(3)
RUBBER, METAL = range(2)

FRAMES_PER_SECOND = 16
SUBSTEPS = 16
QUADRANTS = np.array([(1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0), (1.0, 1.0)])
RESTING_RANGE = (0.8, 2.0)
LAUNCH_RADIUS = 6.0
LAUNCH_ACCELERATION = 0.0265
LAUNCH_SPEED = 0.355
RESTITUTION = 0.9
LINEAR_DAMPING = 0.04  # per second
ANGULAR_DAMPING = 0.1  # per second

OBJECTS = 1 + len(QUADRANTS)
_PAIRS = np.array([(i, j) for i in range(OBJECTS) for j in range(i + 1, OBJECTS)]).T
_SPLITS: dict[Split, int] = {"train": 0, "val": 1, "test": 2}


@dataclass(frozen=True)
class Episodes:
    """Simulated episodes. Object 0 is the launched sphere; absent objects have `present` false.

    `heading` is the cosine and sine of the turn about the vertical. `texture` seeds the textured
    variant (one number per object, one for the floor) and `camera` is the jitter of its position.
    """

    ids: Int64[np.ndarray, " episode"]
    present: Bool[np.ndarray, "episode object"]
    shape: Int64[np.ndarray, "episode object"]
    material: Int64[np.ndarray, "episode object"]
    color: Float64[np.ndarray, "episode object 3"]
    radius: Float64[np.ndarray, "episode object"]
    position: Float64[np.ndarray, "episode time object 2"]
    velocity: Float64[np.ndarray, "episode time object 2"]
    heading: Float64[np.ndarray, "episode time object 2"]
    spin: Float64[np.ndarray, "episode time object"]
    texture: Int64[np.ndarray, "episode object+1"]
    camera: Float64[np.ndarray, "episode 3"]


def simulate_episodes(
    config: SolidsConfig, split: Split, ids: Int64[np.ndarray, " episode"]
) -> Episodes:
    """The episodes with these numbers in a split: drawn from the seed, then moved."""
    draws = np.stack([_draw_numbers(config.seed, split, int(number)) for number in ids])
    columns = iter(np.moveaxis(draws, 1, 0))
    count = np.floor(_scale_uniform(next(columns), config.resting[0], config.resting[1] + 1))
    attributes = [[next(columns) for _ in range(6)] for _ in range(OBJECTS)]
    launch, *jitter = (next(columns) for _ in range(4))
    texture = np.stack([next(columns) for _ in range(OBJECTS + 1)], axis=1)

    shape, material, color, radius, x, y = np.moveaxis(np.array(attributes), (0, 1), (2, 0))
    shapes = np.array([SHAPES.index(name) for name in config.shapes])
    materials = np.array([MATERIALS.index(name) for name in config.materials])
    shape_ids = _choose_options(shape, shapes)
    material_ids = _choose_options(material, materials)
    shape_ids[:, 0], material_ids[:, 0] = SPHERE, RUBBER

    position = np.empty((*radius.shape, 2))
    position[:, 1:, 0] = QUADRANTS[:, 0] * _scale_uniform(x[:, 1:], *RESTING_RANGE)
    position[:, 1:, 1] = QUADRANTS[:, 1] * _scale_uniform(y[:, 1:], *RESTING_RANGE)
    position[:, 0, 1] = _scale_uniform(launch, -LAUNCH_RADIUS, -1.0)
    position[:, 0, 0] = np.sqrt(LAUNCH_RADIUS**2 - position[:, 0, 1] ** 2)

    present = np.arange(OBJECTS) <= count[:, None]
    radii = _choose_options(radius, np.array(config.radii))
    trajectory = _integrate_motion(position, present, shape_ids, radii, config.frames)
    return Episodes(
        ids=np.asarray(ids, np.int64),
        present=present,
        shape=shape_ids,
        material=material_ids,
        color=_choose_options(color, np.array(list(config.colors.values()))),
        radius=radii,
        position=trajectory[0],
        velocity=trajectory[1],
        heading=trajectory[2],
        spin=trajectory[3],
        texture=np.floor(texture * 2**31).astype(np.int64),
        camera=config.camera_jitter * _scale_uniform(np.stack(jitter, axis=1), -1.0, 1.0),
    )


def _draw_numbers(seed: int, split: Split, number: int) -> Float64[np.ndarray, " draws"]:
    """All random numbers of one episode, in one fixed order, whatever the configuration uses."""
    sequence = np.random.SeedSequence((seed, _SPLITS[split], number))
    return np.random.Generator(np.random.PCG64(sequence)).random(1 + 6 * OBJECTS + 4 + OBJECTS + 1)


def _scale_uniform(uniform: np.ndarray, low: float, high: float) -> np.ndarray:
    return low + (high - low) * uniform


def _choose_options(uniform: np.ndarray, options: np.ndarray) -> np.ndarray:
    return options[np.floor(uniform * len(options)).astype(np.int64)]


# -- motion ----------------------------------------------------------------------------------------


@dataclass
class _Bodies:
    """The state that a step changes, [episode, object, ...]."""

    position: np.ndarray
    velocity: np.ndarray
    heading: np.ndarray
    spin: np.ndarray
    pushed: np.ndarray  # [episode]: the launch still drives object 0


def _integrate_motion(
    position: np.ndarray, present: np.ndarray, shape: np.ndarray, radius: np.ndarray, frames: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Integrate `frames` frames; returns positions, velocities, headings and spins over time."""
    episodes = len(position)
    bodies = _Bodies(
        position=position.copy(),
        velocity=np.zeros_like(position),
        heading=np.broadcast_to((1.0, 0.0), position.shape).copy(),
        spin=np.zeros(position.shape[:2]),
        pushed=np.ones(episodes, dtype=bool),
    )
    toward = -position[:, 0] / LAUNCH_RADIUS
    reach = np.where(shape == CUBE, radius * np.sqrt(2.0), radius)
    near = (reach[:, _PAIRS[0]] + reach[:, _PAIRS[1]] + 0.1) ** 2
    near[~(present[:, _PAIRS[0]] & present[:, _PAIRS[1]])] = 0.0

    step = 1.0 / SUBSTEPS
    slowing = (1.0 - LINEAR_DAMPING) ** (step / FRAMES_PER_SECOND)
    turning = (1.0 - ANGULAR_DAMPING) ** (step / FRAMES_PER_SECOND)
    history: list[tuple[np.ndarray, ...]] = []
    for tick in range((frames - 1) * SUBSTEPS + 1):
        if tick % SUBSTEPS == 0:
            state = (bodies.position, bodies.velocity, bodies.heading, bodies.spin)
            history.append(tuple(array.copy() for array in state))
        speed = tick * step * LAUNCH_ACCELERATION
        if speed < LAUNCH_SPEED:
            bodies.velocity[bodies.pushed, 0] = speed * toward[bodies.pushed]
        offset = bodies.position[:, _PAIRS[1]] - bodies.position[:, _PAIRS[0]]
        close = offset[..., 0] * offset[..., 0] + offset[..., 1] * offset[..., 1] < near
        if close.any():
            _resolve_collisions(bodies, close, shape, radius, step)
        bodies.position += bodies.velocity * step
        bodies.heading = _rotate_heading(bodies.heading, bodies.spin * step)
        bodies.velocity *= slowing
        bodies.spin *= turning
    position, velocity, heading, spin = (
        np.stack(arrays, 1) for arrays in zip(*history, strict=True)
    )
    return position, velocity, heading, spin


def _rotate_heading(heading: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """Rotate by a small angle. Cayley's form keeps the length at one without sine or cosine."""
    half = angle * 0.5
    cosine = (1.0 - half * half) / (1.0 + half * half)
    sine = 2.0 * half / (1.0 + half * half)
    c, s = heading[..., 0], heading[..., 1]
    return _pair_up(c * cosine - s * sine, s * cosine + c * sine)


def _resolve_collisions(
    bodies: _Bodies, close: np.ndarray, shape: np.ndarray, radius: np.ndarray, step: float
) -> None:
    """Exchange impulses between bodies that would touch within this step, pair after pair."""
    episode, pair = np.nonzero(close)
    gap, normal, point = _find_contacts(bodies, episode, _PAIRS[:, pair], shape, radius)
    # Nothing can happen to bodies that do not approach by more than their gap.
    speed = np.sqrt(_dot(bodies.velocity, bodies.velocity)) + np.abs(bodies.spin) * 2.0
    reach = (speed[episode, _PAIRS[0, pair]] + speed[episode, _PAIRS[1, pair]]) * step
    near = gap <= reach
    for number in np.unique(pair[near]).tolist():
        now = near & (pair == number)
        _exchange_impulses(
            bodies, episode[now], number, (gap[now], normal[now], point[now]), shape, radius, step
        )


def _exchange_impulses(
    bodies: _Bodies,
    episode: np.ndarray,
    pair: int,
    contact: tuple[np.ndarray, np.ndarray, np.ndarray],
    shape: np.ndarray,
    radius: np.ndarray,
    step: float,
) -> None:
    """Frictionless impulses between unit masses for one pair of objects, in several episodes."""
    i, j = _PAIRS[:, pair].tolist()
    gap, normal, point = contact
    arms = [_cross(point - bodies.position[episode, k], normal) for k in (i, j)]
    closing = _dot(bodies.velocity[episode, i] - bodies.velocity[episode, j], normal)
    closing = closing + bodies.spin[episode, i] * arms[0] - bodies.spin[episode, j] * arms[1]
    hit = (closing > 0) & (gap <= closing * step)
    spheres = (shape[episode, i] == SPHERE) & (shape[episode, j] == SPHERE)
    bounce = np.where(spheres, 1.0, RESTITUTION)
    # A square of half side h and unit mass has moment of inertia 2 h^2 / 3; discs never spin here.
    size = [radius[episode, k] for k in (i, j)]
    square = [shape[episode, k] == CUBE for k in (i, j)]
    ease = [np.where(square[k], 1.5 / (size[k] * size[k]), 0.0) for k in range(2)]
    resistance = 2.0 + arms[0] * arms[0] * ease[0] + arms[1] * arms[1] * ease[1]
    impulse = np.where(hit, (1.0 + bounce) * closing / resistance, 0.0)

    push = impulse[:, None] * normal
    bodies.velocity[episode, i] -= push
    bodies.velocity[episode, j] += push
    bodies.spin[episode, i] -= impulse * arms[0] * ease[0]
    bodies.spin[episode, j] += impulse * arms[1] * ease[1]
    overlap = np.minimum(gap, 0.0)[:, None] * 0.5 * normal
    bodies.position[episode, i] += overlap
    bodies.position[episode, j] -= overlap
    if i == 0:
        bodies.pushed[episode[hit]] = False


# -- contacts: gap, unit normal from the first body to the second, point of contact ----------------


def _find_contacts(
    bodies: _Bodies, episode: np.ndarray, pair: np.ndarray, shape: np.ndarray, radius: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The contact of each pair [2, n] of bodies, whatever their shapes."""
    at = [bodies.position[episode, k] for k in pair]
    turn = [bodies.heading[episode, k] for k in pair]
    size = [radius[episode, k] for k in pair]
    kind = [shape[episode, k] for k in pair]
    gap, normal, point = np.empty(len(episode)), np.empty_like(at[0]), np.empty_like(at[0])

    def put(rows: np.ndarray, contact: tuple[np.ndarray, ...], sign: float = 1.0) -> None:
        gap[rows], normal[rows], point[rows] = contact[0], sign * contact[1], contact[2]

    square = [kind[k] == CUBE for k in range(2)]
    rows = np.nonzero(~square[0] & ~square[1])[0]
    spheres = (kind[0][rows] == SPHERE) & (kind[1][rows] == SPHERE)
    put(
        rows,
        _find_disc_contact([at[0][rows], at[1][rows]], [size[0][rows], size[1][rows]], spheres),
    )
    for k in range(2):
        rows = np.nonzero(square[k] & ~square[1 - k])[0]
        contact = _find_square_disc_contact(
            at[k][rows], turn[k][rows], size[k][rows], at[1 - k][rows], size[1 - k][rows]
        )
        put(rows, contact, 1.0 - 2.0 * k)
    rows = np.nonzero(square[0] & square[1])[0]
    if len(rows):
        parts = ([values[k][rows] for k in range(2)] for values in (at, turn, size))
        put(rows, _find_square_contact(*parts))
    return gap, normal, point


def _find_disc_contact(
    at: list[np.ndarray], size: list[np.ndarray], spheres: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    offset = at[1] - at[0]
    distance = np.sqrt(_dot(offset, offset))
    normal = offset / distance[:, None]
    # Spheres of different size touch above the floor plan's discs: their centres differ in height.
    touching = np.where(spheres, 2.0 * np.sqrt(size[0] * size[1]), size[0] + size[1])
    return distance - touching, normal, at[0] + size[0][:, None] * normal


def _find_square_disc_contact(
    square: np.ndarray, turn: np.ndarray, half: np.ndarray, disc: np.ndarray, radius: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    local = _to_local(disc - square, turn)
    nearest = np.clip(local, -half[:, None], half[:, None])
    offset = local - nearest
    distance = np.sqrt(_dot(offset, offset))
    # A centre inside the square cannot come about at these speeds; the axis keeps it finite.
    safe = np.where(distance > 0, distance, 1.0)[:, None]
    normal = _to_world(np.where(distance[:, None] > 0, offset / safe, (1.0, 0.0)), turn)
    return distance - radius, normal, square + _to_world(nearest, turn)


def _find_square_contact(
    at: list[np.ndarray], turn: list[np.ndarray], size: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Separating axes: the face with the widest gap is the one that touches first."""
    candidates = [_find_face_contact(at, turn, size, face) for face in (0, 1)]
    second = candidates[1][0] > candidates[0][0]
    gap = np.where(second, candidates[1][0], candidates[0][0])
    normal = np.where(second[:, None], -candidates[1][1], candidates[0][1])
    point = np.where(second[:, None], candidates[1][2], candidates[0][2])
    return gap, normal, point


def _find_face_contact(
    at: list[np.ndarray], turn: list[np.ndarray], size: list[np.ndarray], face: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Best axis of square `face` against the other's corners; the normal leaves `face`."""
    other = 1 - face
    corners = np.array([(1.0, 1.0), (-1.0, 1.0), (-1.0, -1.0), (1.0, -1.0)])
    local = np.stack(
        [
            _to_local(
                at[other] + _to_world(size[other][:, None] * corner, turn[other]) - at[face],
                turn[face],
            )
            for corner in corners
        ],
        axis=1,
    )
    axes = np.array([(1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0)])
    along = local[:, :, 0, None] * axes[:, 0] + local[:, :, 1, None] * axes[:, 1]
    gaps = along.min(1) - size[face][:, None]
    best = gaps.argmax(1)
    rows = np.arange(len(best))
    depth = along[rows, :, best]
    # Two corners level with the face share the contact, so that a flat hit does not turn a cube.
    weight = np.maximum(0.0, 1.0 - (depth - depth.min(1, keepdims=True)) / 0.02)
    weight = weight / (weight[:, 0] + weight[:, 1] + weight[:, 2] + weight[:, 3])[:, None]
    point = sum(weight[:, k, None] * local[:, k] for k in range(4))
    return (
        gaps[rows, best],
        _to_world(axes[best], turn[face]),
        at[face] + _to_world(point, turn[face]),
    )


def _to_local(vector: np.ndarray, turn: np.ndarray) -> np.ndarray:
    c, s = turn[..., 0], turn[..., 1]
    x, y = vector[..., 0], vector[..., 1]
    return _pair_up(c * x + s * y, c * y - s * x)


def _to_world(vector: np.ndarray, turn: np.ndarray) -> np.ndarray:
    c, s = turn[..., 0], turn[..., 1]
    x, y = vector[..., 0], vector[..., 1]
    return _pair_up(c * x - s * y, s * x + c * y)


def _pair_up(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Vectors [..., 2]. `np.stack` takes several times as long for arrays as small as these."""
    vector = np.empty((*x.shape, 2))
    vector[..., 0], vector[..., 1] = x, y
    return vector


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a[..., 0] * b[..., 0] + a[..., 1] * b[..., 1]


def _cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]
