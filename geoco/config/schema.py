"""Configuration: typed, frozen and strict.

Defaults live here. A YAML file names its `base:` and states only its differences; the command
line takes the same differences as dotted overrides (`data.height=96`). An unknown key, a wrong type
or a value out of range fails with its full path, what was expected and the closest valid name.
"""

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, field_validator, model_validator

from geoco.config import loading
from geoco.config.loading import ChosenByKind, Section
from geoco.config.training import TrainConfig


class WindowConfig(Section):
    """How clips are cut from a video: one every `stride` frames, wherever `length` frames fit."""

    length: int = Field(1, ge=1)
    stride: int = Field(8, ge=1)

    def starts(self, frames: int) -> range:
        return range(0, frames - self.length + 1, self.stride)


Color = tuple[
    Annotated[float, Field(ge=0, le=1)],
    Annotated[float, Field(ge=0, le=1)],
    Annotated[float, Field(ge=0, le=1)],
]
Shape = Literal["cube", "cylinder", "sphere"]
Material = Literal["rubber", "metal"]
Split = Literal["train", "val", "test"]


class EpisodesConfig(Section):
    """Episodes in each split; Obj3D's own numbers."""

    train: int = Field(2920, ge=1)
    val: int = Field(200, ge=1)
    test: int = Field(200, ge=1)


class SolidsConfig(Section):
    """The embedded generator. The defaults are Obj3D's own parameters at 64 x 64."""

    kind: Literal["solids"] = "solids"
    seed: int = Field(42, ge=0)
    episodes: EpisodesConfig = EpisodesConfig()
    frames: int = Field(100, ge=1, le=1000)
    height: int = Field(64, ge=8, le=1024)
    width: int = Field(64, ge=8, le=1024)
    supersample: int = Field(3, ge=1, le=8)
    resting: tuple[Annotated[int, Field(ge=1, le=4)], Annotated[int, Field(ge=1, le=4)]] = (2, 4)
    shapes: tuple[Shape, ...] = Field(("cube", "cylinder", "sphere"), min_length=1)
    materials: tuple[Material, ...] = Field(("rubber", "metal"), min_length=1)
    radii: tuple[Annotated[float, Field(ge=0.3, le=0.8)], ...] = Field(
        (0.70, 0.75, 0.80), min_length=1
    )
    colors: dict[str, Color] = Field(
        {
            "pink": (0.8, 0.3, 0.7),
            "red": (0.8, 0.2, 0.2),
            "blue": (0.2, 0.2, 0.8),
            "green": (0.2, 0.8, 0.3),
            "yellow": (0.7, 0.8, 0.2),
        },
        min_length=1,
    )
    camera_jitter: float = Field(0.0, ge=0, le=1)
    textured: bool = False
    window: WindowConfig = WindowConfig()

    @model_validator(mode="after")
    def _check_order(self) -> "SolidsConfig":
        if self.resting[0] > self.resting[1]:
            raise ValueError(f"resting must be [fewest, most], got {list(self.resting)}")
        if self.window.length > self.frames:
            raise ValueError(f"window.length {self.window.length} exceeds frames {self.frames}")
        return self


class Obj3DSource(Section):
    """Obj3D as published: {train,val,test}/<episode>/test_{1..100}.png."""

    kind: Literal["obj3d"] = "obj3d"
    path: Path


class MoviSource(Section):
    """MOVi-A to -E as TFDS lays them out: <name>-<split>.tfrecord-00000-of-000NN."""

    kind: Literal["movi"] = "movi"
    path: Path
    name: Literal["movi_a", "movi_b", "movi_c", "movi_d", "movi_e"] = "movi_c"


class FolderSource(Section):
    """Any folder of videos (mp4, webm, gif, ...) or of frame folders; all of it is one split."""

    kind: Literal["folder"] = "folder"
    path: Path
    split: Split = "train"
    frame_rate: float | None = Field(None, gt=0)  # None keeps the video's own
    max_frames: int | None = Field(None, ge=1)  # longer videos become several of this length


class StoreConfig(Section):
    """Real data, imported once by `geoco data import` into `path` and read memory-mapped."""

    kind: Literal["store"] = "store"
    path: Path
    height: int = Field(64, ge=8, le=1024)
    width: int = Field(64, ge=8, le=1024)
    crop: Literal["center", "none"] = "center"  # none squeezes the whole frame to height x width
    # The source's own masks: in its own pixels, where the protocol measures, or in the frames'.
    masks: Literal["native", "frames"] = "native"
    instances: bool = False  # find masks of coloured solids where the source has none
    source: (
        Annotated[Obj3DSource | MoviSource | FolderSource, Field(discriminator="kind")] | None
    ) = None  # what to import; a store that is there needs none
    window: WindowConfig = WindowConfig()


