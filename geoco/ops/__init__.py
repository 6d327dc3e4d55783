"""Operators that others may import."""

from geoco.ops.enlarging import enlarge
from geoco.ops.layers import steered_layers
from geoco.ops.steered import ScaleSteeredConv2d, backend_of, scale_steered_conv2d

__all__ = ["ScaleSteeredConv2d", "backend_of", "enlarge", "scale_steered_conv2d", "steered_layers"]
