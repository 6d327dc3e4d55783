"""GeoCo-SAVi, top to bottom as the method section reads: encode, bind slots, decode them."""

from jaxtyping import Float
from torch import Tensor

from geoco import config
from geoco.models import encoders
from geoco.models.decoders import DECODERS
from geoco.models.picture_model import PictureModel
from geoco.models.selector import Selector
from geoco.models.slots import Binding, SlotAttention
from geoco.models.temporal import TemporalInitializer


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
                slots.dim, temporal.width, temporal.heads, temporal.hidden
            )

    def bind(
        self,
        video: Float[Tensor, "batch time 3 height width"],
        positions: Float[Tensor, "batch slot 2"],
        temporal: bool = True,
        features: Float[Tensor, "batch time token channel"] | None = None,
    ) -> Binding:
        """Slots of every frame. A later frame starts where the temporal initializer says.

        Without one, or with `temporal` off, it starts where the frame before it ended.
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
                history = [binding.slots for binding in bindings]
                start = self.temporal(history[-self.settings.temporal.history :])
            iterations = self.settings.slots.later_iterations
        return Binding.stack(bindings, 1)