class ConvEncoderConfig(Section):
    """Four 5 x 5 convolutions; a quarter of the image's side in tokens."""

    kind: Literal["conv"] = "conv"
    width: int = Field(64, ge=1)


class BackboneConfig(Section):
    """The size of DINOv2's transformer, by which it is built; the defaults are DINOv2-S/14's.

    `geoco.models.dino` says what others need.
    """

    width: int = Field(384, ge=1)
    depth: int = Field(12, ge=1)
    heads: int = Field(6, ge=1)
    registers: int = Field(0, ge=0)

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
    dim: int = Field(128, ge=1)


class SlotsConfig(Section):
    """Slots and how they are bound; the paper's Obj3D values."""

    count: int = Field(6, ge=2, le=64)
    dim: int = Field(64, ge=8)
    update_dim: int = Field(128, ge=8)
    grid_dim: int = Field(128, ge=8)
    first_iterations: int = Field(3, ge=1)
    later_iterations: int = Field(2, ge=1)
    initial_scale: float = Field(1.0, ge=0.001, le=2)  # learned from there
    readout: bool = True
    gate_bound: float = Field(0.5, gt=0, le=1)


# The names of decoders; `geoco.models.decoders.DECODERS` has their classes.
DECODER_DESIGNS = ["steered", "conventional", "canonical"]


class DecoderConfig(Section):
    """How slots are drawn; the paper's Obj3D values. Layers are [size, kernel]."""

    design: str = "steered"  # one of DECODER_DESIGNS
    broadcast: int = Field(16, ge=2)
    layers: tuple[tuple[int, int], ...] = Field(
        ((32, 5), (64, 3), (64, 3), (64, 3), (64, 3)), min_length=1
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
    width: int = Field(128, ge=8)
    heads: int = Field(4, ge=1)
    hidden: int = Field(512, ge=8)
    history: int = Field(4, ge=1)


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


class SlotAugConfig(Section):
    """SlotAug, whose slots obey commands; sections are those of the other models."""

    kind: Literal["slotaug"] = "slotaug"
    encoder: Annotated[ConvEncoderConfig | DinoEncoderConfig, Field(discriminator="kind")] = (
        ConvEncoderConfig()
    )
    slots: SlotsConfig = SlotsConfig(readout=False)
    decoder: DecoderConfig = DecoderConfig(design="conventional")


# The section of each kind of model; `geoco.models.build.MODELS` has their classes.
MODEL_KINDS: dict[str, type[Section]] = {
    "geoco": ModelConfig,
    "slotaug": SlotAugConfig,
}


class Config(Section):
    data: Annotated[SolidsConfig | StoreConfig, Field(discriminator="kind")] = SolidsConfig()
    # Typed as that of our own model; for another kind it is what MODEL_KINDS has for it.
    model: Annotated[ModelConfig, ChosenByKind(MODEL_KINDS, "geoco")] = ModelConfig()
    train: TrainConfig = TrainConfig()

    def to_yaml(self) -> str:
        """The resolved configuration: what `geoco config show` prints and checkpoints store."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, width=100)


# What a section is where nobody says: a file may state `data: {frames: 50}` alone.
_DEFAULT_KINDS = {
    "data": {"kind": "solids"},
    "model": {"kind": "geoco", "encoder": {"kind": "conv"}},
}

# Keys that had another name before: stored configurations keep loading, people get the new name.
_FORMER_NAMES = {"train.also": "train.extra_stores"}


def load(path: Path | str | None = None, overrides: Iterable[str] = ()) -> Config:
    """Read a YAML file with its bases (or, without a path, the defaults) and apply overrides."""
    file = None if path is None else Path(path)
    return loading.read(Config, file, overrides, _DEFAULT_KINDS, _FORMER_NAMES)


def override(config: Config, overrides: Iterable[str]) -> Config:
    """A configuration with differences, as on the command line."""
    return loading.apply_overrides(config, overrides, _FORMER_NAMES)


def loads(text: str, where: str = "configuration") -> Config:
    """Read a stored, resolved configuration back from its YAML text, also by keys' former names."""
    return loading.parse(Config, text, where, _FORMER_NAMES)


def differences(one: Config, other: Config) -> list[str]:
    """Dotted names of what two configurations do not have in common; a list is one thing."""
    ours, theirs = (_flat(config.model_dump(mode="json")) for config in (one, other))
    missing = object()
    names = dict.fromkeys((*ours, *theirs))
    return [name for name in names if ours.get(name, missing) != theirs.get(name, missing)]


def _flat(section: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in section.items():
        inner = isinstance(value, Mapping)
        flat |= _flat(value, f"{prefix}{name}.") if inner else {f"{prefix}{name}": value}
    return flat
