"""Scanned objects: a folder each, with a textured OBJ mesh. Needs numpy, scipy and Pillow.

Three published layouts are known, all of Google Scanned Objects:

    NAME/meshes/model.obj          NAME/materials/textures/texture.png    the original
    NAME/visual_geometry.obj       NAME/texture.png                       Kubric's
    NAME/model.obj                 NAME/texture.png                       made for MuJoCo

An object is prepared once, centred and scaled to a longest side of 1, and kept as an .npz file:
scans come with textures of many megabytes, of which a picture of 128 x 128 shows little.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int, UInt8
from PIL import Image
from scipy.spatial import ConvexHull, QhullError

from geoco.errors import GeocoError
from geoco.files import write_whole

MESHES = ("meshes/model.obj", "visual_geometry.obj", "model.obj")
TEXTURES = ("materials/textures/texture.png", "texture.png")
MOST_TEXELS = 512  # along a side of a prepared texture
HULL_VERTICES = 64  # of a collision shape


@dataclass(frozen=True)
class ScannedObject:
    """A mesh around its centre of mass, whose longest side is 1. uv goes right and up."""

    name: str
    vertices: Float[np.ndarray, "vertex 3"]
    triangles: Int[np.ndarray, "triangle 3"]
    uv: Float[np.ndarray, "triangle 3 2"]
    normals: Float[np.ndarray, "triangle 3 3"]
    texture: UInt8[np.ndarray, "height width 3"]
    hull: Float[np.ndarray, "corner 3"]  # the collision shape


@dataclass(frozen=True)
class Mesh:
    """What an OBJ file holds, polygons cut into triangles."""

    vertices: Float[np.ndarray, "vertex 3"]
    triangles: Int[np.ndarray, "triangle 3"]
    uv: Float[np.ndarray, "triangle 3 2"]
    normals: Float[np.ndarray, "triangle 3 3"]


def list_objects(folder: Path) -> dict[str, Path]:
    """The folders of objects below `folder`, by name."""
    known = {path.name: path for path in sorted(folder.glob("*")) if _find_file(path, MESHES)}
    if not known:
        expected = " or ".join(f"NAME/{mesh}" for mesh in MESHES)
        raise GeocoError(f"{folder}: there is no scanned object here: expected {expected}")
    return known


def load_object(folder: Path, prepared: Path) -> ScannedObject:
    """An object from its folder, or as it was prepared before in the folder `prepared`."""
    path = locate_prepared(folder.name, prepared)
    if not path.exists():
        made = prepare_object(folder)
        buffer = io.BytesIO()
        np.savez(buffer, **{k: v for k, v in vars(made).items() if k != "name"})
        write_whole(path, buffer.getvalue())
    with np.load(path, allow_pickle=False) as stored:
        return ScannedObject(name=folder.name, **stored)


def locate_prepared(name: str, prepared: Path) -> Path:
    return prepared / f"{name}.npz"


def prepare_object(folder: Path) -> ScannedObject:
    """Read an object; centre its mesh, scale it, thin its hull and shrink its texture."""
    mesh_path, texture_path = _find_file(folder, MESHES), _find_file(folder, TEXTURES)
    if mesh_path is None or texture_path is None:
        raise GeocoError(f"{folder}: expected a mesh and {' or '.join(TEXTURES)}")
    mesh = read_mesh(mesh_path)
    try:
        hull = ConvexHull(mesh.vertices[np.unique(mesh.triangles)])
    except (QhullError, ValueError):
        raise GeocoError(f"{mesh_path}: this mesh is flat: it needs a volume to fall") from None
    center = compute_center_of_mass(hull.points[hull.simplices], hull.points.mean(0))
    longest = np.ptp(hull.points, axis=0).max()
    thinned = thin_hull(hull.points[hull.vertices], HULL_VERTICES)
    return ScannedObject(
        name=folder.name,
        vertices=((mesh.vertices - center) / longest).astype(np.float32),
        triangles=mesh.triangles.astype(np.int32),
        uv=mesh.uv.astype(np.float32),
        normals=mesh.normals.astype(np.float32),
        texture=_read_texture(texture_path),
        hull=((thinned - center) / longest).astype(np.float32),
    )


def compute_center_of_mass(
    faces: Float[np.ndarray, "face 3 3"], inside: Float[np.ndarray, "3"]
) -> Float[np.ndarray, "3"]:
    """Of a convex body, as the sum of tetrahedra between its faces and a point inside it."""
    volumes = np.abs(np.linalg.det(faces - inside))
    middles = (faces.sum(1) + inside) / 4
    return volumes @ middles / volumes.sum()


def thin_hull(corners: Float[np.ndarray, "corner 3"], most: int) -> Float[np.ndarray, "thin 3"]:
    """The corners that lie farthest out in `most` directions, evenly spread over the sphere."""
    height = 1 - (2 * np.arange(most) + 1) / most
    turn = np.pi * (3 - np.sqrt(5)) * np.arange(most)  # the golden angle
    level = np.sqrt(1 - height**2)
    directions = np.stack((level * np.cos(turn), level * np.sin(turn), height), -1)
    return corners[np.unique((corners @ directions.T).argmax(0))]


def read_mesh(path: Path) -> Mesh:
    """Vertices, triangles, texture coordinates and normals of an OBJ file.

    Corners without a normal get that of their triangle.
    """
    values: dict[str, list[list[str]]] = {"v": [], "vt": [], "vn": []}
    corners: list[Sequence[str]] = []
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                kind, *words = line.split() or ("",)
                if kind in values:
                    values[kind].append(words[:3])
                elif kind == "f":
                    corners += [(words[0], *pair) for pair in pairwise(words[1:])]
        vertices = np.array(values["v"], dtype=np.float64)
        places = np.array(values["vt"], dtype=np.float64)
        counts = [len(values[kind]) for kind in ("v", "vt", "vn")]
        numbers = np.array(
            [[_read_corner(word, counts) for word in triangle] for triangle in corners]
        )
        if (numbers[..., :2] < 0).any() or (numbers >= np.array(counts)).any():
            raise GeocoError(f"{path}: a face lacks texture coordinates or names what is not there")
        faces = numbers[..., 0]
        normals = _compute_face_normals(vertices[faces])[:, None].repeat(3, axis=1)
        if values["vn"]:
            own = np.array(values["vn"], dtype=np.float64)[numbers[..., 2]]
            normals = np.where((numbers[..., 2] >= 0)[..., None], own, normals)
        return Mesh(vertices, faces, places[numbers[..., 1]][..., :2], normals)
    except (OSError, ValueError, IndexError) as error:
        raise GeocoError(f"{path}: this OBJ mesh cannot be read: {error}") from None


def _read_corner(word: str, counts: list[int]) -> tuple[int, int, int]:
    """`v/vt/vn` as places in their lists, -1 for what is left out; negative ones count back."""
    parts = [*word.split("/"), "", ""][:3]
    vertex, place, normal = (
        -1 if not part else int(part) - 1 if int(part) > 0 else count + int(part)
        for part, count in zip(parts, counts, strict=True)
    )
    return vertex, place, normal


def _compute_face_normals(faces: Float[np.ndarray, "face 3 3"]) -> Float[np.ndarray, "face 3"]:
    across = np.cross(faces[:, 1] - faces[:, 0], faces[:, 2] - faces[:, 0])
    return across / np.maximum(np.linalg.norm(across, axis=1, keepdims=True), 1e-20)


def _read_texture(path: Path) -> UInt8[np.ndarray, "height width 3"]:
    try:
        with Image.open(path) as image:
            picture = image.convert("RGB")
    except OSError as error:
        raise GeocoError(f"{path}: this texture cannot be read: {error}") from None
    picture.thumbnail((MOST_TEXELS, MOST_TEXELS), Image.Resampling.BOX)
    return np.asarray(picture)


def _find_file(folder: Path, names: Sequence[str]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)
