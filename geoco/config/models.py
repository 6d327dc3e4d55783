"""The model part of the configuration: GeoCo-SAVi, and the baselines of video.

Where neither the paper nor its authors' release fixes a number, the comment says "our choice".
"""

import itertools
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from geoco.config import loading
from geoco.config.loading import Section

WIDEST = 2**14  # of any layer


class ConvEncoderConfig(Section):
    """Four 5 x 5 convolutions; a quarter of the image's side in tokens."""

    kind: Literal["conv"] = "conv"
    width: int = Field(64, ge=1, le=WIDEST)


class BackboneConfig(Section):
    """The size of DINOv2's transformer, by which it is built; the defaults are DINOv2-S/14's.

    `geoco.models.dino` says what others need.
    """

    width: int = Field(384, ge=1, le=WIDEST)
    depth: int = Field(12, ge=1, le=100)
    heads: int = Field(6, ge=1)
    registers: int = Field(0, ge=0, le=64)

    @model_validator(mode="after")
    def _check_heads(self) -> "BackboneConfig":
        if self.width % self.heads:
            raise ValueError(f"width {self.width} cannot be divided among {self.heads} heads")
        return self


class DinoEncoderConfig(Section):
    """Frozen DINOv2 features.

    `weights` is a folder or a name of the Hub. It is read once, when a training begins: from then
    on checkpoints hold what was read.
    """

    kind: Literal["dino"] = "dino"
    weights: str = "facebook/dinov2-small"
    backbone: BackboneConfig = BackboneConfig()
    dim: int = Field(128, ge=1, le=WIDEST)


class SlotsConfig(Section):
    """Slots and how they are bound; the paper's Obj3D values."""

    count: int = Field(6, ge=2, le=64)
    dim: int = Field(64, ge=8, le=WIDEST)
    update_dim: int = Field(128, ge=8, le=WIDEST)
    grid_dim: int = Field(128, ge=8, le=WIDEST)
    first_iterations: int = Field(3, ge=1, le=100)
    later_iterations: int = Field(2, ge=1, le=100)
    initial_scale: float = Field(1.0, ge=0.001, le=2)  # learned from there
    readout: bool = True
    gate_bound: float = Field(0.5, gt=0, le=1)


# The names of decoders; `geoco.models.decoders.DECODERS` has their classes.
DECODER_DESIGNS = ["steered", "conventional", "canonical"]


class DecoderConfig(Section):
    """How slots are drawn; the paper's Obj3D values. Layers are [size, kernel]."""

    design: str = "steered"  # one of DECODER_DESIGNS
    broadcast: int = Field(16, ge=2, le=1024)
    layers: tuple[tuple[Annotated[int, Field(le=1024)], Annotated[int, Field(le=31)]], ...] = Field(
        ((32, 5), (64, 3), (64, 3), (64, 3), (64, 3)), min_length=1, max_length=32
    )
    micro: bool = True
    micro_bound: float = Field(0.5, gt=0)
    reference_scale: float = Field(0.2, gt=0)
    most_gain: float = Field(2.0, gt=1)

    @field_validator("design")
    @classmethod
    def _check_design(cls, design: str) -> str:
        if design not in DECODER_DESIGNS:
            raise ValueError(loading.describe_choice(DECODER_DESIGNS, design))
        return design

    @model_validator(mode="after")
    def _growing(self) -> "DecoderConfig":
        sizes = (self.broadcast, *(size for size, _ in self.layers))
        if any(after < before for before, after in itertools.pairwise(sizes)):
            raise ValueError(f"layers must not shrink from broadcast {self.broadcast}, got {sizes}")
        if any(kernel % 2 == 0 or kernel < 1 for _, kernel in self.layers):
            raise ValueError("layers must have kernels of odd size")
        return self


class SelectorConfig(Section):
    """Selective alpha ownership, the same in training and inference; the paper's Obj3D values."""

    enabled: bool = True
    threshold: float = Field(0.73, ge=0, le=1)  # a pixel is given up above this probability
    cap: float = Field(2.0, gt=0)  # the largest transfer
    label_limit: float = Field(2.0, gt=0)  # pixels that need a larger one are left alone
    margin: float = Field(0.001, ge=0)  # by which background wins a transferred pixel
    attention: bool = True  # what owners attend to is evidence; it stays behind when they are moved
    least_area: int = Field(20, ge=0)  # an owner with fewer pixels is left alone
    least_peak: float = Field(0.3, ge=0, le=1)


class TemporalConfig(Section):
    """The temporal initializer of later frames; without it they start where the last one ended."""

    enabled: bool = False
    width: int = Field(128, ge=8, le=WIDEST)
    heads: int = Field(4, ge=1)
    hidden: int = Field(512, ge=8, le=WIDEST)
    history: int = Field(4, ge=1, le=1000)
    ahead: bool = False  # our choice, after RandSF.Q: it also looks at the next frame's features


