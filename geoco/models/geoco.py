"""GeoCo-SAVi, top to bottom as the method section reads: encode, bind slots, decode them."""

from jaxtyping import Float
from torch import Tensor

from geoco import config
from geoco.models import encoders
from geoco.models.decoders import DECODERS, Fields
from geoco.models.encoders import DinoEncoder
from geoco.models.feature_head import FeatureHead
from geoco.models.picture_model import PictureModel
from geoco.models.selector import Selector
from geoco.models.slots import Binding, SlotAttention, Slots
from geoco.models.temporal import TemporalInitializer, bring_forward


class GeoCo(PictureModel):
    """Slots with explicit appearance, position and scale."""

    settings: config.ModelConfig
    attention: SlotAttention

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
                slots.dim,
                temporal.width,
                temporal.heads,
                temporal.hidden,
                self.encoder.dim if temporal.ahead else None,
            )

        # Last, so that without it everything begins as it did before there was one.
        self.feature_head: FeatureHead | None = None
        if settings.feature_head.enabled and isinstance(self.encoder, DinoEncoder):
            self.feature_head = FeatureHead(
                settings.feature_head,
                slots.dim,
                self.encoder.settings.backbone.width,
                self.size,
                self.encoder.side(self.size),
            )

    def compile_parts(self) -> None:
        super().compile_parts()
        if self.feature_head is not None:
            self.feature_head.compile(dynamic=False)

    def bind(
        self,
        video: Float[Tensor, "batch time 3 height width"],
        positions: Float[Tensor, "batch slot 2"],
        temporal: bool = True,
        features: Float[Tensor, "batch time token channel"] | None = None,
        earlier: Float[Tensor, "batch time"] | None = None,
    ) -> Binding:
        """Slots of every frame. A later frame starts where the temporal initializer says.

        Without one, or with `temporal` off, it starts where the frame before it ended. `earlier`,
        uniform in [0, 1), chooses for each frame from which one before it the start is predicted;
        without, from the last.
        """
        tokens = self.encode(video, features)
        time = video.shape[1]
        start = self.attention.start_slots(positions)
        iterations = self.settings.slots.first_iterations
        bindings: list[Binding] = []
        for frame in tokens.unbind(1):
            bindings.append(self.attention(frame, start, iterations))
            start = bindings[-1].slots
            if self.temporal is not None and temporal and len(bindings) < time:
                states = [binding.slots for binding in bindings]
                history = states[-self.settings.temporal.history :]
                if earlier is not None:
                    history = bring_forward(history, earlier[:, len(bindings)])
                start = self.temporal(history, tokens[:, len(bindings)])
            iterations = self.settings.slots.later_iterations
        return Binding.stack(bindings, 1)

    def decode_middle(self, slots: Slots, extent: int, alpha_only: bool = False) -> Fields:
        return self.decoder.decode_middle(slots, extent, alpha_only)
