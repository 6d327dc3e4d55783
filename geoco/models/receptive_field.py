"""Where a decoder's alpha logits owe nothing to the edge of its canvas.

This is the receptive-field-valid domain of the paper's "Finite-Grid Covariance Diagnostics".
Convolutions read zeros beyond the canvas, so a field near its edge is not what the same decoder
decodes on a larger canvas. Validity is one where all that a value was computed from lay within, and
less as far as something did not. The canvas is square and every operator treats both axes alike,
so validity is followed along one axis and the plane is a product. It depends on the decoder and on
a slot's scale, never on what is decoded or where.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from geoco.models.decoders import BroadcastDecoder, Decoder
from geoco.models.middle import read_taps

TOLERANCE = 1e-6


def is_complete(validity: Float64[Tensor, "*any"]) -> Bool[Tensor, "*any"]:
    """Whether computational support is in the canvas but for rounding."""
    return validity >= 1 - TOLERANCE


def to_plane(line: Float64[Tensor, "*slots size"]) -> Float64[Tensor, "*slots size size"]:
    """Validity of pixels from that along either axis."""
    return line[..., :, None] * line[..., None, :]


def trace_alpha(
    decoder: Decoder, scale: Float[Tensor, " slot"]
) -> Float64[Tensor, "slot {decoder.size}"]:
    """Validity of slots' alpha logits along an axis of the usual canvas.

    The broadcast field is known everywhere; each layer upsamples and then convolves. The alpha head
    is pointwise, and leaves validity as it is. The canonical canvas is warped into place and has no
    support on the image plane that could be followed: nothing of it is valid, nor of a decoder that
    is not made of such layers.
    """
    if not isinstance(decoder, BroadcastDecoder) or not decoder.on_image_plane:
        return torch.zeros(len(scale), decoder.size, dtype=torch.float64, device=scale.device)
    shape = (len(scale), decoder.broadcast)
    line = torch.ones(shape, dtype=torch.float64, device=scale.device)
    for size, layer in zip(decoder.sizes, decoder.refine, strict=True):
        line = convolve_line(upsample_line(line, size), *read_taps(layer, scale))
    assert decoder.alpha.kernel_size == (1, 1)
    return line


def upsample_line(line: Float64[Tensor, "slot size"], size: int) -> Float64[Tensor, "slot {size}"]:
    """After bilinear upsampling, endpoint to endpoint."""
    return F.interpolate(line[:, None], size, mode="linear", align_corners=True)[:, 0]


def convolve_line(
    line: Float64[Tensor, "slot size"], dilation: Float[Tensor, " slot"], kernel: int
) -> Float64[Tensor, "slot size"]:
    """After a convolution whose taps lie `dilation` pixels apart: that of the worst tap."""
    size, reach = line.shape[-1], kernel // 2
    pixels = torch.arange(size, dtype=torch.float64, device=line.device)
    taps = torch.arange(-reach, reach + 1, dtype=torch.float64, device=line.device)
    places = pixels + (dilation.double()[:, None] * taps)[..., None]
    # Linear interpolation with zeros outside: row by row, how much of each pixel a tap takes.
    weights = (1 - (places[..., None] - pixels).abs()).clamp_min(0)
    return torch.einsum("stpq,sq->stp", weights, line).amin(1)
