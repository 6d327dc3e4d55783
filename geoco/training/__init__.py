"""Training: losses, objectives, the curriculum, one resumable loop.

`objectives` says how each kind of model is trained: add one for a kind of yours.
"""

from geoco.training.geoco_objective import GeoCoObjective
from geoco.training.objective import Objective
from geoco.training.slotaug_objective import SlotAugObjective

objectives: dict[str, type[Objective]] = {
    "geoco": GeoCoObjective,
    "slotaug": SlotAugObjective,
}

__all__ = ["Objective", "objectives"]
