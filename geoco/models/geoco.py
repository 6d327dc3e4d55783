"""GeoCo-SAVi, top to bottom as the method section reads: encode, bind slots, decode them."""

import torch
import torch._functorch.config
from jaxtyping import Float, Float64
from torch import Tensor, nn

from geoco import config, geometry
from geoco.errors import GeocoError
from geoco.models import encoders, receptive_field
from geoco.models.decoders import DECODERS, Fields
from geoco.models.encoders import DinoEncoder
from geoco.models.interface import Model
from geoco.models.selector import Selector
from geoco.models.slots import Binding, SlotAttention, Slots
from geoco.models.temporal import TemporalInitializer


class GeoCo(Model):
    """Slots with explicit appearance, position and scale."""

    settings: config.ModelConfig

    def __init__(self, settings: config.ModelConfig) -> None:
        super().__init__(settings)
        slots, selector, temporal = settings.slots, settings.selector, settings.temporal
        self.encoder = encoders.build_encoder(settings.encoder, settings.decoder.layers[-1][0])
        self.attention = SlotAttention(
            count=slots.count,
            dim=slots.dim,
            token_dim=self.encoder.dim,
            update_dim=slots.update_dim,
            grid_dim=slots.grid_dim,
            initial_scale=slots.initial_scale,
            readout=slots.readout,
            gate_bound=slots.gate_bound,
        )
        self.decoder = DECODERS[settings.decoder.design](settings.decoder, slots.dim)
        if selector.enabled:
            self.selector = Selector(selector, slots.dim)
        if temporal.enabled:
            self.temporal = TemporalInitializer(
                slots.dim, temporal.width, temporal.heads, temporal.hidden
            )

    @property
    def size(self) -> int:
        return self.decoder.size

    @property
    def slot_count(self) -> int:
        return self.settings.slots.count

    def bind(
        self,
        video: Float[Tensor, "batch time 3 height width"],
        positions: Float[Tensor, "batch slot 2"],
        temporal: bool = True,
    ) -> Binding:
        """Slots of every frame. A later frame starts where the temporal initializer says.

        Without one, or with `temporal` off, it starts where the frame before it ended.
        """
        if video.shape[-2:] != (self.size, self.size):
            raise GeocoError(
                f"the model works on {self.size} x {self.size} pixels, got "
                f"{video.shape[-2]} x {video.shape[-1]}"
            )
        batch, time = video.shape[:2]
        tokens = self.encoder(video.flatten(0, 1)).unflatten(0, (batch, time))
        start = self.attention.start_slots(positions)
        iterations = self.settings.slots.first_iterations
        bindings: list[Binding] = []
        for frame in tokens.unbind(1):
            bindings.append(self.attention(frame, start, iterations))
            start = bindings[-1].slots
            if self.temporal is not None and temporal and len(bindings) < time:
                history = [binding.slots for binding in bindings]
                start = self.temporal(history[-self.settings.temporal.history :])
            iterations = self.settings.slots.later_iterations
        return Binding.stack(bindings, 1)

    def decode_slots(self, slots: Slots, extent: int = 1, alpha_only: bool = False) -> Fields:
        fields: Fields = self.decoder(slots, extent, alpha_only)
        return fields

    @staticmethod
    def compute_cold_scale(settings: config.ModelConfig) -> float:
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
