"""Slots through a video, by whatever a model was trained for.

A model that was trained on videos binds each frame from the slots of the one before. One of single
frames has never started from slots that are bound already, and loses its objects if it must. There
every frame is bound anew, from the learned appearances at the places where slots were in the
frame before. Now and then two slots change places by that; each is then called what it was called
before, by the assignment of slots that moves them least in place and in appearance.
"""

from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]
from torch import Tensor

from geoco.config import Config
from geoco.models.slots import Binding, Slots

_DISTANCE = 0.2  # on the grid, as different as two unlike appearances: an object's usual scale


@runtime_checkable
class Binds(Protocol):
    """What tracking needs of a model."""

    def bind(self, video: Tensor, positions: Tensor) -> Binding: ...


def knows_videos(config: Config) -> bool:
    """Whether a model was trained to carry slots from frame to frame, by its configuration.

    On windows of several frames, with a temporal initializer, or with a predictor.
    """
    # Other kinds of models need not have either.
    temporal = getattr(config.model, "temporal", None)
    predicts = getattr(config.model, "predictor", None) is not None
    carries = predicts or (temporal is not None and temporal.enabled)
    return carries or config.data.window.length > 1


@torch.no_grad()
def bind_videos(
    model: Binds,
    videos: Float[Tensor, "batch time 3 height width"],
    positions: Float[Tensor, "batch slot 2"],
    carried: bool,
) -> Binding:
    """Slots of every frame of every video, those of the first frames from the given positions.

    `carried` says whether the model knows videos; single frames are bound alike either way. The
    editor and the evaluation both bind by this.
    """
    if carried or videos.shape[1] == 1:
        return model.bind(videos, positions)
    return Binding.stack(
        [track_slots(model, *pair) for pair in zip(videos, positions, strict=True)]
    )


@torch.no_grad()
def track_slots(
    model: Binds,
    video: Float[Tensor, "time 3 height width"],
    positions: Float[Tensor, "slot 2"],
) -> Binding:
    """Slots of every frame, those of the first from the given positions; time comes first."""
    bindings: list[Binding] = []
    for frame in video:
        start = bindings[-1].slots.position[0] if bindings else positions
        binding = model.bind(frame[None, None], start[None])[:, 0]
        if bindings:
            binding = binding[:, match_slots(bindings[-1].slots, binding.slots)]
        bindings.append(binding)
    return Binding.cat(bindings)


def match_slots(before: Slots, after: Slots) -> Int64[Tensor, " slot"]:
    """Which slot of a frame continues each slot of the frame before."""
    away = torch.cdist(before.position[0], after.position[0]) / _DISTANCE
    old, new = (F.normalize(slots.appearance[0], dim=-1) for slots in (before, after))
    unlike = torch.cdist(old, new)
    _, order = linear_sum_assignment((away + unlike).double().cpu().numpy())
    return torch.from_numpy(order).to(before.scale.device)
