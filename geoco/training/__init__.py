"""Training: losses, objectives, the curriculum, one resumable loop.

`objectives` says how each kind of model is trained: add one for a kind of yours.
"""

from geoco.training.geoco_objective import GeoCoObjective
from geoco.training.objective import Objective

objectives: dict[str, type[Objective]] = {"geoco": GeoCoObjective}

__all__ = ["Objective", "objectives"]
