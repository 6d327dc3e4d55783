"""Data: one sample record, the embedded generator, and loaders for real videos."""

from geoco.config import Solids, Split, Store
from geoco.data.clip import Clip, ClipBatch
from geoco.data.solids import SolidsDataset
from geoco.data.store import StoreDataset

__all__ = ["Clip", "ClipBatch", "SolidsDataset", "StoreDataset", "open_dataset"]


def open_dataset(config: Solids | Store, split: Split) -> SolidsDataset | StoreDataset:
    """The clips of a split, generated or read from a store, as the configuration says."""
    if isinstance(config, Solids):
        return SolidsDataset(config, split)
    return StoreDataset(config, split)
