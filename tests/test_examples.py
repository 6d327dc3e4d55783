"""The examples do what they say."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import make_tiny_model

from geoco import config
from geoco.data import SolidsDataset, StoreDataset
from geoco.models import checkpoints

ROOT = Path(__file__).parent.parent
SIZE = 16


def run(script: str, *arguments: object, cwd: Path) -> str:
    command = [sys.executable, str(ROOT / "examples" / script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    model = make_tiny_model().model.float()
    settings = config.Config(model=model.settings)
    return checkpoints.save(tmp_path / "run", 7, settings, model.state_dict(), {}, {})


def test_a_model_on_frames_of_ones_own(weights: Path, tmp_path: Path) -> None:
    solids = config.SolidsConfig(
        episodes=config.EpisodesConfig(train=1, val=3, test=1),
        frames=8,
        height=SIZE,
        width=SIZE,
        supersample=1,
        window=config.WindowConfig(length=4),
    )
    clips = SolidsDataset(solids, "val").batch([0, 1, 2])
    assert clips.masks is not None
    frames = clips.video.permute(0, 1, 3, 4, 2).numpy()
    np.savez(tmp_path / "frames.npz", frames=frames, masks=clips.masks.numpy())
    said = run(
        "evaluate_on_your_frames.py", "frames.npz", "--model", weights, "--windows", 6, cwd=tmp_path
    )
    assert "wrote evaluation/tables.md" in said
    factual = json.loads((tmp_path / "evaluation" / "factual.json").read_text())
    assert factual["population"]["videos"] == 3
    assert factual["population"]["windows of the dataset"] == 12
    # The same number by hand, for the windows in question: the first two of every video.
    model = make_tiny_model().model.float()
    expected = []
    for window in (0, 1, 4, 5, 8, 9):
        video = torch.from_numpy(frames[window // 4, window % 4]).permute(2, 0, 1).float() / 255
        generator = torch.Generator().manual_seed(42 + window // 4)
        count = model.settings.slots.count
        start = 2 * torch.rand(4, count, 2, generator=generator)[window % 4] - 1
        with torch.no_grad():
            image = model.decode(model.bind(video[None, None], start[None])).image[0, 0]
        expected.append(-10 * float((image - video).square().mean().log10()))
    psnr = factual["values"]["psnr_of_initializations"][0]
    assert psnr == pytest.approx(np.mean(expected), abs=1e-3)
    assert factual["values"]["segmentation"] is not None


def test_a_strangers_model(tmp_path: Path) -> None:
    said = run("evaluate_your_model.py", cwd=tmp_path)
    editing = json.loads((tmp_path / "runs" / "discs" / "editing.json").read_text())["values"]
    position = editing["all"]["position"]
    assert position["f1"]["estimate"] > position["noop"] + 30  # discs obey
    assert "checksum of the model" not in said  # it gave none
    assert "## Counterfactual editing capability" in said


def test_a_model_that_is_told_what_to_do(tmp_path: Path) -> None:
    said = run("evaluate_a_commanded_model.py", cwd=tmp_path)
    folder = tmp_path / "runs" / "masks"
    factual = json.loads((folder / "factual.json").read_text())["values"]
    scores = json.loads((folder / "editing.json").read_text())["values"]["all"]
    for kind in ("position", "scale"):
        assert scores[kind]["f1"]["estimate"] > scores[kind]["noop"] + 30  # masks obey
    # A slot takes its place along: worse than leaving the recipient as it is.
    assert scores["transplant"]["f1"]["estimate"] < scores["transplant"]["noop"] - 10
    # Undefined without a position and a scale, not zero.
    assert factual["position_error"] == {"value": None, "defined": 0, "total": factual["objects"]}
    assert factual["calibration"]["linear"] is None
    assert factual["reference_errors"]["decoded_to_reference"]["defined"] > 0
    assert "## Counterfactual editing capability" in said


def test_arrays_become_a_store_to_train_on(tmp_path: Path) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (3, 2, SIZE, SIZE, 3), dtype=np.uint8)
    masks = np.arange(6, dtype=np.uint8).reshape(3, 2, 1, 1).repeat(SIZE, 2).repeat(SIZE, 3)
    np.savez(tmp_path / "frames.npz", frames=frames, masks=masks)
    said = run("store_from_arrays.py", "frames.npz", "stores/mine", cwd=tmp_path)
    assert said == "wrote stores/mine: 3 videos of 2 frames\n"
    store = config.StoreConfig(path=tmp_path / "stores" / "mine", height=SIZE, width=SIZE)
    data = StoreDataset(
        store.model_copy(update={"window": config.WindowConfig(length=1, stride=1)}), "train"
    )
    assert len(data) == 6
    clip = data[3]
    assert clip.source == "video 1"
    np.testing.assert_array_equal(clip.video[0].permute(1, 2, 0).numpy(), frames[1, 1])
    assert clip.masks is not None
    assert clip.masks.eq(3).all()
