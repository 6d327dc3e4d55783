"""Models whose covariance is known beforehand, small ones of our own, and scenes for both."""

import torch
from evaluation_oracles import Numbered, video_major
from torch import Tensor

from geoco import config, geometry
from geoco.evaluation import Encoded, Factual, SlotModel
from geoco.evaluation.interfaces import Decoded
from geoco.evaluation.windows import compute_factual
from geoco.models.decoders import Fields
from geoco.models.geoco import GeoCo
from geoco.models.slots import Slots

TOKENS = 16  # a side of the attention's grid


class Blobs:
    """Logits that are one function of (u - p) / s: covariant but for the sampling.

    Slot 0 is the background, with logit zero; `appearance` is an object's highest logit.
    """

    def __init__(self, slots: Slots, attention: Tensor | None, size: int = 64) -> None:
        self.scenes, self.attention, self.size = slots, attention, size
        self.precisions: list[tuple[str, bool, bool]] = []
        self.largest_tile = 0

    @property
    def slots(self) -> int:
        return self.scenes.scale.shape[1]

    def encode(self, frames: Tensor, starts: Tensor) -> Encoded:
        number = (frames[:, 0, 0, 0] * 255).round().long()
        return Encoded(self.scenes, self.attention).rows(number)

    def decode(self, encoded: Encoded, slots: Slots) -> Decoded:
        logits = self.draw(slots)
        return torch.zeros(*logits.shape[:2], 3, self.size, self.size), logits

    def draw(self, slots: Slots) -> Tensor:
        points = geometry.build_grid(self.size, self.size, dtype=torch.float64)
        place = (points - slots.position.double()[..., None, None, :]) / (
            slots.scale.double()[..., None, None, None]
        )
        height = slots.appearance[..., 0].double()
        logits = self.shape(place, height[..., None, None])
        return torch.where((height == 0)[..., None, None], 0.0, logits)

    def shape(self, place: Tensor, height: Tensor) -> Tensor:
        return height - 2 * place.square().sum(-1)

    def native_logits(self, slots: Slots) -> Tensor:
        return self.draw(slots)

    def extended_fields(self, slots: Slots) -> Fields:
        self.precisions.append(
            (
                torch.get_float32_matmul_precision(),
                torch.backends.cudnn.allow_tf32,
                torch.is_autocast_enabled("cpu"),
            )
        )
        self.largest_tile = max(self.largest_tile, len(slots.scale))
        return Fields(self.draw(slots))

    def final_logits(self, drawn: Fields, attention: Tensor) -> Tensor:
        return drawn.logits

    def validity(self, scale: Tensor) -> Tensor:
        return torch.ones(len(scale), self.size, dtype=torch.float64)


class Slopes(Blobs):
    """Affine in the slot's frame: what bilinear sampling reproduces exactly."""

    def shape(self, place: Tensor, height: Tensor) -> Tensor:
        return height + place[..., 0] - 0.37 * place[..., 1]


class Rigid(Blobs):
    """Ignores positions and scales."""

    def draw(self, slots: Slots) -> Tensor:
        same = Slots(
            slots.appearance,
            torch.full_like(slots.position, 0.1),
            torch.full_like(slots.scale, 0.2),
        )
        return super().draw(same)


def blob_scenes(windows: int, seed: int = 0) -> tuple[Slots, Tensor]:
    """A background and two objects apart from each other, and where they attend."""
    draw = torch.Generator().manual_seed(seed)

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(windows, *shape, generator=draw)

    position = torch.stack((uniform(-0.4, -0.3, 2), uniform(0.3, 0.4, 2)), 1)
    slots = Slots(
        torch.cat((torch.zeros(windows, 1, 1), uniform(3.0, 5.0, 2, 1)), 1),
        torch.cat((torch.zeros(windows, 1, 2), position), 1),
        torch.cat((torch.full((windows, 1), 0.8), uniform(0.11, 0.15, 2)), 1),
    )
    return slots, gaussian_attention(slots.position, slots.scale)


def gaussian_attention(position: Tensor, scale: Tensor) -> Tensor:
    points = geometry.build_grid(TOKENS, TOKENS).flatten(0, 1)
    away = (points - position[..., None, :]).square().sum(-1)
    return torch.softmax(-away / scale[..., None].square(), -1)


def record(model: SlotModel, windows: int, videos: int = 1) -> Factual:
    dataset = Numbered(video_major(videos, windows // videos), model.size)
    return compute_factual(model, dataset, 8)


def only(factual: Factual, slot: int) -> Tensor:
    """That slot of every window as the chosen one."""
    chosen = torch.zeros_like(factual.valid)
    chosen[:, slot] = True
    return chosen


def make_tiny_settings(**changes: object) -> config.ModelConfig:
    parts: dict[str, object] = {
        "encoder": config.ConvEncoderConfig(width=8),
        "slots": config.SlotsConfig(count=3, dim=8, update_dim=8, grid_dim=8),
        "decoder": config.DecoderConfig(broadcast=4, layers=((8, 3), (16, 3))),
        # So loose that the selector of a network without training acts.
        "selector": config.SelectorConfig(
            threshold=0.5, least_area=1, least_peak=0.0, label_limit=0.5
        ),
    }
    return config.ModelConfig(**{**parts, **changes})  # type: ignore[arg-type]


@torch.no_grad()
def make_tiny_scenes(**changes: object) -> tuple[GeoCo, Factual]:
    """Without training, but loud: each window has a qualified object. Slots are where we say."""
    torch.manual_seed(5)
    model = GeoCo(make_tiny_settings(**changes)).double()
    model.decoder.place.weight.mul_(6)
    model.decoder.alpha.weight.mul_(6)
    if model.selector is not None:
        for weight in model.selector.judge.parameters():
            weight.mul_(4)
    slots, attention = blob_scenes(3)
    # In float64, so that edits are what their maps say to the last digit.
    appearance = torch.randn(3, 3, 8, dtype=torch.float64)
    slots = Slots(appearance, slots.position.double(), slots.scale.double())
    return model, record(Blobs(slots, attention.double(), model.size), 3)
