"""What training, evaluation and editing need of a model, whichever it is.

A new model derives from `Model`, offers what is abstract here, and joins `build.MODELS`; its
section of the configuration joins `geoco.config.MODEL_KINDS`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from geoco import config
from geoco.errors import GeocoError
from geoco.models import compositing, middle
from geoco.models.decoders import Fields
from geoco.models.selector import Selector
from geoco.models.slots import Binding, Slots, draw_positions


@dataclass(frozen=True)
class Reconstruction:
    """The slots of a clip and what the decoder makes of them; batch and time come first."""

    binding: Binding
    fields: Fields

    @property
    def alpha(self) -> Float[Tensor, "batch time slot height width"]:
        return compositing.compute_alpha(self.fields.logits)

    @property
    def image(self) -> Float[Tensor, "batch time 3 height width"]:
        assert self.fields.rgb is not None
        return compositing.composite(self.fields.rgb, self.alpha)


class Model(nn.Module, ABC):
    """Binds slots to the frames of a video, and decodes slots to pictures.

    `settings` is the model's section of the configuration. `selector` and `temporal` stay None in a
    model that has no such part; each trains with a schedule of its own.
    """

    def __init__(self, settings: config.Section) -> None:
        super().__init__()
        self.settings = settings
        self.selector: Selector | None = None
        self.temporal: nn.Module | None = None

    # -- what every model offers -------------------------------------------------------------------

    @property
    @abstractmethod
    def size(self) -> int:
        """The side of the square images that the model reads and decodes."""

    @property
    @abstractmethod
    def slot_count(self) -> int:
        """How many slots a frame gets."""

    @abstractmethod
    def bind(
        self,
        video: Float[Tensor, "batch time 3 height width"],
        positions: Float[Tensor, "batch slot 2"],
        temporal: bool = True,
        features: Float[Tensor, "batch time token channel"] | None = None,
    ) -> Binding:
        """Slots of every frame, those of the first from the given positions.

        `temporal` off leaves out the temporal part, where there is one. `features` are those of
        the frames by `compute_features`, where they were computed before.
        """

    @abstractmethod
    def decode_slots(self, slots: Slots, extent: int = 1, alpha_only: bool = False) -> Fields:
        """Slots with any leading dimensions, each decoded by itself.

        `extent` decodes on a canvas so many times as wide; `alpha_only` leaves out all but the
        alpha logits.
        """

    # -- what most models need not change ----------------------------------------------------------

    def decode_middle(self, slots: Slots, extent: int, alpha_only: bool = False) -> Fields:
        """The middle, as large as the usual canvas, of what `decode_slots` draws on a larger one.

        `extent` is odd. Whoever draws no more than that must change it with `decode_slots`.
        """
        fields = self.decode_slots(slots, extent, alpha_only)
        return fields.map(lambda part: middle.cut_window(part, self.size, 0))

    def decode_edited(self, slots: Slots, bound: Slots) -> Fields:
        """Slots under an edit, each decoded by itself; `bound` is what they were before it.

        Appearance, position and scale are simply set, unless a model has another way of moving and
        resizing.
        """
        return self.decode_slots(slots)

    @property
    def carries_slots(self) -> bool:
        """Whether it was made to carry slots from frame to frame, whatever it was trained on."""
        return self.temporal is not None

    def refine(self, fields: Fields, attention: Float[Tensor, "*scene slot token"]) -> Fields:
        """The fields of whole scenes after the selector, if there is one.

        It gives pixels that slots should not own to the background. Under an edit it runs again on
        the edited slots, with the attention as it was bound.
        """
        if self.selector is None:
            return fields
        return fields.with_logits(self.selector.refine(fields, attention))

    def condense(self, fields: Fields) -> Fields:
        """Fields without what `refine` does not need of them: less to keep, and to look through."""
        if self.selector is None:
            return Fields(fields.logits, fields.rgb)
        return self.selector.condense(fields)

    def decode(self, binding: Binding) -> Reconstruction:
        """What bound slots look like together."""
        fields = self.refine(self.decode_slots(binding.slots), binding.attention)
        return Reconstruction(binding, fields)

    def forward(
        self, video: Float[Tensor, "batch time 3 height width"], generator: torch.Generator
    ) -> Reconstruction:
        """Bind slots to every frame and decode them; the generator says where slots start."""
        return self.decode(self.bind(video, self.draw_positions(len(video), generator)))

    def draw_positions(
        self, batch: int, generator: torch.Generator
    ) -> Float[Tensor, "batch slot 2"]:
        """Random starting positions, on the model's device."""
        positions = draw_positions(batch, self.slot_count, generator)
        return positions.to(next(self.parameters()).device)

    @property
    def cold_scale(self) -> float:
        """The scale of a slot that attends everywhere alike: where the reference scale starts."""
        return self.compute_cold_scale(self.settings)

    @staticmethod
    def compute_cold_scale(settings: Any) -> float:
        """The cold scale by the settings alone; without steered layers it makes no difference."""
        return 1.0

    def decoder_parameters(self) -> list[nn.Parameter]:
        """Those of the decoder, which some losses reach without reaching positions and scales."""
        return []

    def picture_parameters(self) -> list[nn.Parameter]:
        """Those that read pictures and draw them; what binds slots lies between."""
        return self.decoder_parameters()

    def compute_features(
        self, image: Float[Tensor, "batch 3 height width"]
    ) -> Float[Tensor, "batch token channel"]:
        """What a frozen part makes of pictures, which never changes; mostly there is none."""
        raise GeocoError(
            "train.features: this model has no frozen encoder whose features could be kept: leave "
            "it at 'step'"
        )

    @property
    def pretrained_part(self) -> str | None:
        """The part that was trained elsewhere and stays as it is, by name; mostly there is none.

        A checkpoint has its tensors; weights made for others may lack them.
        """
        return None

    def read_pretrained(self) -> None:
        """Read that part from where the settings say; until then it is nan."""

    def set_reference_scale(self, value: float) -> None:
        """Move the scale at which steered layers are ordinary convolutions, where there are any."""

    def set_gate_share(self, value: float) -> None:
        """Move how far slots that a gate closes are closed, from 0 to 1, where there is a gate."""

    def compile_parts(self) -> None:
        """Compile what has many small operations, each part with a backward pass of its own."""

    def alpha_validity(self, scale: Float[Tensor, " slot"]) -> Float64[Tensor, "slot {self.size}"]:
        """How far alpha logits are free of the canvas' edge, along either axis; here unknown."""
        return torch.zeros(len(scale), self.size, dtype=torch.float64, device=scale.device)


def parameter_table(model: nn.Module) -> list[tuple[str, int, int]]:
    """Parts of a model with their trainable and frozen parameters, the total last."""
    rows = []
    for name, part in (*model.named_children(), ("total", model)):
        trainable = sum(p.numel() for p in part.parameters() if p.requires_grad)
        frozen = sum(p.numel() for p in part.parameters() if not p.requires_grad)
        rows.append((name, trainable, frozen))
    return rows
