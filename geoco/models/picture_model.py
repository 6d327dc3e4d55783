"""What our models share: an encoder that reads pictures, and a decoder that draws slots.

What lies between them, and how slots go from one frame to the next, is the model's own.
"""

from typing import Any

import torch
import torch._functorch.config
from jaxtyping import Float, Float64
from torch import Tensor, nn

from geoco import geometry
from geoco.errors import GeocoError
from geoco.models import encoders, receptive_field
from geoco.models.decoders import Decoder, Fields
from geoco.models.encoders import ConvEncoder, DinoEncoder
from geoco.models.interface import Model
from geoco.models.slots import Slots


class PictureModel(Model):
    """A model with `encoder`, `attention` and `decoder`, whose settings describe the three."""

    settings: Any
    encoder: ConvEncoder | DinoEncoder
    attention: nn.Module
    decoder: Decoder

    @property
    def size(self) -> int:
        return self.decoder.size

    @property
    def slot_count(self) -> int:
        count: int = self.settings.slots.count
        return count

    def encode(
        self,
        video: Float[Tensor, "batch time 3 height width"],
        features: Float[Tensor, "batch time token channel"] | None = None,
    ) -> Float[Tensor, "batch time token dim"]:
        """The tokens of every frame, from its features where they are known."""
        if video.shape[-2:] != (self.size, self.size):
            raise GeocoError(
                f"the model works on {self.size} x {self.size} pixels, got "
                f"{video.shape[-2]} x {video.shape[-1]}"
            )
        frames = video.flatten(0, 1)
        known = () if features is None else (features.flatten(0, 1),)
        tokens: Tensor = self.encoder(frames, *known)
        return tokens.unflatten(0, video.shape[:2])

    def compute_features(
        self, image: Float[Tensor, "batch 3 height width"]
    ) -> Float[Tensor, "batch token channel"]:
        if isinstance(self.encoder, DinoEncoder):
            return self.encoder.compute_features(image)
        return super().compute_features(image)

    def decode_slots(self, slots: Slots, extent: int = 1, alpha_only: bool = False) -> Fields:
        fields: Fields = self.decoder(slots, extent, alpha_only)
        return fields

    @staticmethod
    def compute_cold_scale(settings: Any) -> float:
        size = settings.decoder.layers[-1][0]
        return geometry.compute_uniform_scale(encoders.compute_token_side(settings.encoder, size))

    def decoder_parameters(self) -> list[nn.Parameter]:
        return list(self.decoder.parameters())

    def picture_parameters(self) -> list[nn.Parameter]:
        return [*self.encoder.parameters(), *self.decoder.parameters()]

    @property
    def pretrained_part(self) -> str | None:
        return "encoder.backbone" if isinstance(self.encoder, DinoEncoder) else None

    def read_pretrained(self) -> None:
        if isinstance(self.encoder, DinoEncoder):
            self.encoder.read_backbone()

    def set_reference_scale(self, value: float) -> None:
        self.decoder.set_reference_scale(value)

    def compile_parts(self) -> None:
        # Otherwise a compiled part frees what it saved on the first of the two backward passes.
        torch._functorch.config.donated_buffer = False
        self.encoder.compile(dynamic=False)
        self.attention.compile(dynamic=False)
        self.decoder.compile_parts()

    def alpha_validity(self, scale: Float[Tensor, " slot"]) -> Float64[Tensor, "slot {self.size}"]:
        return receptive_field.trace_alpha(self.decoder, scale)
