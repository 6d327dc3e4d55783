"""Encoders: frames to tokens on a square grid (paper, Sec. 3.1 and the MOVi-C protocol)."""

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from geoco import config
from geoco.errors import GeocoError

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_DEVIATION = (0.229, 0.224, 0.225)


class ConvEncoder(nn.Module):
    """Four 5 x 5 convolutions with strides 2, 2, 1, 1: 64 x 64 pixels become 16 x 16 tokens.

    No position embedding: coordinates enter through each slot's own frame.
    """

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.dim = width
        self.layers = nn.ModuleList(
            nn.Conv2d(inputs, width, 5, stride=stride, padding=2)
            for inputs, stride in zip((3, width, width, width), (2, 2, 1, 1), strict=True)
        )

    def forward(
        self, image: Float[Tensor, "batch 3 height width"]
    ) -> Float[Tensor, "batch token dim"]:
        field = image
        for layer in self.layers:
            field = torch.relu(layer(field))
        return field.flatten(2).transpose(1, 2)

    @staticmethod
    def side(size: int) -> int:
        """The side of the token grid for images of this size."""
        return (size + 3) // 4


class DinoEncoder(nn.Module):
    """Frozen DINOv2: tokens of its last block before the final norm, normalised and projected.

    Images are upsampled to 336 x 336 (bicubic), which gives 24 x 24 patches of 14 pixels. `weights`
    is a folder or a name that `transformers` can load.
    """

    SIZE, PATCH = 336, 14
    mean: Tensor
    deviation: Tensor

    def __init__(self, weights: str | Path, dim: int = 128) -> None:
        super().__init__()
        self.dim = dim
        self.backbone = _load_dino(weights)
        self.backbone.requires_grad_(False)
        patch, hidden = self.backbone.config.patch_size, self.backbone.config.hidden_size
        if patch != self.PATCH:
            raise GeocoError(
                f"model.encoder.weights: '{weights}' has patches of {patch} pixels, and those of "
                f"DINOv2 have {self.PATCH}"
            )
        self.project = nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, dim))
        self.register_buffer("mean", torch.tensor(IMAGENET_MEAN)[:, None, None], persistent=False)
        deviation = torch.tensor(IMAGENET_DEVIATION)[:, None, None]
        self.register_buffer("deviation", deviation, persistent=False)

    def forward(
        self, image: Float[Tensor, "batch 3 height width"]
    ) -> Float[Tensor, "batch token dim"]:
        with torch.no_grad():
            size = (self.SIZE, self.SIZE)
            large = F.interpolate(image, size, mode="bicubic", antialias=True)
            normal = (large - self.mean) / self.deviation
            states = self.backbone(normal, output_hidden_states=True).hidden_states[-1]
        patches = self.side(image.shape[-1]) ** 2
        result: Tensor = self.project(states[:, -patches:])  # class and register tokens come first
        return result

    @staticmethod
    def side(size: int) -> int:
        """The side of the token grid, the same for images of any size."""
        return DinoEncoder.SIZE // DinoEncoder.PATCH

    def train(self, mode: bool = True) -> "DinoEncoder":
        super().train(mode)
        self.backbone.eval()
        return self


def build_encoder(
    settings: config.ConvEncoderConfig | config.DinoEncoderConfig,
) -> ConvEncoder | DinoEncoder:
    if isinstance(settings, config.ConvEncoderConfig):
        return ConvEncoder(settings.width)
    return DinoEncoder(settings.weights, settings.dim)


def compute_token_side(
    settings: config.ConvEncoderConfig | config.DinoEncoderConfig, size: int
) -> int:
    """The side of an encoder's token grid for images of this size; no weights are read."""
    kind = ConvEncoder if isinstance(settings, config.ConvEncoderConfig) else DinoEncoder
    return kind.side(size)


def _load_dino(weights: str | Path) -> Any:
    try:
        from transformers import AutoModel
    except ImportError:
        raise GeocoError("DINOv2 needs transformers: pip install 'geoco-savi[dino]'") from None
    try:
        return AutoModel.from_pretrained(weights)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise GeocoError(
            f"model.encoder.weights: cannot load DINOv2 from '{weights}': {reason}"
        ) from None