class FeatureHeadConfig(Section):
    """Slots also draw the frozen encoder's features, under the picture's alpha; all our choice."""

    enabled: bool = False
    hidden: int = Field(256, ge=8, le=WIDEST)
    weight: float = Field(0.01, ge=0)  # of the term `feat`, from the first step on


class ModelConfig(Section):
    """GeoCo-SAVi; ISA and the ablations are configurations of it."""

    kind: Literal["geoco"] = "geoco"
    encoder: Annotated[ConvEncoderConfig | DinoEncoderConfig, Field(discriminator="kind")] = (
        ConvEncoderConfig()
    )
    slots: SlotsConfig = SlotsConfig()
    decoder: DecoderConfig = DecoderConfig()
    selector: SelectorConfig = SelectorConfig()
    temporal: TemporalConfig = TemporalConfig()
    feature_head: FeatureHeadConfig = FeatureHeadConfig()

    @model_validator(mode="after")
    def _check_features(self) -> "ModelConfig":
        if self.feature_head.enabled and self.encoder.kind != "dino":
            raise ValueError("feature_head needs a frozen encoder: set encoder.kind=dino")
        return self


# -- the baselines of video; docs/baselines.md lists what is our choice ----------------------------


class SlotAugConfig(Section):
    """SlotAug, whose slots obey commands; sections are those of GeoCo-SAVi."""

    kind: Literal["slotaug"] = "slotaug"
    encoder: Annotated[ConvEncoderConfig | DinoEncoderConfig, Field(discriminator="kind")] = (
        ConvEncoderConfig()
    )
    slots: SlotsConfig = SlotsConfig(readout=False)
    decoder: DecoderConfig = DecoderConfig(design="conventional")


class BaselineDecoderConfig(DecoderConfig):
    """GeoCo-SAVi's decoder on MOVi-C, but with ordinary convolutions."""

    design: str = "conventional"
    broadcast: int = Field(32, ge=2, le=1024)
    micro: bool = False


class PredictorConfig(Section):
    """The transformer that predicts slots of the next frame, at the width of the slots."""

    heads: int = Field(4, ge=1)
    hidden: int = Field(256, ge=8, le=WIDEST)  # our choice: that of SAVi's predictor


class StatmSlotsConfig(Section):
    """Slots without position and scale; GeoCo-SAVi's values on MOVi-C."""

    count: int = Field(11, ge=2, le=64)
    dim: int = Field(64, ge=8, le=WIDEST)
    update_dim: int = Field(256, ge=8, le=WIDEST)
    first_iterations: int = Field(3, ge=1, le=100)  # our choice: GeoCo-SAVi's
    later_iterations: int = Field(2, ge=1, le=100)  # our choice: GeoCo-SAVi's


class StaitusSlotsConfig(StatmSlotsConfig):
    """Slots with position and scale."""

    grid_dim: int = Field(128, ge=8, le=WIDEST)
    initial_scale: float = Field(1.0, ge=0.001, le=2)  # learned from there


class StatmConfig(Section):
    """STATM-SAVi: plain slot attention, and a transformer over slots and their histories."""

    kind: Literal["statm"] = "statm"
    encoder: Annotated[ConvEncoderConfig | DinoEncoderConfig, Field(discriminator="kind")] = (
        DinoEncoderConfig()
    )
    slots: StatmSlotsConfig = StatmSlotsConfig()
    decoder: BaselineDecoderConfig = BaselineDecoderConfig()
    predictor: PredictorConfig = PredictorConfig()

    @model_validator(mode="after")
    def _check_heads(self) -> "StatmConfig":
        check_predictor(self.predictor, self.slots)
        return self


class ActivityConfig(Section):
    """Which slots of STAITUS are open: those of a probability above a half, by a small network."""

    hidden: int = Field(64, ge=1, le=WIDEST)  # our choice
    initial: float = Field(0.95, gt=0.5, lt=1)  # our choice: probability at first


class StaitusConfig(Section):
    """STAITUS: slots of appearance and pose, aligned in time by appearance, some of them closed."""

    kind: Literal["staitus"] = "staitus"
    encoder: Annotated[ConvEncoderConfig | DinoEncoderConfig, Field(discriminator="kind")] = (
        DinoEncoderConfig()
    )
    slots: StaitusSlotsConfig = StaitusSlotsConfig()
    decoder: BaselineDecoderConfig = BaselineDecoderConfig()
    predictor: PredictorConfig = PredictorConfig()
    activity: ActivityConfig = ActivityConfig()
    alignment: float = Field(0.1, ge=0)  # our choice: the weight of `align`

    @model_validator(mode="after")
    def _check_heads(self) -> "StaitusConfig":
        check_predictor(self.predictor, self.slots)
        return self


def check_predictor(predictor: PredictorConfig, slots: StatmSlotsConfig) -> None:
    """Its heads share the width of slots."""
    if slots.dim % predictor.heads:
        raise ValueError(
            f"slots.dim {slots.dim} cannot be divided among predictor.heads {predictor.heads}"
        )
