"""`geoco slots`, `edit`, `eval` and `compare` as a user runs them, with weights of a tiny model."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import SMALL_SOLIDS, TINY_MODEL, make_small_solids, make_tiny_model, run_geoco
from PIL import Image

from geoco import config, drawing, media
from geoco.editing.editor import Editor, Film, Scene
from geoco.errors import GeocoError
from geoco.models import checkpoints, pretrained
from geoco.models.reconstruction_quality import QualityReference


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = config.Config(model=TINY_MODEL, data=SMALL_SOLIDS)
    tensors = make_tiny_model().model.float().state_dict()
    return checkpoints.save(
        tmp_path_factory.mktemp("run") / "checkpoints",
        7,
        settings,
        tensors,
        {"nothing": torch.zeros(1)},
        {"trained scales": "0.05 1.5"},
    )


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    frames = make_small_solids().batch([0, 3]).video[:, 0].permute(0, 2, 3, 1).numpy()
    for name, frame in zip(("frame", "donor"), frames, strict=True):
        Image.fromarray(frame).save(tmp_path / f"{name}.png")
    Image.fromarray(frames[0]).save(
        tmp_path / "film.gif", save_all=True, append_images=[Image.fromarray(frames[1])]
    )
    return tmp_path


def test_slots(weights: Path, pictures: Path) -> None:
    done = run_geoco("slots", pictures / "frame.png", "--model", weights)
    assert done.returncode == 0, done.stderr
    scene = Editor.load(weights).encode(pictures / "frame.png")
    for slot in scene.slots:
        assert f"{slot.position[0]:.3f}" in done.stdout
        assert f" {slot.area} " in done.stdout
    assert "background" in done.stdout
    drawn = np.asarray(Image.open(pictures / "frame-slots.png"))
    # The original beside what the model draws, with outlines.
    original = scene.source.repeat(32, 0).repeat(32, 1)
    expected = drawing.compose_sheet([[original, scene.draw_outlines(zoom=32)]])
    assert np.array_equal(drawn, expected)
    assert f"PSNR {scene.quality.psnr:.1f} dB; what is usual for this model was not" in done.stdout


def test_slots_of_a_video_are_those_of_its_first_frame(weights: Path, pictures: Path) -> None:
    done = run_geoco("slots", pictures / "film.gif", "--model", weights)
    assert done.returncode == 0, done.stderr
    film = Editor.load(weights).encode_video(pictures / "film.gif")
    drawn = np.asarray(Image.open(pictures / "film-slots.png"))
    assert np.array_equal(drawn[4:-4, -516:-4], film.frame(0).draw_outlines(zoom=32))


def test_a_picture_of_another_kind_is_said_in_a_sentence(weights: Path, pictures: Path) -> None:
    reference = QualityReference.from_psnr([90.0, 91.0], "made up")
    file = weights / "quality.json"
    file.write_text(reference.to_json())
    film, out, record = (pictures / name for name in ("film.gif", "out.png", "edits.json"))
    try:
        options = ("--model", weights)
        edit = ("edit", pictures / "frame.png", "--remove", 1, "-o", out, "--record", record)
        for command in (
            ("slots", pictures / "frame.png", *options),
            (*edit, *options),
            ("replay", record, "-o", out),
        ):
            done = run_geoco(*map(str, command))
            assert done.returncode == 0, done.stderr
            said = "does not know pictures of this kind (PSNR "
            assert done.stdout.count(said) == 1
            assert "no shipped model does: train one on your own pictures" in done.stdout
        done = run_geoco("edit", film, "--remove", "1", "-o", pictures / "out.gif", *options)
        assert "does not know videos of this kind" in done.stdout
    finally:
        file.unlink()


def test_slots_of_a_video_that_is_too_long_to_edit(weights: Path, tmp_path: Path) -> None:
    frames = [Image.new("L", (16, 16), number % 256) for number in range(301)]
    frames[0].save(tmp_path / "long.webp", save_all=True, append_images=frames[1:], lossless=True)
    done = run_geoco("slots", "long.webp", "-o", "out.png", "--model", weights, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.png").exists()
    done = run_geoco("edit", "long.webp", "--remove", "1", "-o", "out.gif", "--model", weights,
                     cwd=tmp_path)  # fmt: skip
    assert done.returncode == 2
    assert "long.webp: the video has more than 300 frames: cut it" in done.stderr
    assert not (tmp_path / "out.gif").exists()


def test_a_transparent_picture_and_a_jpeg_out(weights: Path, pictures: Path) -> None:
    clear = Image.open(pictures / "frame.png").convert("RGBA")
    clear.putalpha(Image.new("L", clear.size, 0))
    clear.save(pictures / "clear.png")
    out = pictures / "out.jpg"
    done = run_geoco("edit", "clear.png", "--remove", "1", "-o", out, "--model", weights,
                     cwd=pictures)  # fmt: skip
    assert done.returncode == 0, done.stderr
    white = np.full((16, 16, 3), 255, np.uint8)
    expected = Editor.load(weights).encode(white).remove(1).image
    with Image.open(out) as image:
        assert image.format == "JPEG"
        assert np.abs(np.asarray(image).astype(int) - expected).mean() < 4


def test_edit_does_what_python_does(weights: Path, pictures: Path) -> None:
    out, record = pictures / "out.png", pictures / "edits.json"
    done = run_geoco(
        "edit", pictures / "frame.png", "--move", "2:3,-1", "--resize", "1:1.2",
        "--transplant", f"0:{pictures / 'donor.png'}#3", "--remove", "3",
        "-o", out, "--model", weights, "--record", record,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    editor = Editor.load(weights)
    scene = editor.encode(pictures / "frame.png")
    donor = editor.encode(pictures / "donor.png")
    expected = scene.move(2, 3, -1).resize(1, 1.2).transplant(0, donor, 3).remove(3)
    assert np.array_equal(np.asarray(Image.open(out)), expected.image)
    again = Scene.replay(record.read_text(), editor)
    assert np.array_equal(again.image, expected.image)
    replayed = pictures / "again.png"
    done = run_geoco("replay", record, "-o", replayed)
    assert done.returncode == 0, done.stderr
    assert np.array_equal(np.asarray(Image.open(replayed)), expected.image)


def test_edit_of_a_video(weights: Path, pictures: Path) -> None:
    out = pictures / "frames"
    done = run_geoco(
        "edit", pictures / "film.gif", "--move", "1:2,0", "-o", out, "--model", weights,
        "--record", pictures / "edits.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    film = Editor.load(weights).encode_video(pictures / "film.gif").move(1, 2, 0)
    assert isinstance(film, Film)
    assert len(film) == 2
    for number, image in enumerate(film.images):
        assert np.array_equal(np.asarray(Image.open(out / f"{number:05d}.png")), image)
    assert "scene = scene.move(1, dx=2.0)" in (pictures / "edits.py").read_text()


def test_donors_from_videos(weights: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    editor = Editor.load(weights)
    film = editor.encode_video(pictures / "film.gif")
    scene = editor.encode(pictures / "frame.png")
    first = editor.encode(pictures / "film.gif")
    for source, out, expected in (
        ("frame.png", "out.png", scene.transplant(1, first, 2)),
        ("film.gif", "out", film.transplant(1, film, 2)),
    ):
        done = run_geoco(
            "edit", source, "--transplant", "1:film.gif#2", "-o", out, "--model", weights,
            "--record", "e.py", cwd=pictures,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        pixels = expected.images if isinstance(expected, Film) else expected.image[None]
        read = [media.read_picture(pictures / out)] if out == "out.png" else None
        shown = np.stack(read) if read else media.read_video(pictures / out)
        assert np.array_equal(shown, pixels)
    script = pictures / "e.py"
    scope: dict[str, object] = {"__file__": str(script)}
    exec(script.read_text(), scope)
    again = scope["scene"]
    assert isinstance(again, Film)
    assert np.array_equal(again.images, film.transplant(1, film, 2).images)


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "cannot read this"), (b"{}", "edit list"), (b"\xff\xfe", "cannot read this")],
)
def test_bad_edit_lists(weights: Path, tmp_path: Path, content: bytes | None, said: str) -> None:
    if content is not None:
        (tmp_path / "edits.json").write_bytes(content)
    done = run_geoco("replay", "edits.json", "-o", "out.png", "--model", weights, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out.png").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["frame.png", "--move", "9:1,1"], "there is no slot 9"),
        (["frame.png", "--move", "1"], "--move 1: expected SLOT:DX,DY"),
        (["frame.png", "--resize", "1:big"], "--resize 1:big: expected SLOT:FACTOR"),
        (["frame.png", "--resize", "1:-2"], "greater than 0"),
        (["frame.png", "--transplant", "0:nothing.png#1"], "nothing.png"),
        (["frame.png", "--transplant", "0:donor.png"], "expected SLOT:FILE#SLOT"),
        (["frame.png"], "nothing to do"),
        (["frame.png", "--remove", "1", "--record", "e.txt"], "expected a .json or a .py file"),
        (["frame.png", "--remove", "1", "--record", "text.png/e.py"], "text.png is no folder"),
        (["frame.png", "--remove", "1", "--seed", "-1"], "seed -1: expected a whole number from 0"),
        (["frame.png", "--remove", "1", "--seed", "1" + 20 * "0"], "expected a whole number from"),
        (["film.gif", "--remove", "1"], "a video is saved as .mp4, .gif or a folder"),
        (["nothing.png", "--remove", "1"], "nothing.png: there is no such file"),
        (["text.png", "--remove", "1"], "not an image"),
    ],
)
def test_bad_edits(weights: Path, pictures: Path, arguments: list[str], said: str) -> None:
    (pictures / "text.png").write_text("hello")
    done = run_geoco("edit", *arguments, "-o", "out.png", "--model", weights, cwd=pictures)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (pictures / "out.png").exists()


def test_unknown_models(pictures: Path) -> None:
    with pytest.raises(GeocoError, match="there is no such model"):
        pretrained.load("nothing-of-that-name")
    with pytest.raises(GeocoError, match="PyTorch finds none here: expected cpu, or cuda"):
        pretrained.load("nothing", "tpu")
    with pytest.raises(GeocoError, match="not a safetensors file"):
        pretrained.load(pictures / "frame.png")


def test_eval_and_compare(weights: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        done = run_geoco(
            "eval", weights, "--windows", "4", "--tables", "editing,matched", "--no-figures",
            "--out", tmp_path / name,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert "measured here" in (tmp_path / "one" / "tables.md").read_text()
    done = run_geoco("compare", tmp_path / "one", tmp_path / "two", "--out", tmp_path / "both")
    assert done.returncode == 0, done.stderr
    comparison = json.loads((tmp_path / "both" / "comparison.json").read_text())["values"]
    # Twice the same model: every difference is nothing.
    assert comparison["differences"]
    assert all(one["value"]["estimate"] == 0 for one in comparison["differences"])
    assert (tmp_path / "both" / "figures" / "comparison-response.png").exists()
    done = run_geoco("compare", tmp_path / "one", tmp_path)
    assert done.returncode == 2
    assert "there are no results here" in done.stderr


def test_eval_of_other_data_under_another_name(weights: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("data: {seed: 7, frames: 20, height: 16, width: 16, supersample: 1}\n")
    for more, said in (((), f"{weights.parents[1].name}, step 7"), (("--name", "mine"), "mine")):
        out = tmp_path / said
        done = run_geoco(
            "eval", weights, "data.episodes.val=3", "--data", other, "--windows", "2", "--tables",
            "factual", "--no-figures", "--tile", "2", "--out", out, *more,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        about = json.loads((out / "factual.json").read_text())["population"]
        assert about["model"] == said
        assert about["data"] == "solids, val split: 3 videos of 20 frames, 16 x 16, seed 7"
    done = run_geoco("eval", weights, "model.slots.count=3", "--out", tmp_path / "no")
    assert done.returncode == 2
    assert "only the data can differ here" in done.stderr
    assert not (tmp_path / "no").exists()
