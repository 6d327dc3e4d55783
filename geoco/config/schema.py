"""Configuration: typed, frozen and strict.

Defaults live here. A YAML file names its `base:` and states only its differences; the command
line takes the same differences as dotted overrides (`data.height=96`). An unknown key, a wrong type
or a value out of range fails with its full path, what was expected and the closest valid name.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, model_validator

from geoco.config import loading
from geoco.config.loading import ChosenByKind, Section
from geoco.config.models import ModelConfig, SlotAugConfig, StaitusConfig, StatmConfig
from geoco.config.shipped import find_config
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
    """Any folder of videos (mp4, webm, gif, ...) or of frame folders.

    All of it is one split, or `auto` divides it: a share of the videos validates, drawn by `seed`,
    and of a single video its last part.
    """

    kind: Literal["folder"] = "folder"
    path: Path
    split: Split | Literal["auto"] = "train"
    validation: float = Field(0.2, gt=0, lt=1)  # the share that `auto` sets aside
    seed: int = Field(42, ge=0)
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


# The section of each kind of model; `geoco.models.build.MODELS` has their classes.
MODEL_KINDS: dict[str, type[Section]] = {
    "geoco": ModelConfig,
    "slotaug": SlotAugConfig,
    "statm": StatmConfig,
    "staitus": StaitusConfig,
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
    """Read a YAML file with its bases (or, without a path, the defaults) and apply overrides.

    A name alone, of which there is no file here, is one of the shipped ones.
    """
    file = None if path is None else find_config(Path(path))
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
