"""A frame at its own size, taken apart into its background and one layer per slot.

The model's background slot, enlarged, is the picture's floor as it would be without objects. What
the picture has beyond it is shared out among the other slots by their alpha. So a layer holds the
object's own pixels, and its shadow where alpha says that the shadow is its own; floor that a loose
mask covers looks like the background and does not come along. `benchmarks/original_size.py`
measures it, and the alternatives that did worse are in docs/editor.md.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64, UInt8
from torch import Tensor

from geoco.editing.decoded import DecodedFrames

# Chosen on six scenes of the training split of `solids`.
RESERVE = 0.005  # alpha that the background always has when what lies over it is shared out
CORE = (0.1, 0.5)  # alpha of a slot: not its body below, surely its body above
DIFFERENCE = (0.05, 0.15)  # from the background's colour: floor below, body above
SPREAD = (0.05, 0.12)  # of brightness over the channels: shadow below, another colour above
DARKEST = 0.4  # share of the light that a shadow leaves
CERTAIN = 0.95  # alpha from which on a pixel tells the background's colours
REACH = 3.0  # pixels of the model, over which the background's colours are corrected
BODY = 0.5  # alpha of what is measured as an object's place and size
FEWEST = 1e-4  # of the picture, to be measured

Planes = Float[Tensor, "slot height width"]
Picture = Float[Tensor, "3 height width"]


@dataclass(frozen=True, eq=False)
class FrameLayers:
    """What a frame is made of, at its own size.

    Places are (x, y) in [-1, 1] from edge to edge of the picture, whatever its size.
    """

    frame: Picture
    clean: Picture  # the background as it would be without objects
    share: Planes  # the model's alpha, enlarged
    alpha: Planes  # of layers: bodies cover, shadows do not
    model_colors: Float[Tensor, "slot 3 rows columns"]  # what the model paints
    model_alpha: Float[Tensor, "slot rows columns"]
    background: int
    center: Float64[Tensor, "slot 2"]  # of bodies
    radius: Float64[Tensor, " slot"]  # 0 where there is none
    position: Float64[Tensor, "slot 2"]  # of slots
    scale: Float64[Tensor, " slot"]

    @property
    def side(self) -> int:
        return self.frame.shape[-1]

    @property
    def rest(self) -> Picture:
        """The frame without what the slots' layers hold."""
        objects = self._objects
        return self.frame - objects / _reserve(objects) * (self.frame - self.clean)

    def take(self, slot: int) -> Float[Tensor, "5 side side"]:
        """A slot's layer, as planes that can be moved together.

        Its colours, premultiplied and negative in shadows; its alpha; and the alpha of all other
        objects: there the slot may go on behind them.
        """
        objects, own, alpha = self._objects, self.share[slot], self.alpha[slot]
        if slot == self.background:
            own = torch.zeros_like(own)
        color = own / _reserve(objects) * (self.frame - self.clean) + alpha * self.clean
        return torch.cat((color, alpha[None], (objects - own)[None]))

    @property
    def _objects(self) -> Float[Tensor, "side side"]:
        """Alpha of all slots but the background."""
        return self.share.sum(0) - self.share[self.background]


@torch.no_grad()
def cut_layers(
    own: UInt8[Tensor, "side side 3"],
    fitted: UInt8[Tensor, "size size 3"],
    decoded: DecodedFrames,
    background: int,
) -> FrameLayers:
    """Take one frame apart; `own` is as the user brought it, `fitted` as the model saw it."""
    frame, small = (part.permute(2, 0, 1).float() / 255 for part in (own, fitted))
    logits, alpha = decoded.logits[0].float(), decoded.alpha[0].float()
    assert decoded.fields.rgb is not None
    colors = decoded.fields.rgb[0].float()
    side = len(own)
    share = enlarge(logits, side).softmax(0)
    clean = _clean_background(small, colors[background], alpha[background], side)
    body = _ramp(share, *CORE) * _tell_bodies(frame, clean)
    body[background] = 0
    center, radius = measure_bodies(body)
    return FrameLayers(
        frame=frame,
        clean=clean,
        share=share,
        alpha=body,
        model_colors=colors,
        model_alpha=alpha,
        background=background,
        center=center,
        radius=radius,
        position=to_edges(decoded.slots.position[0], len(fitted)),
        scale=to_edges(decoded.slots.scale[0], len(fitted)),
    )


