"""The one place that makes a model.

To add a model from anywhere: `geoco.config.MODEL_KINDS["mine"] = MineConfig`, a section with
`kind: Literal["mine"] = "mine"`, and `geoco.models.build.MODELS["mine"] = Mine`.
"""

from typing import Any

from geoco.errors import GeocoError
from geoco.models.geoco import GeoCo
from geoco.models.interface import Model
from geoco.models.slotaug import SlotAug
from geoco.models.staitus import Staitus
from geoco.models.statm import Statm

MODELS: dict[str, type[Model]] = {
    "geoco": GeoCo,
    "slotaug": SlotAug,
    "statm": Statm,
    "staitus": Staitus,
}


def build(settings: Any, pretrained: bool = True) -> Model:
    """The model that a section of `geoco.config.MODEL_KINDS` describes, before any training.

    Parts that were trained elsewhere are read from where they are, unless `pretrained` is off: for
    a model that is given a checkpoint's tensors, or is only to be looked at.
    """
    model = find_class(settings)(settings)
    if pretrained:
        model.read_pretrained()
    return model


def find_class(settings: Any) -> type[Model]:
    """The class of the model that `build` would make."""
    if settings.kind not in MODELS:
        raise GeocoError(
            f"model.kind: the configuration knows '{settings.kind}', but geoco.models.build.MODELS "
            "has no class for it: add one"
        )
    return MODELS[settings.kind]
