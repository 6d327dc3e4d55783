"""Encoders: frames to tokens on a square grid (paper, Sec. 3.1 and the MOVi-C protocol)."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from geoco import config
from geoco.models.dino import PATCH, Backbone, read_published

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

    Images of `size` pixels are upsampled to 336 x 336 (bicubic, antialiased), which gives 24 x 24
    patches of 14 pixels. Its backbone is nan until `read_backbone` or a checkpoint fills it.
    """

    SIZE = 336
    mean: Tensor
    deviation: Tensor
    upsampling: Tensor

    def __init__(self, settings: config.DinoEncoderConfig, size: int) -> None:
        super().__init__()
        self.settings, self.dim = settings, settings.dim
        self.backbone = Backbone(settings.backbone, self.side(size))
        self.backbone.requires_grad_(False)
        width = settings.backbone.width
        self.project = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, settings.dim))
        constants = {
            "mean": torch.tensor(IMAGENET_MEAN)[:, None, None],
            "deviation": torch.tensor(IMAGENET_DEVIATION)[:, None, None],
            "upsampling": compute_bicubic_matrix(size, self.SIZE),
        }
        for name, value in constants.items():
            self.register_buffer(name, value, persistent=False)

    def forward(
        self,
        image: Float[Tensor, "batch 3 height width"],
        features: Float[Tensor, "batch token channel"] | None = None,
    ) -> Float[Tensor, "batch token dim"]:
        """Tokens of images; `features` are those of the backbone, where they are known."""
        if features is None:
            features = self.compute_features(image)
        result: Tensor = self.project(features.to(self.mean.dtype))
        return result

    @torch.no_grad()
    def compute_features(
        self, image: Float[Tensor, "batch 3 height width"]
    ) -> Float[Tensor, "batch token channel"]:
        """What the frozen backbone makes of images: it never changes in a training."""
        result: Tensor = self.backbone(self.cut_patches(image))
        return result

    def cut_patches(
        self, image: Float[Tensor, "batch 3 height width"]
    ) -> Float[Tensor, "batch token pixel"]:
        """The normalised patches of the enlarged image, row by row; enlarged in float32 always.

        Normalised first, since enlarging keeps constants; copied once, in the type that is read.
        """
        device = image.device.type
        with torch.autocast(device, enabled=False):
            normal = (image.to(self.upsampling.dtype) - self.mean) / self.deviation
            large = self.upsampling @ normal @ self.upsampling.T
        if torch.is_autocast_enabled(device):
            large = large.to(torch.get_autocast_dtype(device))
        grid = large.unflatten(3, (-1, PATCH)).unflatten(2, (-1, PATCH))
        return grid.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)

    def read_backbone(self) -> None:
        """Fill the backbone with what is published under the name in the settings."""
        side = self.SIZE // PATCH
        tensors = read_published(self.settings.weights, self.settings.backbone, side)
        self.backbone.load_state_dict(tensors)

    @staticmethod
    def side(size: int) -> int:
        """The side of the token grid, the same for images of any size."""
        return DinoEncoder.SIZE // PATCH


def build_encoder(
    settings: config.ConvEncoderConfig | config.DinoEncoderConfig, size: int
) -> ConvEncoder | DinoEncoder:
    """An encoder of square images of so many pixels."""
    if isinstance(settings, config.ConvEncoderConfig):
        return ConvEncoder(settings.width)
    return DinoEncoder(settings, size)


def compute_token_side(
    settings: config.ConvEncoderConfig | config.DinoEncoderConfig, size: int
) -> int:
    """The side of an encoder's token grid for images of this size; no weights are read."""
    kind = ConvEncoder if isinstance(settings, config.ConvEncoderConfig) else DinoEncoder
    return kind.side(size)


def compute_bicubic_matrix(size: int, target: int) -> Float[Tensor, "{target} {size}"]:
    """What antialiased bicubic interpolation does along one axis, as a matrix.

    Its two axes are independent, and along one that keeps its size it changes nothing: so it
    resizes the unit vectors. Two products of small matrices are faster than the interpolation.
    """
    units = torch.eye(size, dtype=torch.float64)[None, None]
    resized = F.interpolate(units, (target, size), mode="bicubic", antialias=True)
    return resized[0, 0].float()
