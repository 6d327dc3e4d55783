"""The floor: its clean light, and the share of it that shadows take."""

import torch
from jaxtyping import Float32
from torch import Tensor

from geoco.solids import shading, textures
from geoco.solids.geometry import Vector, compute_occlusion, dot, rotate
from geoco.solids.scenes import Scenes
from geoco.solids.tracing import (
    Canvas,
    Placement,
    compute_sight_lines,
    group_by_shape,
    locate_layer_pixels,
)


def render_clean_floor(scenes: Scenes, canvas: Canvas, background: Tensor) -> list[Tensor]:
    """The floor without objects, per sample: three channels of [canvas or 1, rows, columns]."""
    device, every = background.device, canvas.supersample
    x = (torch.arange(canvas.columns, device=device, dtype=torch.float64) + 0.5) / every
    y = (torch.arange(canvas.rows, device=device, dtype=torch.float64)[:, None] + 0.5) / every
    camera = scenes.camera[background]
    if scenes.texture is None and bool((camera == camera[:1]).all()):
        camera = camera[:1]  # one camera, one floor
    sight = compute_sight_lines(x, y, canvas)
    floor_x, floor_y, down = _intersect_floor(camera, sight)
    channels = shading.compute_floor_radiance(floor_x, floor_y)
    if scenes.texture is not None:
        seed = scenes.texture[background, -1][:, None, None]
        detail = textures.FLOOR_DETAIL
        mix = textures.compute_pattern(
            seed, (floor_x * detail, floor_y * detail, torch.zeros_like(floor_x))
        )
        offset = (floor_x - camera[:, 0, None, None], floor_y - camera[:, 1, None, None])
        far = offset[0] * offset[0] + offset[1] * offset[1]
        mix = (mix - 0.5) / (1.0 + far / textures.FLOOR_FADE**2) + 0.5
        red, green, blue = (
            channel * (textures.pick_second_color(seed, c) * 0.5 + 0.75 - 0.5 * mix)
            for c, channel in enumerate(channels)
        )
        channels = (red, green, blue)
    sky = shading.AMBIENT_FLOOR  # only a tall canvas reaches above the horizon
    return [torch.where(down, channel, sky[c]) for c, channel in enumerate(channels)]


def compute_shadows(
    scenes: Scenes, canvas: Canvas, placement: Placement
) -> Float32[Tensor, "3 canvas slot height width"]:
    """The share of the clean floor's light that each layer alone takes away, at pixel centres."""
    count, slots = placement.shown.shape
    source = placement.index_objects(scenes)
    x, y = locate_layer_pixels(placement, canvas)
    camera = scenes.camera[placement.scene.flatten()]
    floor_x, floor_y, down = _intersect_floor(camera, compute_sight_lines(x, y, canvas))
    taken = torch.zeros(3, count * slots, canvas.height, canvas.width, device=x.device)
    for shape, chosen in group_by_shape(scenes, source):
        shadow = _compute_shape_shadow(
            scenes, shape, source[chosen], floor_x[chosen], floor_y[chosen]
        )
        for channel in range(3):
            taken[channel, chosen] = shadow[channel]
    taken *= down & placement.shown.flatten()[:, None, None]
    return taken.view(3, count, slots, canvas.height, canvas.width)


def apply_shadows(
    clean: list[Tensor], taken: Float32[Tensor, "3 canvas slot height width"], canvas: Canvas
) -> list[Tensor]:
    """The floor under all shadows, per sample: three channels of [canvas, rows, columns]."""
    channels = []
    for floor, shares in zip(clean, taken, strict=True):
        left = 1.0 - shares[:, 0]
        for slot in range(1, shares.shape[1]):
            left = left * (1.0 - shares[:, slot])
        channels.append(floor * _upsample_bilinear(left, canvas))
    return channels


def _intersect_floor(camera: Tensor, sight: Vector) -> tuple[Tensor, Tensor, Tensor]:
    """Where lines of sight [n or 1, h, w] from cameras [n, 3] meet the floor, and if they do."""
    start = [camera[:, k, None, None] for k in range(3)]
    down = sight[2] < 0
    distance = -start[2] / torch.where(down, sight[2], -1.0)
    return start[0] + distance * sight[0], start[1] + distance * sight[1], down


def _compute_shape_shadow(
    scenes: Scenes, shape: int, source: Tensor, x: Tensor, y: Tensor
) -> list[Tensor]:
    """Shares taken at floor points [layer, h, w] by solids of one shape."""
    position = scenes.position.flatten(0, 1)[source][..., None, None]
    size = scenes.radius.flatten()[source][:, None, None]
    cosine, sine = scenes.heading.flatten(0, 1)[source][..., None, None].unbind(1)
    offset = (x - position[:, 0], y - position[:, 1], -size)
    local = rotate(offset, cosine, -sine)
    # Close to its foot a solid also takes the light that comes from everywhere.
    foot = size * size / dot(offset, offset)
    foot = foot * foot
    foot = foot * foot
    taken = [ambient * foot for ambient in shading.AMBIENT_FLOOR]
    clean: list[Tensor | float] = list(shading.AMBIENT_FLOOR)
    for light, (share, toward, far) in zip(
        shading.LIGHTS, shading.compute_floor_light(x, y), strict=True
    ):
        hidden = compute_occlusion(
            shape, local, rotate(toward, cosine, -sine), size, light.radius / far
        )
        hidden = share * hidden
        taken = [taken[c] + light.power[c] * hidden for c in range(3)]
        clean = [clean[c] + light.power[c] * share for c in range(3)]
    return [taken[c] / clean[c] for c in range(3)]


def _upsample_bilinear(pixels: Tensor, canvas: Canvas) -> Tensor:
    """Bilinear from pixel centres to samples, clamped at the edges."""
    for dim, size in ((1, canvas.height), (2, canvas.width)):
        place = torch.arange(size * canvas.supersample, device=pixels.device, dtype=torch.float64)
        place = ((place + 0.5) / canvas.supersample - 0.5).clamp(0, size - 1)
        low = place.long().clamp(max=size - 2)
        weight = (place - low).float()
        weight = weight[:, None] if dim == 1 else weight
        before = pixels.index_select(dim, low)
        after = pixels.index_select(dim, low + 1)
        pixels = before + (after - before) * weight
    return pixels
