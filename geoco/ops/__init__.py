"""Operators that others may import."""

from geoco.ops.stack import steered_layers
from geoco.ops.steered import ScaleSteeredConv2d, backend_of, scale_steered_conv2d
from geoco.ops.upsample import enlarge

__all__ = ["ScaleSteeredConv2d", "backend_of", "enlarge", "scale_steered_conv2d", "steered_layers"]
