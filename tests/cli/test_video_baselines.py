"""STATM-SAVi and STAITUS from a store to tables; what they score is asserted nowhere."""

import json
from pathlib import Path

import pytest
from helpers import ROOT, run_geoco
from helpers_movi import draw_clip
from rich.console import Console

from geoco import config
from geoco.data.source import RawVideo
from geoco.data.store_writer import StoreWriter
from geoco.models import checkpoints
from geoco.training.launch import Machine, start_training
from geoco.training.metrics_log import read_metrics

TINY = [
    "data.height=16",
    "data.width=16",
    "data.window={length: 6, stride: 6}",
    "model.encoder={kind: conv, width: 8}",
    "model.slots={count: 4, dim: 8, update_dim: 8}",
    "model.decoder={broadcast: 4, layers: [[16,3]]}",
    "model.predictor={heads: 2, hidden: 8}",
    "train.batch=2",
    "train.precision=32-true",
    "train.learning_rate=0.05",
    "train.validation=2",
    "train.log_every=1",
    "train.picture_every=3",
    "train.budget=0.00006",
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores") / "movi-like"
    for split in ("train", "val"):
        with StoreWriter(folder / split, 16, 16, {}) as writer:
            for number in range(2):
                frames, masks = draw_clip(number, 16)[0][:6], draw_clip(number, 32)[1][:6]
                writer.append(RawVideo(f"clip {number}", frames, masks if split == "val" else None))
            writer.finish()
    return folder


@pytest.mark.parametrize("name", ["statm", "staitus"])
def test_a_baseline_is_trained_and_measured(store: Path, tmp_path: Path, name: str) -> None:
    changes = [f"data.path={store}", *TINY]
    settings = config.load(ROOT / "configs" / f"{name}-movi-like.yaml", changes)
    start_training(settings, tmp_path / "run", Machine("cpu"), None, Console(quiet=True))
    metrics = read_metrics(tmp_path / "run" / "metrics.csv")
    assert len(metrics["rec"]) == 6
    gradients = read_metrics(tmp_path / "run" / "gradients.csv")
    assert gradients["rec/decoder"][0] > 0
    if name == "staitus":
        assert all(value > 0 for value in metrics["align"])
        assert gradients["align/predictor"][0] > 0
        assert gradients["align/decoder"] == [0, 0]  # of align alone, without rec
        assert checkpoints.read_weights(tmp_path / "run").tensors["gate_share"].item() == 1
    out = tmp_path / "tables"
    done = run_geoco("eval", tmp_path / "run", "--no-figures", "--out", out)
    assert done.returncode == 0, done.stderr
    results = {path.stem: json.loads(path.read_text())["values"] for path in out.glob("*.json")}
    placed = {"stability", "shared-background", "finite-grid"}
    expected = {"factual", "editing", "matched", "tubes"} | (set() if name == "statm" else placed)
    assert set(results) == expected
    active, edits = results["factual"].get("active_slots"), results["tubes"]
    if name == "statm":
        assert active is None
        assert results["factual"]["position_error"]["defined"] == 0
        assert edits["position"]["edits"] == edits["scale"]["edits"] == 0
    else:
        assert 0 <= active <= 4
