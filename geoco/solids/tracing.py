"""From canvas samples to points on objects: which layer covers a sample, and where it is hit."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from geoco.solids.geometry import Vector, advance, intersect_solid, rotate, select, subtract
from geoco.solids.physics import SHAPES
from geoco.solids.scenes import FOCAL, Scenes, compute_camera_axes

_NEAR = 0.5  # solids that reach this close to the camera's plane are out of the picture


@dataclass(frozen=True)
class Canvas:
    """The size of a picture and how finely it is sampled."""

    height: int
    width: int
    supersample: int

    @property
    def rows(self) -> int:
        return self.height * self.supersample

    @property
    def columns(self) -> int:
        return self.width * self.supersample


@dataclass(frozen=True)
class Placement:
    """Which layer each slot of a canvas shows, and where: a pixel q of it goes to scale q + shift.

    Pixel coordinates run from 0 to width over the canvas, with pixel centres at halves.
    """

    background: Int64[Tensor, " canvas"]
    scene: Int64[Tensor, "canvas slot"]
    object: Int64[Tensor, "canvas slot"]
    shown: Bool[Tensor, "canvas slot"]
    scale: Float64[Tensor, "canvas slot"]
    shift: Float64[Tensor, "canvas slot 2"]
    order: Int64[Tensor, "canvas slot"]
    repeated: bool = False  # whether canvases may share layers

    @staticmethod
    def from_scenes(scenes: Scenes) -> "Placement":
        """Every object of every scene where it is."""
        count, objects = scenes.present.shape
        device = scenes.present.device
        background = torch.arange(count, device=device)
        return Placement(
            background=background,
            scene=background[:, None].expand(count, objects),
            object=torch.arange(objects, device=device).expand(count, objects),
            shown=scenes.present,
            scale=torch.ones(count, objects, dtype=torch.float64, device=device),
            shift=torch.zeros(count, objects, 2, dtype=torch.float64, device=device),
            order=scenes.order,
        )

    def index_objects(self, scenes: Scenes) -> Int64[Tensor, " layer"]:
        """The object that each layer shows, counted through all scenes."""
        return (self.scene * scenes.present.shape[1] + self.object).flatten()

    def find_layers(self) -> tuple["Placement", Int64[Tensor, " layer"] | None]:
        """The layers that differ, each on a canvas of its own, and which of them every layer is.

        Canvases of edits of the same scene share all layers but one. None: no two are the same, and
        the layers are as they were.
        """
        if not self.repeated:
            return self, None
        columns = (self.scene, self.object, self.shown, self.scale, self.shift[..., 0],
                   self.shift[..., 1])  # fmt: skip
        table = torch.stack([part.flatten().double() for part in columns], 1)
        _, which = table.unique(dim=0, return_inverse=True)
        count = int(which.max()) + 1 if len(which) else 0
        numbers = torch.arange(len(which), device=which.device)
        first = torch.full((count,), len(which), device=which.device)
        first.scatter_reduce_(0, which, numbers, "amin")
        alone = [part.flatten()[first][:, None] for part in columns[:4]]
        shift = self.shift.flatten(0, 1)[first][:, None]
        scene, item, shown, scale = alone
        return (
            Placement(scene[:, 0], scene, item, shown, scale, shift, torch.zeros_like(item)),
            which,
        )

    def __len__(self) -> int:
        return len(self.background)

    def __getitem__(self, index: slice) -> "Placement":
        return self._map_tensors(lambda value: value[index])

    def to(self, device: torch.device | str) -> "Placement":
        return self._map_tensors(lambda value: value.to(device))

    def _map_tensors(self, change: Callable[[Tensor], Tensor]) -> "Placement":
        names = [field.name for field in fields(self) if field.name != "repeated"]
        values: dict[str, Any] = {name: change(getattr(self, name)) for name in names}
        return replace(self, **values)


@dataclass(frozen=True)
class Hits:
    """Samples covered by layers, as flat lists: one entry for each layer and sample.

    `layer` counts slots through all canvases, `sample` counts through a canvas row by row, and
    `source` is the object hit, counted through all scenes.
    """

    layer: Int64[Tensor, " hit"]
    row: Int64[Tensor, " hit"]
    column: Int64[Tensor, " hit"]
    source: Int64[Tensor, " hit"]
    point: Vector
    normal: Vector
    sight: Vector  # from the camera, not of unit length

    def __getitem__(self, index: Int64[Tensor, " chosen"]) -> "Hits":
        return Hits(
            self.layer[index],
            self.row[index],
            self.column[index],
            self.source[index],
            *(
                (vector[0][index], vector[1][index], vector[2][index])
                for vector in (self.point, self.normal, self.sight)
            ),
        )


def trace_rays(scenes: Scenes, canvas: Canvas, placement: Placement, margin: int = 0) -> Hits:
    """All hits of all layers on their canvases, or up to `margin` pixels beyond the edges."""
    source = placement.index_objects(scenes)
    layer, row, column = _list_candidates(scenes, canvas, placement, source, margin)
    x = _map_to_layer(placement, 0, layer, column, canvas)
    y = _map_to_layer(placement, 1, layer, row, canvas)
    source = source[layer]
    sight = compute_sight_lines(x, y, canvas)
    camera = _gather_cameras(scenes, source)
    center = _gather_centers(scenes, source)
    start = subtract(camera, center)
    cosine, sine = scenes.heading.flatten(0, 1)[source].unbind(-1)
    parts = []
    for shape, chosen in group_by_shape(scenes, source):
        c, s = cosine[chosen], sine[chosen]
        local = rotate(select(start, chosen), c, -s)
        toward = rotate(select(sight, chosen), c, -s)
        size = scenes.radius.flatten()[source[chosen]]
        hit, distance, normal = intersect_solid(shape, local, toward, size)
        index = torch.nonzero(hit).squeeze(1)
        world = rotate(select(normal, index), c[index], s[index])
        parts.append((chosen[index], distance[index], world))
    index = torch.cat([part[0] for part in parts])
    distance = torch.cat([part[1] for part in parts])
    normals = [torch.cat([part[2][k] for part in parts]) for k in range(3)]
    sight = select(sight, index)
    return Hits(
        layer[index],
        row[index],
        column[index],
        source[index],
        point=advance(select(camera, index), distance, sight),
        normal=(normals[0], normals[1], normals[2]),
        sight=sight,
    )


def compute_sight_lines(x: Tensor, y: Tensor, canvas: Canvas) -> Vector:
    """Directions from the camera through pixel coordinates; depth one along its axis."""
    right = ((x / canvas.width - 0.5) / FOCAL).float()
    up = ((0.5 * canvas.height - y) / (canvas.width * FOCAL)).float()
    axes = compute_camera_axes().tolist()
    east, north, high = (axes[k][0] * right + axes[k][1] * up - axes[k][2] for k in range(3))
    return east, north, high


def locate_layer_pixels(placement: Placement, canvas: Canvas) -> tuple[Tensor, Tensor]:
    """The canvas's pixel centres, carried back into layers: x [layer, 1, w], y [layer, h, 1]."""
    coarse = Canvas(canvas.height, canvas.width, 1)
    device = placement.scale.device
    layer = torch.arange(placement.scale.numel(), device=device)
    x = _map_to_layer(
        placement, 0, layer[:, None], torch.arange(canvas.width, device=device), coarse
    )
    y = _map_to_layer(
        placement, 1, layer[:, None], torch.arange(canvas.height, device=device), coarse
    )
    return x[:, None, :], y[:, :, None]


