"""Data: one sample record, the embedded generator, and loaders for real videos."""

from geoco.config import Config, SolidsConfig, Split, StoreConfig, WindowConfig
from geoco.data.clip import Clip, ClipBatch, to_device
from geoco.data.mixture import ClipDataset, Ingredient, MixedDataset
from geoco.data.solids import SolidsDataset
from geoco.data.store import StoreDataset, read_index

__all__ = [
    "Clip",
    "ClipBatch",
    "ClipDataset",
    "MixedDataset",
    "SolidsDataset",
    "StoreDataset",
    "open_dataset",
    "open_training",
    "to_device",
]


def open_dataset(config: SolidsConfig | StoreConfig, split: Split) -> SolidsDataset | StoreDataset:
    """The clips of a split, generated or read from a store, as the configuration says."""
    if isinstance(config, SolidsConfig):
        return SolidsDataset(config, split)
    return StoreDataset(config, split)


def open_training(config: Config, window: WindowConfig | None = None) -> ClipDataset:
    """The clips of a training: those of the training split and of `train.extra_stores`."""
    window = window or config.data.window
    own = open_dataset(config.data.model_copy(update={"window": window}), "train")
    if not config.train.extra_stores:
        return own
    ingredients = [Ingredient(own, 1, "data")]
    for extra in config.train.extra_stores:
        index = read_index(extra.path / "train")
        store = StoreConfig(
            path=extra.path, height=index.height, width=index.width, source=None, window=window
        )
        ingredients.append(Ingredient(StoreDataset(store, "train"), extra.times, str(extra.path)))
    return MixedDataset(ingredients)
