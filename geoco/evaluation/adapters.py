"""Our own models as models that can be evaluated: `adapter(model)`."""

import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from geoco.config import Config
from geoco.config.training import SlotQualityConfig
from geoco.evaluation.extended_canvas import EXTENT
from geoco.evaluation.interfaces import Decoded, Encoded, SlotModel, TrackedSlots
from geoco.models import tracking
from geoco.models.decoders import Fields
from geoco.models.interface import Model
from geoco.models.slotaug import Command, SlotAug
from geoco.models.slots import Slots
from geoco.models.staitus import Staitus


class DrawnModel:
    """Any `Model`: its slots, and pictures of them. An edit may run its selector again.

    Through a video, slots are carried from frame to frame if the model knows videos, and followed
    by their places if it does not: as in the editor.
    """

    def __init__(self, model: Model, knows_videos: bool | None = None) -> None:
        self.model = model
        weight = next(model.parameters())
        self._place = (weight.device, weight.dtype)
        self.carries: bool = model.carries_slots if knows_videos is None else knows_videos

    @property
    def slots(self) -> int:
        return self.model.slot_count

    @property
    def size(self) -> int:
        return self.model.size

    @cached_property
    def fingerprint(self) -> str:
        """Of weights and buffers, and of how the selector is used."""
        selector = self.model.selector
        settings = "" if selector is None else selector.settings.model_dump_json()
        checksum = zlib.crc32(settings.encode())
        for name, value in sorted(self.model.state_dict().items()):
            checksum = zlib.crc32(name.encode(), checksum)
            checksum = zlib.crc32(value.cpu().contiguous().numpy().tobytes(), checksum)
        return f"{checksum:08x}"

    @torch.no_grad()
    def encode(
        self,
        frames: Float[Tensor, "batch 3 height width"],
        starts: Float[Tensor, "batch slot 2"],
    ) -> Encoded:
        bound = self.model.bind(frames.to(*self._place)[:, None], starts.to(*self._place))[:, 0]
        return Encoded(bound.slots, bound.attention, self.find_active(bound.slots))

    def decode(self, encoded: Encoded, slots: Slots) -> Decoded:
        return self.compose(encoded, self.fields(slots))

    @torch.no_grad()
    def fields(self, slots: Slots) -> Fields:
        fields = self.model.decode_slots(slots.to(*self._place))
        if self.model.selector is not None:
            return fields
        # Nobody looks at the selector's evidence, which is most of what every edit would copy.
        return Fields(fields.logits, fields.rgb)

    @torch.no_grad()
    def compose(self, encoded: Encoded, fields: Fields) -> Decoded:
        assert encoded.attention is not None
        refined = self.model.refine(fields, encoded.attention.to(*self._place))
        assert refined.rgb is not None
        return refined.rgb, refined.logits

    @torch.no_grad()
    def track(
        self,
        video: Float[Tensor, "batch time 3 height width"],
        starts: Float[Tensor, "batch slot 2"],
    ) -> TrackedSlots:
        videos, positions = video.to(*self._place), starts.to(*self._place)
        bound = tracking.bind_videos(self.model, videos, positions, self.carries)
        return TrackedSlots(bound.slots, bound.attention, self.find_active(bound.slots))

    def find_active(self, slots: Slots) -> Bool[Tensor, "*slots"] | None:
        """Which slots are open, of a model that closes some."""
        return None


class SlotAugModel(DrawnModel):
    """SlotAug: it is told to move and to resize, and what it was told to be is drawn."""

    model: SlotAug

    @torch.no_grad()
    def command(
        self,
        encoded: Encoded,
        index: int,
        move: Float[Tensor, "batch 2"],
        factor: Float[Tensor, " batch"],
    ) -> Decoded:
        """Position and scale of the slot stay; a size is about its position and moves nothing."""
        slots = encoded.slots.to(*self._place)
        one = slots[:, index : index + 1]
        told = replace(
            Command.identity(one.scale),
            translation=move.to(*self._place)[:, None] / 2,
            scale=factor.to(*self._place)[:, None],
        )
        return self.decode(encoded, slots.with_slot(index, self.model.obey(one, told)))


class GeoCoModel(DrawnModel):
    """GeoCo-SAVi, or another `Model` whose slots have positions and scales that they are drawn at.

    Under an edit the selector runs again, attention unmoved. `quality` are the limits that it was
    trained with, by which the covariance table chooses objects.
    """

    def __init__(self, model: Model, knows_videos: bool | None = None) -> None:
        super().__init__(model, knows_videos)
        self.quality = SlotQualityConfig()

    # -- the larger canvas: the selector looks at its middle, at features without the edge's part --

    def native_logits(self, slots: Slots) -> Float[Tensor, "slot height width"]:
        return self.model.decode_slots(slots.to(*self._place), alpha_only=True).logits

    def extended_fields(self, slots: Slots) -> Fields:
        alpha_only = self.model.selector is None
        fields = self.model.decode_middle(slots.to(*self._place), EXTENT, alpha_only)
        return replace(fields, rgb=None)

    def final_logits(
        self, fields: Fields, attention: Float[Tensor, "batch slot token"]
    ) -> Float[Tensor, "batch slot height width"]:
        return self.model.refine(fields, attention.to(*self._place)).logits

    def validity(self, scale: Float[Tensor, " slot"]) -> Float64[Tensor, "slot size"]:
        return self.model.alpha_validity(scale.to(*self._place))


class StaitusModel(GeoCoModel):
    """STAITUS: slots that its gate has closed are no objects, and count in no attention."""

    model: Staitus

    @torch.no_grad()
    def find_active(self, slots: Slots) -> Bool[Tensor, "*slots"]:
        return self.model.find_active(slots.appearance)


# By the kind of the model: what is given it, and whether it was trained to carry slots through
# videos (None: not known). A kind without an entry gets GeoCo-SAVi's. STATM-SAVi has no positions
# and no scales: moving, resizing and the larger canvas mean nothing to it, and are not offered.
ADAPTERS: dict[str, Callable[[Any, bool | None], SlotModel]] = {
    "geoco": GeoCoModel,
    "slotaug": SlotAugModel,
    "statm": DrawnModel,
    "staitus": StaitusModel,
}


def adapter(model: Any, config: Config | None = None) -> SlotModel:
    """A model of ours as one to evaluate; its configuration says how it was trained."""
    adapt = ADAPTERS.get(model.settings.kind, GeoCoModel)
    if config is None:
        return adapt(model, None)
    adapted = adapt(model, tracking.knows_videos(config))
    if isinstance(adapted, GeoCoModel):
        adapted.quality = config.train.quality
    return adapted
