"""The training objective of STATM-SAVi: reconstruction alone, as in the paper's comparison."""

from jaxtyping import Float, Int64
from torch import Tensor

from geoco.training import losses
from geoco.training.curriculum import TERMS, Mode
from geoco.training.distributed import sum_over_ranks
from geoco.training.objective import Draws, Losses, Objective


class StatmObjective(Objective):
    """Its predictor learns from what the next frame makes of its prediction."""

    terms = ("rec",)

    def compute(
        self,
        video: Float[Tensor, "batch time 3 height width"],
        source: Int64[Tensor, " batch"],
        draws: Draws,
        weights: Float[Tensor, " term"],
        mode: Mode,
        features: Float[Tensor, "batch time token channel"] | None = None,
    ) -> Losses:
        scene = self.model.decode(self.model.bind(video, draws.positions, features=features))
        rec = losses.rec(scene.image, video, sum_over_ranks)
        return Losses({"rec": rec}, weights[TERMS.index("rec")] * rec)