def group_by_shape(scenes: Scenes, source: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Split a flat list of objects into the entries of each shape."""
    shape = scenes.shape.flatten()[source]
    for number in range(len(SHAPES)):
        yield number, torch.nonzero(shape == number).squeeze(1)


def _list_candidates(
    scenes: Scenes, canvas: Canvas, placement: Placement, source: Tensor, margin: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Samples inside each layer's bounding rectangle: layer, row and column, as flat lists."""
    low, high, ahead = _compute_bounds(scenes, canvas, source)
    scale, shift = placement.scale.flatten()[:, None], placement.shift.flatten(0, 1)
    shown = placement.shown.flatten() & ahead
    limit = torch.tensor([canvas.width, canvas.height], device=low.device)
    low = ((low * scale + shift).clamp(min=-margin) * canvas.supersample).floor().long()
    high = ((high * scale + shift).minimum(limit + margin) * canvas.supersample).ceil().long()
    extent = (high - low).clamp(min=0)
    count = torch.where(shown, extent[:, 0] * extent[:, 1], 0)
    layer = torch.repeat_interleave(count)
    place = torch.arange(len(layer), device=low.device) - (count.cumsum(0) - count)[layer]
    width = extent[layer, 0]
    row = place // width
    return layer, low[layer, 1] + row, low[layer, 0] + place - row * width


def _compute_bounds(
    scenes: Scenes, canvas: Canvas, source: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Pixel rectangle about each object's box, and whether all of it lies ahead of the camera."""
    center = torch.stack(_gather_centers(scenes, source), -1).double()
    camera = torch.stack(_gather_cameras(scenes, source), -1).double()
    size = scenes.radius.flatten()[source].double()
    cosine, sine = scenes.heading.flatten(0, 1)[source].double().unbind(-1)
    signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0], dtype=torch.float64)] * 3)
    x, y, z = (size[:, None] * column for column in signs.to(size.device).unbind(-1))
    corner = torch.stack(rotate((x, y, z), cosine[:, None], sine[:, None]), -1)
    offset = corner + (center - camera)[:, None]
    axes = torch.from_numpy(compute_camera_axes()).to(size.device)
    right, up, back = (
        offset[..., 0] * axes[0, k] + offset[..., 1] * axes[1, k] + offset[..., 2] * axes[2, k]
        for k in range(3)
    )
    depth = (-back).clamp(min=_NEAR)
    pixels = torch.stack(
        (
            (right / depth * FOCAL + 0.5) * canvas.width,
            0.5 * canvas.height - up / depth * FOCAL * canvas.width,
        ),
        dim=-1,
    )
    return pixels.amin(1) - 0.01, pixels.amax(1) + 0.01, (-back).amin(1) > _NEAR


def _map_to_layer(
    placement: Placement, axis: int, layer: Tensor, index: Tensor, canvas: Canvas
) -> Float64[Tensor, "..."]:
    """Sample centres, carried back from the canvas into the layer's own pixel coordinates.

    Counted in half samples, whole-pixel moves are whole numbers: they meet the very samples that
    the layer has where it came from.
    """
    halves = 2 * canvas.supersample
    scale = placement.scale.flatten()[layer]
    shift = placement.shift[..., axis].flatten()[layer]
    return ((2 * index + 1) - halves * shift) / scale / halves


def _gather_centers(scenes: Scenes, source: Tensor) -> Vector:
    position = scenes.position.flatten(0, 1)[source]
    return position[..., 0], position[..., 1], scenes.radius.flatten()[source]


def _gather_cameras(scenes: Scenes, source: Tensor) -> Vector:
    position = scenes.camera[source // scenes.present.shape[1]]
    return position[..., 0], position[..., 1], position[..., 2]
