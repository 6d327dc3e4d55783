"""The reference of a model's reconstructions: the PSNR of frames of its own validation videos."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from geoco.config import Config
from geoco.data import open_dataset
from geoco.editing.editor import Editor
from geoco.errors import GeocoError
from geoco.files import write_through
from geoco.models.reconstruction_quality import QualityReference
from geoco.publishing.model_card import name_dataset

FRAMES = 300  # that the reference is measured on, fewer where the split is smaller


def measure_quality(
    editor: Editor,
    config: Config,
    frames: int = FRAMES,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> QualityReference:
    """Encode frames spread over the validation split, each by itself as the editor does."""
    dataset = open_dataset(config.data, "val")
    length = config.data.window.length
    total = len(dataset) * length
    if total == 0:
        raise GeocoError("the validation split has no windows: there is nothing to measure on")
    count = min(frames, total)
    values = []
    for done, place in enumerate(np.linspace(0, total - 1, count).round().astype(int), 1):
        window, time = divmod(int(place), length)
        picture = dataset.batch([window]).video[0, time].permute(1, 2, 0).numpy()
        values.append(editor.encode(picture).psnr[0])
        progress(done, count)
    return QualityReference.from_psnr(
        values, f"{name_dataset(config) or 'own videos'}, validation split"
    )


def write_quality(path: Path, reference: QualityReference) -> None:
    """Write `quality.json`, straight under its name."""
    write_through(path, reference.to_json().encode())
