"""What a GPU records once and replays must wait for nothing: every step, on fakes of CUDA tensors.

`helpers_recording.py` says how. It runs in a process of its own.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from helpers import ROOT

from geoco import config

KEPT = "train.feed=resident train.features=resident"
ALL_OF_OURS = (
    "model.feature_head.enabled=true train.muon_learning_rate=1e-3 train.ema=0.999 "
    "train.separate_pass=false"
)
# Few, so that together they take all paths: every kind of model, every term, every option.
USUAL = (
    "configs/geoco-tight.yaml train.own_against=frame train.ema=0.999",
    f"configs/geoco-movi-like-ahead.yaml {KEPT} {ALL_OF_OURS}",
    "configs/statm-movi-like.yaml model.encoder.backbone.depth=2",
    f"configs/staitus-movi-like.yaml {KEPT}",
    "configs/slotaug.yaml",
)
# Each is one path, and something in it that must not be there, with what is then said.
THIN = "model.encoder.backbone.depth=1"
SPOILED = {
    f"configs/statm-movi-like.yaml {THIN} spoil=item:geoco.training.losses:rec": "local_scalar",
    f"configs/staitus-movi-like.yaml {THIN} spoil=moved:geoco.training.staitus_objective:align": (
        "aten::lift_fresh has a tensor on the cpu"
    ),
    "configs/slotaug.yaml spoil=mask:geoco.training.losses:rec": "DynamicOutputShapeException",
    "configs/slotaug.yaml spoil=random:geoco.training.losses:rec": "draws random numbers",
    "configs/smoke.yaml spoil=condition:geoco.training.losses:ov": "local_scalar",
    "configs/smoke.yaml spoil=mixed:geoco.training.losses:gate": "aten::arange has a tensor on the",
}
# Data alone: nobody trains by them.
DATA = {"folder", "movi-c", "movi-like", "obj3d", "solids", "solids-textured", "solids-video"}


def check(*arguments: str) -> dict[str, Mapping[str, Any]]:
    """What the check says of each configuration."""
    command = [sys.executable, str(ROOT / "tests/helpers_recording.py"), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["config"]: line for line in lines}


def expect_whole(said: Mapping[str, Mapping[str, Any]]) -> None:
    """Every configuration took a step in every mode."""
    for argument, line in said.items():
        assert "error" not in line, (argument, line["error"], line["where"])
        assert line["modes"][0] == 0


def test_steps_wait_for_nothing_and_what_would_is_found() -> None:
    said = check(*USUAL, *SPOILED)
    assert set(said) == {*USUAL, *SPOILED}
    expect_whole({argument: said[argument] for argument in USUAL})
    assert [len(said[argument]["modes"]) for argument in USUAL] == [7, 4, 2, 3, 1]
    for argument, why in SPOILED.items():
        assert why in said[argument].get("error", "nothing was found"), argument


@pytest.mark.slow
def test_every_configuration() -> None:
    folders = (ROOT / "configs", ROOT / "configs/obj3d")
    files = [file for folder in folders for file in sorted(folder.glob("*.yaml"))]
    expect_whole(check(*(str(file) for file in files if file.stem not in DATA)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["geoco-movi-like", "geoco-movi-like-ahead", "statm-movi-like", "staitus-movi-like"]
)
def test_every_way_of_features_and_optimisers(name: str) -> None:
    file = f"configs/{name}.yaml"
    head = " model.feature_head.enabled=true" if name.startswith("geoco") else ""
    said = check(
        *(
            f"{file} {features}{more}"
            for features in ("train.features=step", KEPT, f"{KEPT} train.flip=false")
            for more in (
                "",
                f"{head} train.precision=32-true",
                f"{head} train.muon_learning_rate=1e-3 train.ema=0.999 train.separate_pass=false",
            )
        )
    )
    expect_whole(said)
    assert len(said) == 9


@pytest.mark.slow
def test_every_way_of_own_and_passes() -> None:
    said = check(
        *(
            f"configs/geoco-tight.yaml train.separate_pass={separate} train.own_against={against}"
            f" model.decoder.design={design}"
            for separate in ("true", "false")
            for against in ("slot", "frame")
            for design in config.DECODER_DESIGNS
        )
    )
    expect_whole(said)
    assert len(said) == 12
