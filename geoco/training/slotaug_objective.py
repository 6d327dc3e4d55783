"""The published training objective of SlotAug, with its published ranges of commands.

A clip is drawn twice: as it is, and as one command leaves it. The second picture is a target alone,
never encoded. A slot that is told the opposite must become what it was.
"""

from dataclasses import replace

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from geoco.models.interface import Reconstruction
from geoco.models.slotaug import Command, SlotAug
from geoco.training import losses
from geoco.training.augmentations import augment
from geoco.training.curriculum import TERMS, Mode
from geoco.training.distributed import sum_over_ranks
from geoco.training.objective import Draws, Losses, Objective

INVERSE_WEIGHT = 0.01
MOST_TRANSLATION = 1 / 8  # of the canvas
SCALES = (0.8, 1.25)
MOST_HUE = 1.0  # in turns
MOST_SATURATION = 1.0  # of the logarithm of its factor


class SlotAugObjective(Objective):
    """Reconstruction as it is and under a command, and the way back."""

    terms = ("rec", "augmented", "inverse")
    model: SlotAug

    def compute(
        self,
        video: Float[Tensor, "batch time 3 height width"],
        source: Int64[Tensor, " batch"],
        draws: Draws,
        weights: Float[Tensor, " term"],
        mode: Mode,
        features: Float[Tensor, "batch time token channel"] | None = None,
    ) -> Losses:
        model, shape = self.model, video.shape[:2]
        binding = model.bind(video, draws.positions, mode.temporal, features)
        slots = binding.slots
        command = choose_command(draws.command)
        of_frames = command[:, None].expand(*shape).flatten()
        target = augment(video.flatten(0, 1), of_frames).unflatten(0, shape)
        told = command[:, None, None].expand(*slots.scale.shape).for_slots(slots.position)
        edited = model.obey(slots, told)
        restored = model.obey(edited, told.inverse).appearance
        image = model.decode(binding).image
        after = Reconstruction(replace(binding, slots=edited), model.decode_slots(edited))
        gap = (restored - slots.appearance.detach()).square()
        values = {
            "rec": losses.rec(image, video, sum_over_ranks),
            "augmented": losses.rec(after.image, target, sum_over_ranks),
            "inverse": losses.weighted_mean(gap, torch.ones_like(gap), sum_over_ranks),
        }
        rec = weights[TERMS.index("rec")]
        total = rec * values["rec"] + values["augmented"] + INVERSE_WEIGHT * values["inverse"]
        return Losses(values, total)


def choose_command(numbers: Float[Tensor, "batch 3"]) -> Command:
    """One kind of command for each sample, from uniform random numbers.

    The first chooses among translation, scale, and hue with saturation; the others say how much.
    """
    kind, first, second = numbers.unbind(-1)
    move, tint = kind < 1 / 3, kind >= 2 / 3
    size = ~(move | tint)
    amount, other = 2 * first - 1, 2 * second - 1
    none = Command.identity(kind)
    low, high = SCALES
    translation = MOST_TRANSLATION * torch.stack((amount, other), -1)
    hue, saturation = MOST_HUE * amount, (MOST_SATURATION * other).exp()
    color = torch.stack((hue, saturation, torch.ones_like(hue)), -1)
    return Command(
        torch.where(move[:, None], translation, none.translation),
        torch.where(size, low + (high - low) * first, none.scale),
        torch.where(tint[:, None], color, none.color),
    )
