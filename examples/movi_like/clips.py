"""Clips by number: the same recipe and number give the same scene, whoever makes it and when."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from camera import draw_camera, to_matrices
from light import Surroundings, draw_lamps, list_maps, read_map
from objects import ScannedObject, list_objects, load_object, locate_prepared
from physics import Trajectory, throw_objects
from rendering import Body, Scene

SPLITS = ("train", "val", "test")
FEWEST, MOST = 3, 10  # objects of a clip
SMALLEST, LARGEST = 0.75, 3.0  # their longest sides


@dataclass(frozen=True)
class Recipe:
    """What decides, with the folders, what clips look like."""

    seed: int = 0
    frames: int = 24
    size: int = 64


class Library:
    """Folders of objects and maps. What was read of them is kept in memory, not without bound."""

    def __init__(self, objects: Path, maps: Path, prepared: Path) -> None:
        self._objects, self._maps = list_objects(objects), list_maps(maps)
        self._prepared = prepared
        self.object_names, self.map_names = tuple(self._objects), tuple(self._maps)
        self.get_object = lru_cache(maxsize=128)(self._load_object)
        self.get_map = lru_cache(maxsize=8)(self._read_map)

    def list_unprepared(self) -> list[str]:
        """The objects that no process has read yet."""
        return [
            name for name in self._objects if not locate_prepared(name, self._prepared).exists()
        ]

    def _load_object(self, name: str) -> ScannedObject:
        return load_object(self._objects[name], self._prepared)

    def _read_map(self, name: str) -> np.ndarray:
        return read_map(self._maps[name])


@dataclass(frozen=True)
class DrawnClip:
    """A clip's scene, and what is told of it: the state at the first frame, whence all follows."""

    scene: Scene
    metadata: Mapping[str, Any]


def draw_clip(library: Library, recipe: Recipe, split: str, number: int) -> DrawnClip:
    """Choose objects, light and camera of a clip, and let its objects fly."""
    generator = np.random.default_rng([recipe.seed, SPLITS.index(split), number])
    count = int(generator.integers(FEWEST, MOST + 1))
    names = [str(name) for name in generator.choice(library.object_names, count)]
    objects = [library.get_object(name) for name in names]
    sizes = generator.uniform(SMALLEST, LARGEST, count).tolist()
    map_name = str(generator.choice(library.map_names))
    turn, mirrored = float(generator.uniform(0, 2 * np.pi)), bool(generator.integers(2))
    surroundings = Surroundings(map_name, library.get_map(map_name), turn, mirrored)
    lamps, camera = draw_lamps(surroundings, generator), draw_camera(generator)
    hulls = [scanned.hull.astype(np.float64) for scanned in objects]
    flight = throw_objects(hulls, sizes, recipe.frames, generator)
    scene = Scene(
        camera=camera,
        surroundings=surroundings,
        lamps=lamps,
        bodies=tuple(Body(objects[k], sizes[k]) for k in flight.kept),
        positions=flight.positions,
        rotations=to_matrices(flight.rotations),
    )
    return DrawnClip(scene, _describe(scene, flight))


def _describe(scene: Scene, flight: Trajectory) -> dict[str, Any]:
    """Small, since the index of a store holds it: poses at the first frame only."""

    def shorten(values: np.ndarray) -> Any:
        return values.round(4).tolist()

    return {
        "camera": shorten(scene.camera.position),
        "light": scene.surroundings.name,
        "turn": round(scene.surroundings.turn, 4),
        "mirrored": scene.surroundings.mirrored,
        "objects": [body.object.name for body in scene.bodies],
        "sizes": [round(body.size, 4) for body in scene.bodies],
        "positions": shorten(flight.positions[0]),
        "rotations": shorten(flight.rotations[0]),
        "velocities": shorten(flight.velocities[0]),
        "spins": shorten(flight.spins[0]),
    }
