"""GeoCo-SAVi, top to bottom as the method section reads: encode, bind slots, draw, compose."""

from dataclasses import dataclass

import torch
import torch._functorch.config
from jaxtyping import Float
from torch import Tensor, nn

from geoco import config, geometry
from geoco.errors import GeocoError
from geoco.models import compositing
from geoco.models.decoders import Decoder, Fields
from geoco.models.encoders import ConvEncoder, DinoEncoder
from geoco.models.selector import Selector
from geoco.models.slots import Binding, SlotAttention, Slots
from geoco.models.temporal import TemporalInitializer


@dataclass(frozen=True)
class Scene:
    """Slots of a clip and what they draw; leading dimensions are batch and time."""

    binding: Binding
    fields: Fields

    @property
    def alpha(self) -> Float[Tensor, "batch time slot height width"]:
        return compositing.ownership(self.fields.logits)

    @property
    def image(self) -> Float[Tensor, "batch time 3 height width"]:
        assert self.fields.rgb is not None
        return compositing.composite(self.fields.rgb, self.alpha)


class GeoCo(nn.Module):
    """Slots with explicit appearance, position and scale."""

    def __init__(self, settings: config.ModelConfig) -> None:
        super().__init__()
        self.settings = settings
        slots, decoder = settings.slots, settings.decoder
        self.encoder = _encoder(settings.encoder)
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
        self.decoder = Decoder(
            kind=decoder.design,
            dim=slots.dim,
            broadcast=decoder.broadcast,
            layers=decoder.layers,
            micro=decoder.micro,
            micro_bound=decoder.micro_bound,
            reference_scale=decoder.reference_scale,
            most_gain=decoder.most_gain,
        )
        selector, temporal = settings.selector, settings.temporal
        self.selector = Selector(selector, slots.dim) if selector.enabled else None
        self.temporal = (
            TemporalInitializer(slots.dim, temporal.width, temporal.heads, temporal.hidden)
            if temporal.enabled
            else None
        )

    def compile_parts(self) -> None:
        """Compile what has many small operations, in parts that can be walked back alone."""
        # Otherwise a compiled part frees what it saved on the first of the two ways back.
        torch._functorch.config.donated_buffer = False
        if isinstance(self.encoder, ConvEncoder):
            self.encoder.compile(dynamic=False)
        self.attention.compile(dynamic=False)
        self.decoder.compile_parts()

    @property
    def size(self) -> int:
        """The side of the images that the model reads and draws."""
        return self.decoder.sizes[-1]

    @property
    def cold_scale(self) -> float:
        """The scale of a slot that attends everywhere alike: where the reference scale starts."""
        return geometry.compute_uniform_scale(self.encoder.side(self.size))

    def forward(
        self, video: Float[Tensor, "batch time 3 height width"], generator: torch.Generator
    ) -> Scene:
        """Bind slots to every frame and draw them; positions start where the generator says."""
        return self.draw(self.bind(video, self.attention.draw_positions(len(video), generator)))

    def draw(self, binding: Binding) -> Scene:
        """Draw bound slots; the selector gives pixels that they should not own to the background.

        Under an edit the selector runs again on the edited slots, the attention unmoved.
        """
        fields = self.decoder(binding.slots)
        if self.selector is not None:
            fields = fields.with_logits(self.selector.refine(fields, binding.attention))
        return Scene(binding, fields)

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
        start = self.attention.first(positions)
        iterations = self.settings.slots.first_iterations
        bindings: list[Binding] = []
        for frame in tokens.unbind(1):
            bindings.append(self.attention(frame, start, iterations))
            start = bindings[-1].slots
            if self.temporal is not None and temporal and len(bindings) < time:
                history = [binding.slots for binding in bindings]
                start = self.temporal(history[-self.settings.temporal.history :])
            iterations = self.settings.slots.later_iterations
        return Binding(
            Slots(
                torch.stack([binding.slots.appearance for binding in bindings], 1),
                torch.stack([binding.slots.position for binding in bindings], 1),
                torch.stack([binding.slots.scale for binding in bindings], 1),
            ),
            torch.stack([binding.attention for binding in bindings], 1),
            torch.stack([binding.gate for binding in bindings], 1),
        )


def parameter_table(model: GeoCo) -> list[tuple[str, int, int]]:
    """Parts of a model with their trainable and frozen parameters, the total last."""
    rows = []
    for name, part in (*model.named_children(), ("total", model)):
        trainable = sum(p.numel() for p in part.parameters() if p.requires_grad)
        frozen = sum(p.numel() for p in part.parameters() if not p.requires_grad)
        rows.append((name, trainable, frozen))
    return rows


def _encoder(
    settings: config.ConvEncoderConfig | config.DinoEncoderConfig,
) -> ConvEncoder | DinoEncoder:
    if isinstance(settings, config.ConvEncoderConfig):
        return ConvEncoder(settings.width)
    return DinoEncoder(settings.weights, settings.dim)
