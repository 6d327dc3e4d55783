"""What is said of pictures that a model does not know, with models whose references are made up."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers_web import make_editor, make_frames

from geoco.editing import advice
from geoco.editing.advice import describe_doubt
from geoco.editing.editor import Editor, Scene
from geoco.metrics.rgb import psnr
from geoco.models import pretrained
from geoco.models.reconstruction_quality import QualityReference


def make_reference(lowest: float, step: float = 1.0) -> QualityReference:
    return QualityReference("made up", 100, tuple(lowest + step * k for k in range(-1, 8)))


@pytest.fixture
def editor() -> Editor:
    return make_editor()


@pytest.fixture(scope="module")
def frames() -> np.ndarray:
    return make_frames()


def ship(monkeypatch: pytest.MonkeyPatch, **others: Editor | None) -> None:
    """Have these models come with the package; None is one that does not obey."""
    monkeypatch.setattr(pretrained, "list_shipped", lambda: {name: Path(name) for name in others})
    monkeypatch.setattr(advice, "_load_editor", others.__getitem__)


def test_quality_is_of_the_picture_before_any_edit(editor: Editor, frames: np.ndarray) -> None:
    scene = editor.encode(frames[0, 0])
    expected = psnr(scene.decoded.image, torch.tensor(scene.source / 255).permute(2, 0, 1)[None])
    assert scene.quality.psnr == pytest.approx(float(expected[0]), abs=1e-4)
    removed = scene.remove(scene.decoded.background)
    assert removed.quality == scene.quality
    assert Scene.replay(removed.to_json(), editor).quality.psnr == scene.quality.psnr


def test_quality_of_a_film(editor: Editor, frames: np.ndarray) -> None:
    film = editor.encode_video(frames[0])
    values = list(film.psnr)
    assert len(set(values)) == 6
    quality = film.quality
    assert quality.worst.psnr == min(values) == values[quality.worst_frame]
    assert quality.median.psnr == sorted(values)[2]
    assert film.frame(4).quality.psnr == values[4]
    assert film.remove(1).quality == quality


def test_nothing_is_said_without_a_reference_or_a_doubt(
    editor: Editor, frames: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(monkeypatch)
    scene = editor.encode(frames[0, 0])
    assert scene.quality.reference is None
    assert describe_doubt(scene) is None
    editor.quality_reference = make_reference(scene.quality.psnr - 6)
    assert scene.quality.rank > 0.05
    assert describe_doubt(scene) is None


def test_a_picture_that_no_model_knows(
    editor: Editor, frames: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_editor()
    ship(monkeypatch, tiny=editor, other=other, disobedient=None)
    scene, film = editor.encode(frames[0, 0]), editor.encode_video(frames[0])
    editor.quality_reference = other.quality_reference = make_reference(90)
    own = f"PSNR {scene.quality.psnr:.1f} dB, 90.0 or more where it does"
    assert describe_doubt(scene) == (
        f"the model tiny does not know pictures of this kind ({own}); no shipped model does: "
        "train one on your own pictures, see docs/own-videos.md"
    )
    assert "does not know videos of this kind" in str(describe_doubt(film))


def test_a_model_that_knows_the_picture_is_named(
    editor: Editor, frames: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_editor()
    ship(monkeypatch, tiny=editor, other=other)
    scene = editor.encode(frames[0, 0])
    at = scene.quality.psnr
    encode = Editor.encode

    def encode_better(self: Editor, picture: object, seed: int) -> Scene:
        found = encode(self, picture, seed)
        return replace(found, psnr=(found.psnr[0] + 3,)) if self is other else found

    monkeypatch.setattr(Editor, "encode", encode_better)
    editor.quality_reference, other.quality_reference = make_reference(90), make_reference(at - 9)
    assert str(describe_doubt(scene)).endswith(f"; other (PSNR {at + 3:.1f} dB) does")
    film = editor.encode_video(frames[0])
    assert " does not know videos" in str(describe_doubt(film))
    # Known to both, here among the worst: only one that has it among its usual ones is named.
    editor.quality_reference = make_reference(at - 0.5)
    assert str(describe_doubt(scene)).endswith(f"other (PSNR {at + 3:.1f} dB) fits it better")
    assert "worse than 99." in str(describe_doubt(scene))
    other.quality_reference = make_reference(at + 2.5)
    assert describe_doubt(scene) is None
    # One that is hardly better is not.
    other.quality_reference = make_reference(at - 9)
    monkeypatch.setattr(advice, "CLEARLY_BETTER", 3.5)
    assert describe_doubt(scene) is None


def test_shipped_models_know_solids_and_nothing_else(frames: np.ndarray) -> None:
    editor = Editor.load("geoco-solids")
    known = editor.encode(Path(__file__).parents[2] / "docs/images/frame.png")
    assert known.quality.is_known
    assert describe_doubt(known) is None
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    for picture in (noise, np.full((64, 64, 3), 128, np.uint8), 255 - known.source):
        assert editor.encode(picture).quality.is_known is False
    assert "no shipped model does" in str(describe_doubt(editor.encode(noise)))


@pytest.mark.parametrize(
    ("name", "obeys"),
    [("geoco-solids", True), ("geoco-solids-cycles", True), ("isa-solids", False)],
)
def test_models_that_do_not_obey_are_not_named(name: str, obeys: bool) -> None:
    loaded = pretrained.load(name)
    assert loaded.quality is not None
    assert (advice._load_editor(name) is not None) is obeys
