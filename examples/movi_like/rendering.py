"""Pictures of a scene by rays, with Open3D's Embree.

Rays go through twice as many pixels along each side as the frames have: colours are averaged in
linear light, the numbers of objects are kept as they are. Objects hide each other by their depth;
the floor hides nothing, so that an object that an edit puts below it is still seen whole.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import open3d
from camera import Camera, make_rays
from jaxtyping import Bool, Float, UInt8
from light import (
    Lamps,
    Surroundings,
    average_blocks,
    decode_srgb,
    encode_srgb,
    locate_surroundings,
    paint_surroundings,
    sample_bilinear,
    shade_floor,
    shade_objects,
)
from objects import ScannedObject

RAYS = 2  # along each side of a pixel
GAP = 1e-3  # between a surface and where its shadow rays start


@dataclass(frozen=True)
class Body:
    """An object in a scene; `size` is its longest side."""

    object: ScannedObject
    size: float


@dataclass(frozen=True)
class Scene:
    """All that a clip's pictures depend on. Positions are of centres of mass."""

    camera: Camera
    surroundings: Surroundings
    lamps: Lamps
    bodies: tuple[Body, ...]
    positions: Float[np.ndarray, "time object 3"]
    rotations: Float[np.ndarray, "time object 3 3"]

    def __len__(self) -> int:
        return len(self.positions)


@dataclass(frozen=True)
class Pictures:
    """A clip as it is seen. In `masks` 0 is background and i + 1 object i."""

    frames: UInt8[np.ndarray, "time size size 3"]
    masks: UInt8[np.ndarray, "time rays rays"]


def render_clip(scene: Scene, size: int) -> Pictures:
    """The frames of a clip at `size` x `size`, and masks of twice that."""
    renderer = _Renderer(scene, size * RAYS)
    frames, masks = zip(*renderer.render(), strict=True)
    return Pictures(np.stack(frames), np.stack(masks))


def render_amodal(scene: Scene, size: int) -> Bool[np.ndarray, "time object rays rays"]:
    """The whole of each object, hidden parts included, in as many pixels as masks have."""
    directions = make_rays(scene.camera, size * RAYS)
    origins = np.broadcast_to(scene.camera.position, directions.shape)
    rays = np.concatenate((origins, directions), -1)
    whole = np.zeros((len(scene), len(scene.bodies), *directions.shape[:2]), dtype=bool)
    for time, item in np.ndindex(whole.shape[:2]):
        whole[time, item] = _test_hits(_build_geometry(scene, time, [item]), rays)
    return whole


