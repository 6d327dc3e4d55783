"""Evaluation and a training's looks at its model mix no devices: on one that is not there."""

from pathlib import Path

import pytest
import torch
from helpers import SMALL_SOLIDS
from helpers_elsewhere import Elsewhere, MixesDevices, device_elsewhere, move_module

from geoco import config
from geoco.data import SolidsDataset
from geoco.evaluation import adapter, evaluate
from geoco.models.build import build
from geoco.models.interface import Model
from geoco.training import diagnostics

SLOTS = {"count": 4, "dim": 8, "update_dim": 8, "first_iterations": 1}
ENCODER = {"kind": "conv", "width": 8}
DECODER = {"broadcast": 4, "layers": ((8, 3), (16, 3))}
PREDICTOR = {"heads": 2, "hidden": 8}
# A selector so loose that it acts on a network without training.
SELECTOR = {"threshold": 0.5, "least_area": 1, "least_peak": 0.0, "label_limit": 0.1}
TEMPORAL = {"enabled": True, "width": 8, "heads": 2, "hidden": 8, "ahead": True}
KINDS: dict[str, dict[str, object]] = {
    "geoco": {"selector": SELECTOR, "temporal": TEMPORAL},
    "slotaug": {},
    "statm": {"predictor": PREDICTOR},
    "staitus": {"predictor": PREDICTOR},
}


def make_model(kind: str) -> Model:
    """Without training, but loud enough that slots differ."""
    torch.manual_seed(1)
    parts = {"encoder": ENCODER, "slots": SLOTS, "decoder": DECODER}
    section = config.MODEL_KINDS[kind].model_validate({"kind": kind, **parts, **KINDS[kind]})
    model = build(section).double().eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("decoder.place.weight", "decoder.alpha.weight", "query.weight")):
                weight.mul_(6)
    return model


@pytest.mark.parametrize(
    "kind",
    ["geoco", *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS if kind != "geoco")],
)
def test_evaluation_mixes_no_devices(kind: str, tmp_path: Path) -> None:
    window = config.WindowConfig(length=2, stride=8)
    model = make_model(kind)
    expected = None
    for device in ("cpu", "cuda"):
        dataset = SolidsDataset(SMALL_SOLIDS.model_copy(update={"window": window}), "val")
        with device_elsewhere():
            dataset.device = device
            if device == "cuda":
                move_module(model)
                assert isinstance(next(model.parameters()), Elsewhere)
            results = evaluate(adapter(model), dataset, tmp_path / device, kind, batch=4, windows=4)
        expected = expected or results.tables
    assert results.tables
    # The same numbers, since all is computed on the CPU.
    assert str(results.tables) == str(expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_looks_at_its_model_without_mixing_devices(kind: str) -> None:
    model = make_model(kind).float()
    video, positions = torch.rand(3, 2, 3, 16, 16), 2 * torch.rand(3, 4, 2) - 1
    psnr = diagnostics.measure_psnr(model, video, positions)
    picture = diagnostics.draw_scenes(model, video[:, :1], positions)
    with device_elsewhere():
        move_module(model)
        there = [Elsewhere(video), Elsewhere(positions)]
        assert diagnostics.measure_psnr(model, *there) == psnr
        assert (diagnostics.draw_scenes(model, there[0][:, :1], there[1]) == picture).all()
        with pytest.raises(MixesDevices, match="on the CPU beside others"):
            diagnostics.measure_psnr(model, video, there[1])
