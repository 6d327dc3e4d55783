"""How well a trained model redraws validation frames: what pictures of users are compared with."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from geoco.config import Config
from geoco.data import open_dataset
from geoco.files import write_whole
from geoco.metrics.rgb import psnr
from geoco.models import checkpoints, pretrained
from geoco.models.interface import Model
from geoco.models.reconstruction_quality import FILE, QualityReference

SEED = 42  # of the places where slots start, as in the editor
TRAINED = 100  # frames that are redrawn at the end of a training


@torch.no_grad()
def measure_quality(
    model: Model,
    config: Config,
    frames: int,
    source: str,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> QualityReference:
    """Redraw frames spread over the validation split, each by itself as the editor does."""
    dataset = open_dataset(config.data, "val")
    length = config.data.window.length
    total = len(dataset) * length
    places = np.linspace(0, total - 1, min(frames, total)).round().astype(int)
    device = next(model.parameters()).device
    values = []
    for done, place in enumerate(places, 1):
        window, time = divmod(int(place), length)
        video = dataset.batch([window]).video[:, time : time + 1].to(device).float() / 255
        starts = model.draw_positions(1, torch.Generator().manual_seed(SEED))
        values.append(float(psnr(model.decode(model.bind(video, starts)).image, video)))
        progress(done, len(places))
    return QualityReference.from_psnr(values, source)


def write_run_quality(folder: Path) -> None:
    """Write the reference of a run beside its last weights."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    loaded = pretrained.load(folder, device)
    reference = measure_quality(loaded.model, loaded.config, TRAINED, "validation split")
    place = checkpoints.read_weights(folder).path.with_name(FILE)
    write_whole(place, reference.to_json().encode())
