"""Operators that others may import."""

from geoco.ops.stack import apply_steered_layers
from geoco.ops.steered import ScaleSteeredConv2d, choose_backend, scale_steered_conv2d
from geoco.ops.upsample import upsample_bilinear

__all__ = [
    "ScaleSteeredConv2d",
    "apply_steered_layers",
    "choose_backend",
    "scale_steered_conv2d",
    "upsample_bilinear",
]
