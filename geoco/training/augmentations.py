"""Pictures under SlotAug's commands: moved, scaled about their middle, or in other colours.

All of it runs where the tensors are and waits for nothing.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from geoco import geometry
from geoco.geometry import EPSILON
from geoco.models.slotaug import Command


def augment(
    images: Float[Tensor, "image 3 height width"], commands: Command
) -> Float[Tensor, "image 3 height width"]:
    """Each picture under its command; pixels beyond its edge are those of the edge."""
    colors = rgb_to_hsl(warp(images, commands.translation, commands.scale))
    hue, saturation, lightness = colors.unbind(-3)
    shift, *factors = (part[:, None, None] for part in commands.color.unbind(-1))
    saturation, lightness = (
        (part * factor).clamp(0, 1)
        for part, factor in zip((saturation, lightness), factors, strict=True)
    )
    return hsl_to_rgb(torch.stack(((hue + shift) % 1, saturation, lightness), -3))


def warp(
    images: Float[Tensor, "image 3 height width"],
    translation: Float[Tensor, "image 2"],
    scale: Float[Tensor, " image"],
) -> Float[Tensor, "image 3 height width"]:
    """Pictures scaled about their middle and moved; bilinear."""
    height, width = images.shape[-2:]
    points = geometry.build_grid(height, width, dtype=images.dtype, device=images.device)
    move, size = 2 * translation[:, None, None], scale[:, None, None, None]
    source = (points - move) / size
    return F.grid_sample(images, source, padding_mode="border", align_corners=True)


def rgb_to_hsl(
    rgb: Float[Tensor, "*images 3 height width"],
) -> Float[Tensor, "*images 3 height width"]:
    """Hue in turns, saturation and lightness; a grey has hue 0."""
    red, green, blue = rgb.unbind(-3)
    high, low = rgb.amax(-3), rgb.amin(-3)
    chroma, lightness = high - low, (high + low) / 2
    divisor = torch.where(chroma > 0, chroma, torch.ones_like(chroma))
    hue = torch.where(
        high == red,
        ((green - blue) / divisor) % 6,
        torch.where(high == green, 2 + (blue - red) / divisor, 4 + (red - green) / divisor),
    )
    saturation = chroma / (1 - (2 * lightness - 1).abs()).clamp_min(EPSILON)
    hue, saturation = (torch.where(chroma > 0, part, 0 * part) for part in (hue / 6, saturation))
    return torch.stack((hue, saturation, lightness), -3)


def hsl_to_rgb(
    hsl: Float[Tensor, "*images 3 height width"],
) -> Float[Tensor, "*images 3 height width"]:
    hue, saturation, lightness = hsl.unbind(-3)
    reach = saturation * torch.minimum(lightness, 1 - lightness)

    def channel(twelfths: int) -> Tensor:
        place = (twelfths + 12 * hue) % 12
        return lightness - reach * torch.minimum(place - 3, 9 - place).clamp(-1, 1)

    return torch.stack((channel(0), channel(8), channel(4)), -3)
