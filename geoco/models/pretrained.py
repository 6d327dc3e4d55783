"""Models by name: shipped weights, a run, a file of weights, or a repository of the Hub."""

import math
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from geoco.config import Config
from geoco.errors import GeocoError
from geoco.files import PARTIAL, REPLACED
from geoco.models import checkpoints
from geoco.models.checkpoints import ModelWeights
from geoco.models.hub import fetch_from_hub, is_hub_name
from geoco.models.interface import Model
from geoco.models.reconstruction_quality import FILE as QUALITY
from geoco.models.reconstruction_quality import QualityReference
from geoco.models.stored import build_stored

# Beside the package in a checkout, inside it when installed from a wheel.
_PACKAGE = Path(__file__).parents[1]
_SHIPPED = (_PACKAGE.parent / "weights", _PACKAGE / "weights")
Device = str | torch.device
TRAINED_SCALES = "trained scales"  # in the header of weights: "low high"


@dataclass(frozen=True)
class LoadedModel:
    """A model that is ready to be used, and what is known of it."""

    name: str
    model: Model
    config: Config
    step: int
    trained_scales: tuple[float, float]  # that objects had in training
    quality: QualityReference | None = None  # how well it redraws frames of its own kind


def list_shipped() -> dict[str, Path]:
    """The weights that come with the package, by name."""
    return _list_models(_SHIPPED)


def _list_models(folders: Iterable[Path]) -> dict[str, Path]:
    return {
        file.parent.name.removesuffix(REPLACED): file
        for folder in folders
        for file in sorted(folder.glob(f"*/{checkpoints.WEIGHTS}"))
        if file.parent.suffix != PARTIAL and not _has_successor(file.parent)
    }


def _has_successor(folder: Path) -> bool:
    """Whether a replaced folder has done its duty; a kill may have come before its successor."""
    return folder.suffix == REPLACED and folder.with_suffix("").exists()


def list_published() -> dict[str, Path]:
    """What the user published, by name: in the folder GEOCO_HOME, and here."""
    home = os.environ.get("GEOCO_HOME")
    folders = (Path("weights"), *([Path(home).expanduser() / "weights"] if home else []))
    return _list_models(folders)


def find_device(device: Device) -> torch.device:
    """A device that works here; there is no other in its place."""
    try:
        place = torch.device(device)
        torch.zeros(1, device=place).item()
    except (RuntimeError, AssertionError, NotImplementedError, TypeError):
        raise GeocoError(
            f"device '{device}': PyTorch finds none here: expected cpu, or cuda, cuda:1 or mps on "
            "a machine that has it"
        ) from None
    return place


def from_pretrained(name: str | Path, device: Device = "cpu") -> Model:
    """The model alone, ready to be used: what `load` finds under this name."""
    return load(name, device).model


def load(name: str | Path, device: Device = "cpu", fetch: bool = True) -> LoadedModel:
    """Build a model and give it its weights. Nothing is unpickled.

    Without `fetch` the Hub is not asked: for a name that comes from elsewhere than the user.
    """
    place = find_device(device)
    weights = checkpoints.read_weights(find_weights(name, fetch))
    model = build_stored(weights, str(name))
    return LoadedModel(
        str(name),
        model.to(place).eval(),
        weights.config,
        weights.step,
        _read_trained_scales(weights),
        QualityReference.read(_find_quality(name, weights.path)),
    )


def find_weights(name: str | Path, fetch: bool = True) -> Path:
    """Where the weights of a name are; those of the Hub are fetched."""
    known = {**list_published(), **list_shipped()}
    if str(name) in known:
        return known[str(name)]
    path = Path(name).expanduser()
    if path.exists():
        return path
    replaced = path.with_name(path.name + REPLACED) if path.name else path
    if (replaced / checkpoints.WEIGHTS).is_file():  # its successor was killed on its way here
        return replaced
    if is_hub_name(name) and fetch:
        return fetch_from_hub(str(name), checkpoints.WEIGHTS)
    raise GeocoError(
        f"{name}: there is no such model: give a run, a file of weights, user/name of the Hub"
        + (f", or one of {', '.join(known)}" if known else "")
    )


def _read_trained_scales(weights: ModelWeights) -> tuple[float, float]:
    text = weights.extra.get(TRAINED_SCALES)
    if text is None:
        return 0.0, weights.config.train.quality.largest_scale
    try:
        low, high = (float(part) for part in text.split())
    except ValueError:
        low = high = math.nan
    if not 0 <= low <= high < math.inf:
        raise GeocoError(
            f"{weights.path}: its header says '{text:.40}' for the {TRAINED_SCALES}: expected two "
            "numbers from zero up, the smaller one first"
        )
    return low, high


def _find_quality(name: str | Path, weights: Path) -> Path:
    """The file beside the weights; of a model of the Hub it is fetched, too, if it has one."""
    if str(name) not in list_shipped() and not Path(name).expanduser().exists():
        with suppress(GeocoError):
            return fetch_from_hub(str(name), QUALITY)
    return weights.with_name(QUALITY)
