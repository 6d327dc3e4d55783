"""Objects thrown over a floor, by PyBullet, with Kubric's ranges for MOVi-C."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pybullet
from camera import draw_rotation, to_matrices
from jaxtyping import Float

LOW, HIGH = np.array((-5.0, -5.0, 1.0)), np.array((5.0, 5.0, 5.0))  # where objects start
SPEED = 4.0  # along x and y, in either direction, before an object's own place is taken off
GRAVITY = 10.0
FRICTION, FLOOR_FRICTION, RESTITUTION = 0.5, 0.3, 0.5
DENSITY = 0.2  # mass over size^3
STEPS, STEP = 20, 1 / 240  # of a frame, in seconds
TRIES = 1000  # to place an object without touching others


@dataclass(frozen=True)
class Trajectory:
    """Where the objects are and how they move, frame by frame.

    `kept` are the numbers of the objects that found a place, which in practice is all of them.
    """

    kept: tuple[int, ...]
    positions: Float[np.ndarray, "time object 3"]  # of centres of mass
    rotations: Float[np.ndarray, "time object 4"]  # quaternions (x, y, z, w)
    velocities: Float[np.ndarray, "time object 3"]
    spins: Float[np.ndarray, "time object 3"]  # angular velocities


def throw_objects(
    hulls: Sequence[Float[np.ndarray, "_corner 3"]],
    sizes: Sequence[float],
    frames: int,
    generator: np.random.Generator,
) -> Trajectory:
    """Place objects, whose hulls have sides of 1, at random and let them go."""
    client = pybullet.connect(pybullet.DIRECT)
    try:
        _make_floor(client)
        bodies: dict[int, int] = {}
        for number, (hull, size) in enumerate(zip(hulls, sizes, strict=True)):
            body = _add_object(client, hull * size, DENSITY * size**3)
            if _place_object(client, body, hull * size, list(bodies.values()), generator):
                bodies[number] = body
        there = list(bodies.values())
        states = np.array([_advance(client, there, frame) for frame in range(frames)])
    finally:
        pybullet.disconnect(client)
    return Trajectory(tuple(bodies), *np.split(states, (3, 7, 10), axis=-1))


def _make_floor(client: int) -> None:
    pybullet.setGravity(0, 0, -GRAVITY, physicsClientId=client)
    pybullet.setPhysicsEngineParameter(
        fixedTimeStep=STEP, deterministicOverlappingPairs=1, physicsClientId=client
    )
    plane = pybullet.createCollisionShape(pybullet.GEOM_PLANE, physicsClientId=client)
    floor = pybullet.createMultiBody(0, plane, physicsClientId=client)
    pybullet.changeDynamics(
        floor,
        -1,
        lateralFriction=FLOOR_FRICTION,
        restitution=RESTITUTION,
        physicsClientId=client,
    )


def _add_object(client: int, hull: Float[np.ndarray, "corner 3"], mass: float) -> int:
    # Without triangles a mesh is taken as the convex hull of its vertices.
    shape = pybullet.createCollisionShape(
        pybullet.GEOM_MESH, vertices=hull.tolist(), physicsClientId=client
    )
    body = pybullet.createMultiBody(mass, shape, physicsClientId=client)
    pybullet.changeDynamics(
        body, -1, lateralFriction=FRICTION, restitution=RESTITUTION, physicsClientId=client
    )
    return body


def _place_object(
    client: int,
    body: int,
    hull: Float[np.ndarray, "corner 3"],
    others: Sequence[int],
    generator: np.random.Generator,
) -> bool:
    """Put an object where it touches no other, and give it its velocity."""
    for _ in range(TRIES):
        rotation = draw_rotation(generator)
        turned = hull @ to_matrices(rotation).T
        least, most = LOW - turned.min(0), HIGH - turned.max(0)
        # What is larger than the box along an axis stands in its middle.
        middle = (least + most) / 2
        position = generator.uniform(np.minimum(least, middle), np.maximum(most, middle))
        pybullet.resetBasePositionAndOrientation(
            body, position.tolist(), rotation.tolist(), physicsClientId=client
        )
        if not any(
            pybullet.getClosestPoints(body, other, 0.0, physicsClientId=client) for other in others
        ):
            velocity = generator.uniform(-SPEED, SPEED, 2) - position[:2]
            pybullet.resetBaseVelocity(body, [*velocity.tolist(), 0.0], physicsClientId=client)
            return True
    pybullet.removeBody(body, physicsClientId=client)
    return False


def _advance(client: int, bodies: Sequence[int], frame: int) -> list[list[float]]:
    """The state of every body at `frame`; called for one frame after the other."""
    for _ in range(STEPS if frame else 0):
        pybullet.stepSimulation(physicsClientId=client)
    states = []
    for body in bodies:
        place = pybullet.getBasePositionAndOrientation(body, physicsClientId=client)
        motion = pybullet.getBaseVelocity(body, physicsClientId=client)
        states.append([*place[0], *place[1], *motion[0], *motion[1]])
    return states
