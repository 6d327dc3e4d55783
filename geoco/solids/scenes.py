"""Scenes: single moments of episodes, as tensors that the renderer draws."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float32, Float64, Int64
from torch import Tensor

from geoco.solids.physics import Episodes

# Obj3D's camera: Blender's default place, a 35 mm lens on a 32 mm sensor. It tracks the origin: the
# angles stored in the scene file are overruled by that constraint (docs/solids.md has the proof).
CAMERA_POSITION = (7.4811, -6.5076, 5.3437)
FOCAL = 35.0 / 32.0


@dataclass(frozen=True)
class Scenes:
    """What stands where. A solid's centre is as high above the floor as its radius."""

    present: Bool[Tensor, "scene object"]
    shape: Int64[Tensor, "scene object"]
    metal: Bool[Tensor, "scene object"]
    color: Float32[Tensor, "scene object 3"]
    radius: Float32[Tensor, "scene object"]
    position: Float32[Tensor, "scene object 2"]
    heading: Float32[Tensor, "scene object 2"]
    camera: Float32[Tensor, "scene 3"]
    depth: Float32[Tensor, "scene object"]
    texture: Int64[Tensor, "scene object+1"] | None

    def __len__(self) -> int:
        return len(self.present)

    def __getitem__(self, index: slice | Int64[Tensor, " scene"]) -> "Scenes":
        return self._map_tensors(lambda value: value[index])

    @staticmethod
    def cat(parts: "list[Scenes]") -> "Scenes":
        def concatenate(name: str) -> Any:
            values = [getattr(part, name) for part in parts]
            return None if values[0] is None else torch.cat(values)

        return Scenes(**{field.name: concatenate(field.name) for field in fields(Scenes)})

    def to(self, device: torch.device | str) -> "Scenes":
        return self._map_tensors(lambda value: value.to(device))

    def _map_tensors(self, change: Callable[[Tensor], Tensor]) -> "Scenes":
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, value in values.items():
            values[name] = None if value is None else change(value)
        return Scenes(**values)

    @property
    def order(self) -> Int64[Tensor, "scene object"]:
        """Each object's place in the queue from the camera; 0 is the front."""
        return self.depth.argsort(dim=-1, stable=True).argsort(dim=-1)


def compute_camera_axes() -> Float64[np.ndarray, "3 3"]:
    """Columns are the camera's right, up and backward directions in the world."""
    backward = np.array(CAMERA_POSITION) / np.linalg.norm(CAMERA_POSITION)
    right = np.cross((0.0, 0.0, 1.0), backward)
    right /= np.linalg.norm(right)
    return np.stack((right, np.cross(backward, right), backward), axis=1)


def extract_scenes(
    episodes: Episodes,
    episode: Int64[np.ndarray, " scene"],
    frame: Int64[np.ndarray, " scene"],
    textured: bool = False,
) -> Scenes:
    """The given frames of simulated episodes, on the CPU."""
    position = episodes.position[episode, frame]
    radius = episodes.radius[episode]
    camera = np.array(CAMERA_POSITION) + episodes.camera[episode]
    # Disjoint discs on the floor hide each other in the order of this power distance (the radical
    # line separates them). A square counts as the disc inside it: wrong only where the line of
    # sight runs along the face that separates two solids, where neither hides the other.
    offset = position - camera[:, None, :2]
    depth = offset[..., 0] * offset[..., 0] + offset[..., 1] * offset[..., 1] - radius * radius

    def to_float32(array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))

    return Scenes(
        present=torch.from_numpy(episodes.present[episode]),
        shape=torch.from_numpy(episodes.shape[episode]),
        metal=torch.from_numpy(episodes.material[episode] == 1),
        color=to_float32(episodes.color[episode]),
        radius=to_float32(radius),
        position=to_float32(position),
        heading=to_float32(episodes.heading[episode, frame]),
        camera=to_float32(camera),
        depth=to_float32(depth),
        texture=torch.from_numpy(episodes.texture[episode]) if textured else None,
    )
