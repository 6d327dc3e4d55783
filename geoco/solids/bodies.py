"""The colours of objects: the light that others leave them, and what metal mirrors."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from geoco.solids import shading, textures
from geoco.solids.geometry import (
    Vector,
    advance,
    compute_occlusion,
    intersect_solid,
    normalize,
    rotate,
    scale,
    select,
    subtract,
)
from geoco.solids.scenes import Scenes
from geoco.solids.tracing import Hits, group_by_shape


def compute_body_colors(scenes: Scenes, hits: Hits) -> shading.Color:
    """Linear RGB of hits, lit and mirrored as in the scene that each object comes from."""
    view = normalize((-hits.sight[0], -hits.sight[1], -hits.sight[2]))
    surface = shading.Surface(hits.point, hits.normal, view, _compute_albedo(scenes, hits))
    colors = shading.shade_rubber(surface, _compute_visibility(scenes, hits))
    metal = torch.nonzero(scenes.metal.flatten()[hits.source]).squeeze(1)
    if len(metal):
        mirror = surface.select(metal)
        looking = shading.reflect_view(mirror)
        mirrored = _compute_reflection(scenes, hits.source[metal], mirror.point, looking)
        for channel, values in zip(
            colors, shading.shade_metal(mirror, mirrored, looking), strict=True
        ):
            channel[metal] = values
    return colors


def _compute_albedo(scenes: Scenes, hits: Hits) -> shading.Color:
    plain = scenes.color.flatten(0, 1)[hits.source].unbind(-1)
    if scenes.texture is None:
        return plain[0], plain[1], plain[2]
    seed = scenes.texture[:, :-1].flatten()[hits.source]
    position = scenes.position.flatten(0, 1)[hits.source]
    size = scenes.radius.flatten()[hits.source]
    cosine, sine = scenes.heading.flatten(0, 1)[hits.source].unbind(-1)
    offset = subtract(hits.point, (position[:, 0], position[:, 1], size))
    local = scale(rotate(offset, cosine, -sine), textures.OBJECT_DETAIL / size)
    mix = textures.compute_pattern(seed, local)
    red, green, blue = (
        plain[c] + mix * (textures.pick_second_color(seed, c) - plain[c]) for c in range(3)
    )
    return red, green, blue


@dataclass(frozen=True)
class _Neighbours:
    """All pairs of a point and another object of its scene, for one shape of that object."""

    shape: int
    point: Tensor  # which point
    place: Tensor  # the object's number in its scene
    center: Vector
    size: Tensor
    cosine: Tensor
    sine: Tensor

    def to_local_direction(self, vector: Vector) -> Vector:
        """A direction at each point, in the object's frame."""
        return rotate(select(vector, self.point), self.cosine, -self.sine)

    def to_local_position(self, vector: Vector) -> Vector:
        """A position at each point, in the object's frame."""
        away = subtract(select(vector, self.point), self.center)
        return rotate(away, self.cosine, -self.sine)


def _pair_neighbours(scenes: Scenes, source: Tensor) -> Iterator[_Neighbours]:
    objects = scenes.present.shape[1]
    scene = source // objects
    beside = scenes.present[scene]
    beside[torch.arange(len(source), device=source.device), source % objects] = False
    point, place = torch.nonzero(beside).unbind(-1)
    other = scene[point] * objects + place
    for shape, chosen in group_by_shape(scenes, other):
        if not len(chosen):
            continue
        index = other[chosen]
        position = scenes.position.flatten(0, 1)[index]
        size = scenes.radius.flatten()[index]
        cosine, sine = scenes.heading.flatten(0, 1)[index].unbind(-1)
        center = (position[:, 0], position[:, 1], size)
        yield _Neighbours(shape, point[chosen], place[chosen], center, size, cosine, sine)


def _compute_visibility(scenes: Scenes, hits: Hits) -> list[Tensor]:
    """For each light, the share that the scene's other objects leave."""
    table = (len(hits.source), scenes.present.shape[1])
    lights = [shading.compute_irradiance(light, hits.point) for light in shading.LIGHTS]
    hidden = [torch.zeros(table, device=hits.source.device) for _ in lights]
    for pair in _pair_neighbours(scenes, hits.source):
        offset = pair.to_local_position(hits.point)
        for light, (toward, _, distance), amount in zip(
            shading.LIGHTS, lights, hidden, strict=True
        ):
            spread = light.radius / distance[pair.point]
            direction = pair.to_local_direction(toward)
            amount[pair.point, pair.place] = compute_occlusion(
                pair.shape, offset, direction, pair.size, spread
            )
    visible = []
    for amount in hidden:
        share = 1.0 - amount[:, 0]
        for place in range(1, table[1]):
            share = share * (1.0 - amount[:, place])
        visible.append(share)
    return visible


def _compute_reflection(
    scenes: Scenes, source: Tensor, point: Vector, looking: Vector
) -> shading.Color:
    """What metal sees in its mirrored direction: other objects, the floor, or the black sky."""
    size = scenes.radius.flatten()[source]
    position = scenes.position.flatten(0, 1)[source]
    mirrored = shading.reflect_floor(point, looking, (position[:, 0], position[:, 1], size), size)

    table = (len(source), scenes.present.shape[1])
    reach = torch.full(table, torch.inf, device=source.device)
    normals = [torch.zeros(table, device=source.device) for _ in range(3)]
    for pair in _pair_neighbours(scenes, source):
        hit, distance, normal = intersect_solid(
            pair.shape, pair.to_local_position(point), pair.to_local_direction(looking), pair.size
        )
        reach[pair.point, pair.place] = torch.where(hit, distance, torch.inf)
        for table_, values in zip(normals, rotate(normal, pair.cosine, pair.sine), strict=True):
            table_[pair.point, pair.place] = values

    distance, place = reach.min(1)
    met = torch.nonzero(distance < torch.inf).squeeze(1)
    place, distance = place[met], distance[met]
    color = scenes.color[source[met] // table[1], place]
    surface = shading.Surface(
        point=advance(select(point, met), distance, select(looking, met)),
        normal=(normals[0][met, place], normals[1][met, place], normals[2][met, place]),
        view=(-looking[0][met], -looking[1][met], -looking[2][met]),
        color=(color[:, 0], color[:, 1], color[:, 2]),
    )
    unhidden = [torch.ones_like(distance) for _ in shading.LIGHTS]
    for channel, values in zip(mirrored, shading.shade_rubber(surface, unhidden), strict=True):
        channel[met] = values
    return mirrored
