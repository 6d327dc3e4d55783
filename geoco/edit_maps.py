"""What an edit should do to a mask, and which objects an edit is scored on (paper, Sec. C.2).

Every command is an affine map of the endpoint-aligned grid, q -> factor q + offset, with one factor
for both axes. Targets are the factual masks under that map. Which objects are eligible follows from
the factual masks and the map alone, so that no model can choose the objects it is scored on.

Maps broadcast against the leading dimensions of masks, so that several commands of one object, or
one command of several objects, are a single call. Coordinates are float64 throughout: whether a
pixel belongs to a target must not depend on rounding.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Float64, Int64, Real
from torch import Tensor

FEWEST_PIXELS = 10  # of a valid object, and of a valid target
BAND = 0.5  # the outermost pixel's cell ends here, in pixels
TOLERANCE = 1e-6  # pixels: closer than this, two places are the same


@dataclass(frozen=True)
class AffineMap:
    """q -> factor q + offset, on the grid [-1, 1]^2."""

    factor: Float64[Tensor, "*maps"]
    offset: Float64[Tensor, "*maps 2"]

    @classmethod
    def from_move(cls, pixels: Real[Tensor, "*maps 2"], height: int, width: int) -> "AffineMap":
        """T_pos: shift by pixels (x, y); one pixel of n is 2 / (n - 1) of the grid."""
        steps = torch.tensor([width - 1, height - 1], dtype=torch.float64, device=pixels.device)
        return cls._broadcast(torch.ones_like(steps[0]), 2 * pixels.double() / steps)

    @classmethod
    def from_resize(
        cls, factor: Float[Tensor, "..."], position: Float[Tensor, "... 2"]
    ) -> "AffineMap":
        """T_scl: scale by a factor about a position; the two broadcast."""
        factor, position = factor.double(), position.double()
        return cls._broadcast(factor, position - factor[..., None] * position)

    @classmethod
    def from_transplant(
        cls,
        position: Float[Tensor, "... 2"],
        scale: Float[Tensor, "..."],
        donor_position: Float[Tensor, "... 2"],
        donor_scale: Float[Tensor, "..."],
    ) -> "AffineMap":
        """T_app: the donor's frame onto the recipient's, p_r + s_r / s_d (q - p_d)."""
        factor = scale.double() / donor_scale.double()
        return cls._broadcast(
            factor, position.double() - factor[..., None] * donor_position.double()
        )

    @classmethod
    def _broadcast(cls, factor: Tensor, offset: Tensor) -> "AffineMap":
        return cls(factor.expand(offset.shape[:-1]), offset)

    def inverse(self) -> "AffineMap":
        """The map that undoes this one."""
        return AffineMap(1 / self.factor, -self.offset / self.factor[..., None])

    def apply(self, points: Float[Tensor, "... 2"]) -> Float64[Tensor, "... 2"]:
        """Where points (x, y) of the grid go; points and maps broadcast."""
        return self.factor[..., None] * points.double() + self.offset

    def rows(self, index: Int64[Tensor, " row"]) -> "AffineMap":
        """Some of the maps, by their first dimension."""
        return AffineMap(self.factor[index], self.offset[index])

    def to(self, device: torch.device | str) -> "AffineMap":
        return AffineMap(self.factor.to(device), self.offset.to(device))

    def resample(self, canvas: tuple[int, int], size: tuple[int, int]) -> "AffineMap":
        """The same edit for masks of another size; both are heights and widths."""
        return AffineMap(self.factor, convert_points(self.offset, canvas, size))


def convert_points(
    points: Float[Tensor, "... 2"], canvas: tuple[int, int], size: tuple[int, int]
) -> Float64[Tensor, "... 2"]:
    """Points of one canvas on the grid of another of the same picture.

    A grid ends at the centres of the outermost pixels, a picture at their outer edges: where one
    pixel becomes two by two, a point of the coarse grid comes nearer to the middle of the fine one
    by a factor of 126/127. Whole-pixel moves stay whole-pixel moves by it.
    """
    if canvas == size:
        return points.double()
    factors = [new / (new - 1) * (old - 1) / old for old, new in zip(canvas, size, strict=True)]
    return points.double() * torch.tensor(factors[::-1], dtype=torch.float64, device=points.device)


def warp_mask(
    mask: Bool[Tensor, "... height width"], edit: AffineMap
) -> Bool[Tensor, "... height width"]:
    """The ideal target: hard masks inverse-warped by nearest neighbour, zero beyond the canvas.

    A pixel stands for its cell [i - 1/2, i + 1/2): a place half-way between two pixels takes the
    right or lower one. (Rounding half to even would tear a mask moved by half a pixel into stripes
    of two.) Whole-pixel moves are exact.
    """
    height, width = mask.shape[-2:]
    columns, rows = (
        torch.floor(places + 0.5 + TOLERANCE).long()
        for places in _locate_samples(edit, height, width)
    )
    shape = (*torch.broadcast_shapes(mask.shape[:-2], edit.factor.shape), height, width)
    row = rows.clamp(0, height - 1)[..., :, None].expand(shape)
    column = columns.clamp(0, width - 1)[..., None, :].expand(shape)
    sampled = mask.expand(shape).gather(-2, row).gather(-1, column)
    inside_rows = (rows >= 0) & (rows < height)
    inside_columns = (columns >= 0) & (columns < width)
    return sampled & inside_rows[..., :, None] & inside_columns[..., None, :]


def warp_image(
    layer: Float[Tensor, "... channel height width"], edit: AffineMap
) -> Float[Tensor, "... channel height width"]:
    """Fields inverse-warped bilinearly, with zeros beyond the canvas.

    For RGB targets the channels are colours premultiplied by alpha, and alpha itself: interpolating
    plain colours would bleed those of pixels that the layer does not cover. Values must be finite.
    Whole-pixel moves are exact.
    """
    height, width = layer.shape[-2:]
    # The map keeps the axes apart, so that bilinear sampling is one small matrix on either side; in
    # float64, which neither autocast nor TF32 makes coarser.
    columns, rows = (
        _compute_tent_weights(places, size)[..., None, :, :]
        for places, size in zip(_locate_samples(edit, height, width), (width, height), strict=True)
    )
    return (rows @ layer.double() @ columns.transpose(-2, -1)).to(layer.dtype)


def is_large_enough(
    mask: Bool[Tensor, "... height width"], least: int = FEWEST_PIXELS
) -> Bool[Tensor, "..."]:
    """Whether a mask is large enough to be measured: an object, or the target of an edit."""
    return mask.sum((-2, -1)) >= least


def compute_cell_bounds(mask: Bool[Tensor, "... height width"]) -> Float64[Tensor, "... 4"]:
    """Left, top, right and bottom of the occupied pixels' cells, in pixels; nan for empty masks.

    Pixel i is the cell from i - 1/2 to i + 1/2: a mask of one pixel is one pixel wide.
    """

    def ends(line: Tensor) -> tuple[Tensor, Tensor]:
        line = line.to(torch.uint8)
        # argmax returns the first of equals.
        return line.argmax(-1) - 0.5, line.shape[-1] - line.flip(-1).argmax(-1) - 0.5

    left, right = ends(mask.any(-2))
    top, bottom = ends(mask.any(-1))
    bounds = torch.stack((left, top, right, bottom), -1).double()
    return bounds.where(mask.any(-1).any(-1)[..., None], torch.nan)


def transform_bounds(
    bounds: Float64[Tensor, "... 4"], edit: AffineMap, height: int, width: int
) -> Float64[Tensor, "... 4"]:
    """Where an edit puts cell bounds, in pixels and before anything is clipped."""
    shift = torch.stack((_compute_shift(edit, 0, width), _compute_shift(edit, 1, height)), -1)
    return edit.factor[..., None] * bounds + torch.cat((shift, shift), -1)


def stays_interior(
    bounds: Float64[Tensor, "... 4"], height: int, width: int
) -> Bool[Tensor, "..."]:
    """Whether bounds avoid the outermost pixel band: inside [0.5, 62.5] on 64 pixels."""
    left, top, right, bottom = bounds.unbind(-1)
    least = BAND - TOLERANCE
    inside_width = (left >= least) & (right <= width - 1 - least)
    return inside_width & (top >= least) & (bottom <= height - 1 - least)


def is_feasible(mask: Bool[Tensor, "... height width"], edit: AffineMap) -> Bool[Tensor, "..."]:
    """The interior scope: the factual mask and its ideal image both avoid the outermost band.

    A scale curve asks it of all its commands; a transplant asks it of the donor under the map, and
    of the recipient's own bounds (`stays_interior`). An empty mask is nowhere.
    """
    height, width = mask.shape[-2:]
    bounds = compute_cell_bounds(mask)
    image = transform_bounds(bounds, edit, height, width)
    return stays_interior(bounds, height, width) & stays_interior(image, height, width)


def _compute_shift(edit: AffineMap, axis: int, size: int) -> Float64[Tensor, "*maps"]:
    """The map of pixel indices along an axis is i -> factor i + this."""
    return (edit.offset[..., axis] + 1 - edit.factor) * (size - 1) / 2


def _locate_samples(
    edit: AffineMap, height: int, width: int
) -> tuple[Float64[Tensor, "*maps width"], Float64[Tensor, "*maps height"]]:
    """From where each column and each row of the edited canvas takes its value, in pixels."""
    inverse = edit.inverse()

    def along(axis: int, size: int) -> Tensor:
        pixels = torch.arange(size, dtype=torch.float64, device=edit.factor.device)
        places = inverse.factor[..., None] * pixels + _compute_shift(inverse, axis, size)[..., None]
        whole = places.round()
        return torch.where((places - whole).abs() < TOLERANCE, whole, places)

    return along(0, width), along(1, height)


def _compute_tent_weights(
    places: Float64[Tensor, "*maps sample"], size: int
) -> Float64[Tensor, "..."]:
    """Weights of linear interpolation: row by row, how much of each pixel a place takes."""
    pixels = torch.arange(size, dtype=torch.float64, device=places.device)
    return (1 - (places[..., None] - pixels).abs()).clamp_min(0)
