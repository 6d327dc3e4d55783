"""The command line, run as a user runs it."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import ROOT, run_geoco
from PIL import Image

from geoco import config, geometry
from geoco.cli.training import draw_curriculum
from geoco.models.build import build
from geoco.training import curriculum


def run_failing(*arguments: object) -> str:
    """The single sentence of a command that must fail cleanly."""
    result = run_geoco(*arguments)
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_help_shows_every_command_with_an_example() -> None:
    assert "Slots with explicit appearance" in run_geoco("--help").stdout
    commands = (
        ("demo",),
        ("train",),
        ("curriculum",),
        ("calibrate",),
        ("refit",),
        ("eval",),
        ("compare",),
        ("slots",),
        ("edit",),
        ("serve",),
        ("model", "summary"),
        ("encoder", "stand-in"),
        ("config", "show"),
        ("data", "import"),
        ("data", "inspect"),
        ("data", "preview"),
    )
    for command in commands:
        text = run_geoco(*command, "--help").stdout
        assert f"Example: geoco {' '.join(command)}" in re.sub(r"\s+", " ", text)


def test_config_show() -> None:
    result = run_geoco("config", "show", "configs/solids-video.yaml", "data.height=96")
    assert result.returncode == 0
    assert "height: 96" in result.stdout
    assert "length: 6" in result.stdout
    message = run_failing("config", "show", "configs/solids.yaml", "data.higth=96")
    assert "configs/solids.yaml: data.higth: unknown key; did you mean data.height?" in message


def test_import_inspect_and_preview(tmp_path: Path) -> None:
    for video in range(2):
        folder = tmp_path / "raw" / f"video{video}"
        folder.mkdir(parents=True)
        for frame in range(6):
            picture = np.full((20, 30, 3), 40 * frame + video, dtype=np.uint8)
            Image.fromarray(picture).save(folder / f"{frame}.png")
    store = tmp_path / "store"
    settings = (f"data.source.path={tmp_path / 'raw'}", f"data.path={store}")
    settings = (*settings, "data.source.frame_rate=null", "data.height=16", "data.width=16")
    imported = run_geoco("data", "import", "configs/folder.yaml", *settings)
    assert imported.returncode == 0, imported.stderr
    assert "2/2" in imported.stdout
    again = run_geoco("data", "import", "configs/folder.yaml", *settings)
    assert again.returncode == 0, again.stderr

    shown = run_geoco("data", "inspect", store, "--verify").stdout
    assert re.search(r"train\W+2\W+12\W+16 x 16\W+no", shown)
    assert "all checksums are right" in shown
    shown = run_geoco("data", "inspect", "configs/folder.yaml", *settings).stdout
    assert re.search(r"train\W+2\W+12\W+16 x 16\W+no\W+2", shown)  # two windows of 4 in 6 frames

    out = tmp_path / "out" / "preview.png"
    preview = ("data", "preview", "configs/folder.yaml", *settings, "--zoom", 1, "--out", out)
    assert run_geoco(*preview).returncode == 0
    picture = np.asarray(Image.open(out))
    assert (picture[4:20, 4:20] == 0).all()  # video 0, frame 0
    assert (picture[4:20, 24:40] == 1).all()  # video 1, frame 0
    assert "train, val, test" in run_failing(*preview, "--split", "validation")
    assert "only train beside it" in run_failing(*preview, "--split", "val")
    assert "written as .png" in run_failing(*preview[:-1], tmp_path / "a.bmp")

    damaged = bytearray((store / "train" / "frames.u8").read_bytes())
    damaged[100] ^= 1
    (store / "train" / "frames.u8").write_bytes(damaged)
    assert "do not match their checksum, first 'video0'" in run_failing(
        "data", "inspect", store, "--verify"
    )


def test_preview_of_the_generator(tmp_path: Path) -> None:
    out = tmp_path / "preview.gif"
    result = run_geoco("data", "preview", "configs/solids-video.yaml", "--count", 3, "--out", out)
    assert result.returncode == 0, result.stderr
    with Image.open(out) as image:
        assert image.n_frames == 6  # type: ignore[attr-defined]
        assert image.size == (3 * (128 + 4) + 4, 2 * (128 + 4) + 4)
    shown = run_geoco("data", "inspect", "configs/solids.yaml").stdout
    assert re.search(r"val\W+200\W+20000\W+64 x 64\W+exact\W+2600", shown)


def test_model_summary() -> None:
    shown = run_geoco("model", "summary", "configs/geoco.yaml").stdout
    assert re.search(r"encoder\W+312,256", shown)
    assert re.search(r"total\W+660,284", shown)


def test_curriculum(tmp_path: Path) -> None:
    out = tmp_path / "curriculum.png"
    shown = run_geoco("curriculum", "configs/geoco.yaml", "--out", out).stdout
    assert re.search(r"15,000\s+factual calibration", shown)
    assert re.search(r"36,200\s+selector applies", shown)
    assert out.stat().st_size > 10_000


def test_the_curriculum_starts_where_the_model_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also at a size that is no multiple of four, where the encoder's last token is cut."""
    cold: list[float] = []

    class Noted(curriculum.Curriculum):
        def __init__(self, settings: config.Config, cold_scale: float) -> None:
            cold.append(cold_scale)
            super().__init__(settings, cold_scale)

    monkeypatch.setattr(curriculum, "Curriculum", Noted)
    size = ["model.decoder.layers=[[32,3],[66,3]]"]
    draw_curriculum(ROOT / "configs/geoco.yaml", size, tmp_path / "curriculum.png")
    model = build(config.load(ROOT / "configs/geoco.yaml", size).model)
    assert cold == [model.cold_scale]
    assert model.bind(torch.zeros(1, 1, 3, 66, 66), torch.zeros(1, 6, 2)).attention.shape[-1] == 289
    assert model.cold_scale == geometry.compute_uniform_scale(17)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("data", "import", "configs/solids.yaml"), "data.kind is 'solids': only data of kind"),
        (("data", "import", "configs/obj3d.yaml"), "OBJ3D: there is no such folder"),
        (("data", "import", "configs/movi-c.yaml"), "movi_c: no such folder"),
        (("data", "inspect", "configs/obj3d.yaml"), "there is no store here: run geoco data"),
        (("data", "inspect", "tests"), "tests: there is no store here"),
        (("data", "preview", "configs/movi-c.yaml"), "there is no store here: run geoco data"),
        (("train",), "give either a configuration to start a run or --resume RUN"),
        (("train", "--resume", "tests"), "tests: there is no run here, it has no config.yaml"),
        (
            ("train", "--resume", "tests", "--from", "tests"),
            "--resume goes on with a run as it was started, without overrides, --out, --from or",
        ),
        (
            ("train", "configs/geoco.yaml", "--out", "runs/no", "--from", "runs/none"),
            "runs/none: there is no such file or folder: give a run, a checkpoint or its",
        ),
        (("calibrate", "tests"), "tests: there is no finished checkpoint here"),
        (("config", "show", "nothing.yaml"), "nothing.yaml: cannot read this configuration file"),
    ],
)
def test_bad_input_is_one_sentence(arguments: tuple[str, ...], message: str) -> None:
    assert message in run_failing(*arguments)