def _reserve(objects: Float[Tensor, "side side"]) -> Float[Tensor, "side side"]:
    """What the alpha of an object is divided by, to be its part of what the picture shows."""
    return (objects + RESERVE * (1 - objects)).clamp_min(1e-6)


def enlarge(planes: Float[Tensor, "plane rows columns"], side: int) -> Tensor:
    """Smoothly, or made smaller without aliases."""
    return F.interpolate(
        planes[None],
        size=(side, side),
        mode="bicubic",
        align_corners=False,
        antialias=side < planes.shape[-1],
    )[0]


def to_edges(values: Float[Tensor, "..."], size: int) -> Float64[Tensor, "..."]:
    """From the model's grid, which ends at pixels' centres, to one that ends at their edges."""
    return values.double() * (size - 1) / size


def measure_bodies(
    alpha: Planes,
) -> tuple[Float64[Tensor, "slot 2"], Float64[Tensor, " slot"]]:
    """Centroid and RMS radius of what layers cover, from edge to edge; radius 0 for nothing."""
    side = alpha.shape[-1]
    weight = torch.where(alpha > BODY, alpha, 0).double()
    places = (2 * torch.arange(side, dtype=torch.float64, device=alpha.device) + 1) / side - 1
    mass = weight.sum((-2, -1))
    columns, rows = weight.sum(-2), weight.sum(-1)
    safe = mass.clamp_min(1e-12)
    x, y = (columns @ places) / safe, (rows @ places) / safe
    spread = (columns @ places.square() + rows @ places.square()) / safe - x.square() - y.square()
    radius = torch.where(mass > FEWEST * side * side, spread.clamp_min(0).sqrt(), 0)
    return torch.stack((x, y), -1), radius


def _clean_background(
    small: Float[Tensor, "3 rows columns"],
    painted: Float[Tensor, "3 rows columns"],
    alpha: Float[Tensor, "rows columns"],
    side: int,
) -> Picture:
    """The model's background, its colours corrected by those of the picture where it is seen."""
    seen = _ramp(alpha, CERTAIN, 1)[None]
    error = _blur(seen * (small - painted)) / (_blur(seen) + 1e-3)
    return enlarge(painted + error, side).clamp(0, 1)


def _tell_bodies(frame: Picture, clean: Picture) -> Float[Tensor, "height width"]:
    """What differs from the background's colour, other than a shadow on it: 1, the rest 0."""
    different = _ramp((frame - clean).abs().amax(0), *DIFFERENCE)
    light = frame / clean.clamp_min(1e-2)
    hued = _ramp(light.amax(0) - light.amin(0), *SPREAD)
    mean = light.mean(0)
    lit = (mean >= 1) | (mean <= DARKEST)
    return different * torch.where(lit, 1, hued)


def _ramp(values: Tensor, low: float, high: float) -> Tensor:
    """0 up to `low`, 1 from `high` on, straight in between."""
    return ((values - low) / (high - low)).clamp(0, 1)


def _blur(planes: Float[Tensor, "plane rows columns"]) -> Float[Tensor, "plane rows columns"]:
    """Gaussian, of deviation `REACH`; edges go on as they end."""
    reach = int(3 * REACH) + 1
    offsets = torch.arange(-reach, reach + 1, dtype=planes.dtype, device=planes.device)
    kernel = torch.exp(-offsets.square() / (2 * REACH**2))
    kernel = (kernel / kernel.sum())[None, None]
    padded = F.pad(planes[None], (reach,) * 4, mode="replicate")[0][:, None]
    return F.conv2d(F.conv2d(padded, kernel[..., None]), kernel[..., None, :])[:, 0]