class _Renderer:
    """What stays the same over a clip: rays, floor and dome, textures in linear light."""

    def __init__(self, scene: Scene, rays: int) -> None:
        self.scene = scene
        self.directions = make_rays(scene.camera, rays)
        self.points, self.on_floor = locate_surroundings(scene.camera.position, self.directions)
        self.painted = paint_surroundings(scene.surroundings, self.points)
        # Images have their first row on top, textures count theirs from below.
        self.textures = [decode_srgb(body.object.texture[::-1]) for body in scene.bodies]

    @cached_property
    def rays(self) -> Float[np.ndarray, "rays rays 6"]:
        origins = np.broadcast_to(self.scene.camera.position, self.directions.shape)
        return np.concatenate((origins, self.directions), -1).astype(np.float32)

    def render(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Frame and mask, one time after the other."""
        for time in range(len(self.scene)):
            geometry = _build_geometry(self.scene, time, range(len(self.scene.bodies)))
            hits = geometry.cast_rays(open3d.core.Tensor(self.rays), nthreads=1)
            numbers = hits["geometry_ids"].numpy().astype(np.int64)
            missed = numbers == geometry.INVALID_ID
            colors = self.painted.copy()
            floor = missed & self.on_floor
            colors[floor] = self._shade_floor(geometry, floor)
            if not missed.all():
                colors[~missed] = self._shade_objects(geometry, time, hits, ~missed)
            mask = np.where(missed, 0, numbers + 1).astype(np.uint8)
            yield encode_srgb(average_blocks(colors, RAYS)), mask

    def _shade_floor(
        self, geometry: open3d.t.geometry.RaycastingScene, floor: Bool[np.ndarray, "rays rays"]
    ) -> Float[np.ndarray, "point 3"]:
        lamps = self.scene.lamps
        start = self.points[floor] + (0.0, 0.0, GAP)
        return shade_floor(self.painted[floor], lamps, ~_test_shadows(geometry, start, lamps))

    def _shade_objects(
        self,
        geometry: open3d.t.geometry.RaycastingScene,
        time: int,
        hits: dict[str, open3d.core.Tensor],
        seen: Bool[np.ndarray, "rays rays"],
    ) -> Float[np.ndarray, "point 3"]:
        number, triangle, u_v, flat, distance = (
            hits[name].numpy()[seen]
            for name in (
                "geometry_ids",
                "primitive_ids",
                "primitive_uvs",
                "primitive_normals",
                "t_hit",
            )
        )
        # Embree's u and v are the weights of a triangle's second and third corner.
        weights = np.stack((1 - u_v.sum(1), u_v[:, 0], u_v[:, 1]), -1)[..., None]
        texture, normals = np.empty_like(flat), np.empty_like(flat)
        for item, body in enumerate(self.scene.bodies):
            own = number == item
            place = (body.object.uv[triangle[own]] * weights[own]).sum(1)
            height, width, _ = self.textures[item].shape
            texture[own] = sample_bilinear(
                self.textures[item], place[:, 0] * width - 0.5, place[:, 1] * height - 0.5
            )
            smooth = (body.object.normals[triangle[own]] * weights[own]).sum(1)
            normals[own] = smooth @ self.scene.rotations[time, item].T
        directions = self.directions[seen]
        flat, normals = _face_viewer(flat, directions), _face_viewer(normals, directions)
        start = self.scene.camera.position + directions * distance[:, None] + GAP * flat
        lamps = self.scene.lamps
        unhidden = ~_test_shadows(geometry, start, lamps)
        return shade_objects(texture, lamps, normals @ lamps.directions.T, unhidden)


def _build_geometry(
    scene: Scene, time: int, items: range | list[int]
) -> open3d.t.geometry.RaycastingScene:
    """Objects where they are at `time`; the first of `items` gets number 0."""
    geometry = open3d.t.geometry.RaycastingScene(nthreads=1)
    for item in items:
        body = scene.bodies[item]
        turned = body.size * body.object.vertices @ scene.rotations[time, item].T
        geometry.add_triangles(
            (turned + scene.positions[time, item]).astype(np.float32),
            body.object.triangles.astype(np.uint32),
        )
    return geometry


def _test_hits(
    geometry: open3d.t.geometry.RaycastingScene, rays: Float[np.ndarray, "*rays 6"]
) -> Bool[np.ndarray, "*rays"]:
    tensor = open3d.core.Tensor(rays.astype(np.float32))
    return geometry.test_occlusions(tensor, nthreads=1).numpy()


def _test_shadows(
    geometry: open3d.t.geometry.RaycastingScene,
    points: Float[np.ndarray, "point 3"],
    lamps: Lamps,
) -> Bool[np.ndarray, "point lamp"]:
    """Which lamps each point does not see."""
    rays = np.empty((len(points), len(lamps.directions), 6), dtype=np.float32)
    rays[..., :3] = points[:, None]
    rays[..., 3:] = lamps.directions
    return _test_hits(geometry, rays)


def _face_viewer(
    normals: Float[np.ndarray, "point 3"], directions: Float[np.ndarray, "point 3"]
) -> Float[np.ndarray, "point 3"]:
    """Unit normals on the side that is seen: scans have faces that are turned inside out."""
    side = np.where((normals * directions).sum(1, keepdims=True) > 0, -1, 1)
    length = np.linalg.norm(normals, axis=1, keepdims=True)
    return normals * side / np.maximum(length, 1e-12)
