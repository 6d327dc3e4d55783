"""The training objective of STAITUS: reconstruction, separation, alignment, few open slots.

Closed slots count in none of the terms but the last. How the published terms are written is not
public; docs/baselines.md says what is our choice.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from geoco.geometry import EPSILON
from geoco.models.staitus import Staitus
from geoco.training import losses
from geoco.training.curriculum import TERMS, Mode
from geoco.training.distributed import Sum, sum_locally, sum_over_ranks
from geoco.training.objective import Draws, Losses, Objective


class StaitusObjective(Objective):
    """`gate` rises as slots may close; `align` has its weight in the model's settings."""

    terms = ("rec", "ov", "align", "gate")

    def compute(
        self,
        video: Float[Tensor, "batch time 3 height width"],
        source: Int64[Tensor, " batch"],
        draws: Draws,
        weights: Float[Tensor, " term"],
        mode: Mode,
        features: Float[Tensor, "batch time token channel"] | None = None,
    ) -> Losses:
        model = self.model
        assert isinstance(model, Staitus)
        binding = model.bind(video, draws.positions, features=features)
        appearance = binding.slots.appearance
        gates = model.compute_gates(appearance).detach()
        values = {
            "rec": losses.rec(model.decode(binding).image, video, sum_over_ranks),
            "ov": overlap_of_active(binding.attention, gates, sum_over_ranks),
            "align": align(binding.predicted, appearance[:, 1:], gates[:, 1:], sum_over_ranks),
            "gate": count_open(model.activity(appearance), sum_over_ranks),
        }
        total = model.settings.alignment * values["align"]
        for term, weight in zip(TERMS, weights.unbind(), strict=True):
            if term in values:
                total = total + weight * values[term]
        return Losses(values, total)


def overlap_of_active(
    attention: Float[Tensor, "batch time slot token"],
    gates: Float[Tensor, "batch time slot"],
    sum_counts: Sum = sum_locally,
) -> Float[Tensor, ""]:
    """How much two open slots attend to the same tokens, the mean over pairs and then frames.

    With all slots open it is GeoCo-SAVi's `ov`.
    """
    weighted = gates[..., None] * attention
    together = weighted.sum(-2).square().sum(-1) - weighted.square().sum((-2, -1))
    pairs = gates.sum(-1).square() - gates.square().sum(-1)
    overlap = together / pairs.clamp_min(EPSILON)
    return losses.weighted_mean(overlap, torch.ones_like(overlap), sum_counts)


def align(
    predicted: Float[Tensor, "batch later slot dim"],
    appearance: Float[Tensor, "batch later slot dim"],
    gates: Float[Tensor, "batch later slot"],
    sum_counts: Sum = sum_locally,
) -> Float[Tensor, ""]:
    """One less the cosine between what a slot was to look like and does; both sides learn."""
    apart = 1 - F.cosine_similarity(predicted, appearance, dim=-1)
    return losses.weighted_mean(apart, gates, sum_counts)


def count_open(
    probability: Float[Tensor, "batch time slot"], sum_counts: Sum = sum_locally
) -> Float[Tensor, ""]:
    """The expected share of open slots: the mean of the probabilities that they are."""
    return losses.weighted_mean(probability, torch.ones_like(probability), sum_counts)
