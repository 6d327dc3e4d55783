"""`solids` beside frames of Obj3D's own generator. Extra: it runs only where those frames are."""

import sys
from pathlib import Path

import numpy as np
import pytest

from geoco.config import SolidsConfig
from geoco.data.solids import SolidsDataset
from geoco.solids import render_scenes

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT.parent / "shared" / "data" / "obj3d_cycles_val.npz"

pytestmark = pytest.mark.skipif(
    not REFERENCE.exists(), reason="the reference frames are not part of the project"
)


def test_statistics_agree() -> None:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        from solids_statistics import _compute_statistics
    finally:
        sys.path.pop(0)
    stored = np.load(REFERENCE)
    frames, masks = stored["frames"].reshape(-1, 64, 64, 3), stored["masks"].reshape(-1, 64, 64)
    index = stored["index"].astype(np.int64)
    dataset = SolidsDataset(SolidsConfig(), "train")
    scenes = dataset.extract_scenes(
        np.repeat(np.arange(len(index)), index.shape[1]), index.flatten()
    )
    pictures = render_scenes(scenes, dataset.canvas)
    ours = _compute_statistics(pictures.frames.permute(0, 2, 3, 1).numpy(), pictures.masks.numpy())
    for name, value in _compute_statistics(frames, masks).items():
        difference = np.abs(ours[name] - value)
        if "RGB" in name:
            assert difference.max() < 10, name
        elif "centroid" in name:
            assert difference.max() < 1, name
        elif "objects" in name:
            assert difference.max() < 0.25, name
        else:
            assert (difference / value).max() < 0.1, name
