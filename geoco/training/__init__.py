"""Training: losses, objectives, the curriculum, one resumable loop.

`objectives` says how each kind of model is trained: add one for a kind of yours.
"""

from geoco.training.geoco_objective import GeoCoObjective
from geoco.training.objective import Objective
from geoco.training.slotaug_objective import SlotAugObjective
from geoco.training.staitus_objective import StaitusObjective
from geoco.training.statm_objective import StatmObjective

objectives: dict[str, type[Objective]] = {
    "geoco": GeoCoObjective,
    "slotaug": SlotAugObjective,
    "statm": StatmObjective,
    "staitus": StaitusObjective,
}

__all__ = ["Objective", "objectives"]
