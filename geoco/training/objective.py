"""What a training minimises: losses by name, and how their gradients are computed.

Each kind of model has an objective of its own; `geoco.training.objectives` says which one. A new
one derives from `Objective`, names its losses, and computes them for a batch.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from geoco.config.training import TrainConfig
from geoco.models.interface import Model
from geoco.models.slots import draw_positions
from geoco.training.curriculum import Mode


@dataclass(frozen=True)
class Draws:
    """All random numbers of a step, drawn for the whole batch whichever process computes it."""

    positions: Float[Tensor, "batch slot 2"]  # where slots start
    order: Float[Tensor, "batch time slot"]  # of recipients
    choice: Float[Tensor, "batch time"]  # of donors
    mirror: Float[Tensor, " batch"]  # below a half, a clip may be mirrored
    command: Float[Tensor, "batch 3"]  # of models that are told what to do: which, and how much
    earlier: Float[Tensor, "batch time"]  # from which frame before a frame's start is predicted

    @staticmethod
    def sample(generator: torch.Generator, batch: int, time: int, slots: int) -> "Draws":
        positions = draw_positions(batch, slots, generator)
        order = torch.rand(batch, time, slots, generator=generator)
        choice = torch.rand(batch, time, generator=generator)
        mirror = torch.rand(batch, generator=generator)
        # What was added later is drawn later, so that all before it stay what they were.
        command = torch.rand(batch, 3, generator=generator)
        earlier = torch.rand(batch, time, generator=generator)
        return Draws(positions, order, choice, mirror, command, earlier)


@dataclass(frozen=True)
class Losses:
    """The losses of a batch, and what is minimised: their weighted sum.

    `by_name` has a value for every name of the objective's `terms` and `separate`, not weighted.
    """

    by_name: Mapping[str, Float[Tensor, ""]]
    total: Float[Tensor, ""]

    def backward(self) -> None:
        """Add the gradients to `.grad` of the model's parameters."""
        torch.autograd.backward(self.total)

    def backward_alone(self, name: str, weight: float) -> None:
        """The same of one loss alone, times a weight."""
        torch.autograd.backward(weight * self.by_name[name])


class Objective(ABC):
    """How a kind of model is trained.

    `terms` are the losses that `Losses.total` is the weighted sum of; those that the curriculum
    knows have its weights, others are weighted here. `separate` are losses of a part that trains
    by itself. The names are columns of metrics.csv, in this order.
    """

    terms: tuple[str, ...]
    separate: tuple[str, ...] = ()

    def __init__(self, model: Model, settings: TrainConfig, compiled: bool = False) -> None:
        self.model, self.settings, self.compiled = model, settings, compiled

    @abstractmethod
    def compute(
        self,
        video: Float[Tensor, "batch time 3 height width"],
        source: Int64[Tensor, " batch"],
        draws: Draws,
        weights: Float[Tensor, " term"],
        mode: Mode,
        features: Float[Tensor, "batch time token channel"] | None = None,
    ) -> Losses:
        """The losses of a batch, as sums over its samples divided by counts over all processes.

        `features` are the frames' by a frozen encoder, where they are kept (`train.features`).
        `source` numbers the videos that clips are from, `weights` are those of the curriculum's
        TERMS. A batch may be recorded and replayed on a GPU: nothing may wait for the device.
        """
