"""The scale-steered convolution, as an operator that stands on its own."""

from geoco.ops.steered import ScaleSteeredConv2d, backend_of, scale_steered_conv2d

__all__ = ["ScaleSteeredConv2d", "backend_of", "scale_steered_conv2d"]
