"""The demo: its pictures against the editor and the generator, its numbers against the protocol."""

import io
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import SMALL_SOLIDS, TINY_MODEL, make_tiny_model
from PIL import Image
from rich.console import Console
from sklearn.metrics import adjusted_rand_score
from typer.testing import CliRunner

from geoco import config, drawing
from geoco.cli.main import app
from geoco.data import SolidsDataset
from geoco.demo import pictures as demo_pictures
from geoco.demo import run
from geoco.demo.pictures import Subject
from geoco.demo.summary import Summary, measure_model
from geoco.editing.editor import Editor, Film, Scene
from geoco.evaluation import GeoCoModel, as_values
from geoco.evaluation.matched import MatchedRecords, record_matched
from geoco.evaluation.windows import Factual, compute_factual
from geoco.models import checkpoints, pretrained
from geoco.solids import Move, Remove, Replace, Scale, render_counterfactuals, render_scenes

SIZE, WINDOWS = 16, 6
SETTINGS = config.Config(model=TINY_MODEL, data=SMALL_SOLIDS)
GENERATED = {"scenes.png", "edits.png", "video.gif"}
OF_A_MODEL = {"gallery.png", "edited.gif", "edits.json", "summary.json"}


@pytest.fixture(scope="module")
def loaded_model() -> pretrained.LoadedModel:
    return pretrained.LoadedModel(
        "tiny", make_tiny_model().model.float().eval(), SETTINGS, 7, (0.05, 1.5)
    )


@pytest.fixture(scope="module")
def blind() -> pretrained.LoadedModel:
    """All slots draw the same: the first owns every pixel."""
    model = make_tiny_model().model.float().eval()
    with torch.no_grad():
        for part in (model.decoder.alpha.weight, model.decoder.alpha.bias):
            part.zero_()
    return pretrained.LoadedModel("blind", model, SETTINGS, 0, (0.05, 1.5))


@pytest.fixture(scope="module")
def dataset(loaded_model: pretrained.LoadedModel) -> SolidsDataset:
    return run.open_scenes(loaded_model, Console(file=io.StringIO()))


@pytest.fixture(scope="module")
def factual(loaded_model: pretrained.LoadedModel, dataset: SolidsDataset) -> Factual:
    return compute_factual(GeoCoModel(loaded_model.model), dataset, 64, WINDOWS)


@pytest.fixture(scope="module")
def records(
    loaded_model: pretrained.LoadedModel, dataset: SolidsDataset, factual: Factual
) -> MatchedRecords:
    return record_matched(GeoCoModel(loaded_model.model), dataset, factual, 64)


@pytest.fixture(scope="module")
def summary(loaded_model: pretrained.LoadedModel, dataset: SolidsDataset) -> Summary:
    return measure_model(loaded_model, dataset, WINDOWS)


@pytest.fixture(scope="module")
def subjects(loaded_model: pretrained.LoadedModel, dataset: SolidsDataset) -> list[Subject]:
    return demo_pictures.choose_subjects(Editor(loaded_model), dataset)


@pytest.fixture(scope="module", autouse=True)
def accept_any_object() -> Iterator[None]:
    """A model without training follows no object well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo_pictures, "LEAST_F1", 0.01)
        yield


@pytest.fixture(scope="module")
def clip(loaded_model: pretrained.LoadedModel, dataset: SolidsDataset) -> demo_pictures.EditedClip:
    return demo_pictures.edit_clip(Editor(loaded_model), dataset, 4)


def place(folder: Path, name: str, loaded_model: pretrained.LoadedModel) -> None:
    """Weights as they ship."""
    tensors = loaded_model.model.state_dict()
    path = checkpoints.save(
        folder / "checkpoints",
        loaded_model.step,
        loaded_model.config,
        tensors,
        {"nothing": torch.zeros(1)},
    )
    (folder / name).mkdir()
    (path / checkpoints.WEIGHTS).rename(folder / name / checkpoints.WEIGHTS)


def by_video(values: np.ndarray, video: np.ndarray) -> float:
    return float(np.mean([values[video == each].mean() for each in np.unique(video)]))


# -- the summary -----------------------------------------------------------------------------------


def test_the_summary_is_the_object_matched_table_of_some_edits(
    summary: Summary, records: MatchedRecords
) -> None:
    objects = list(dict.fromkeys(zip(records.window.tolist(), records.label.tolist(), strict=True)))
    assert summary.objects == len(objects)
    number = np.array(
        [objects.index(key) for key in zip(records.window, records.label, strict=True)]
    )
    commands = {0: np.array([0, 1, 2, 3]), 1: np.array([0, 1, 3, 4]), 2: np.zeros(4)}
    for kind, scores in enumerate((summary.position, summary.scale, summary.transplant)):
        turn = commands[kind][number % 4]
        rows = records.where((records.kind == kind) & (records.command == turn))
        assert scores.edits == len(rows) == len(objects)
        assert scores.unassociated == (~rows.edited).sum()
        assert scores.scored == rows.valid.sum() > 0
        f1 = 100 * rows.f1[rows.valid]
        assert scores.f1.estimate == pytest.approx(by_video(f1, rows.video[rows.valid]))
        exact = by_video(rows.exact_region, rows.video)
        assert scores.psnr.estimate == pytest.approx(exact, abs=1e-6)
        assert scores.psnr.estimate != pytest.approx(scores.psnr_reconstruction.estimate, abs=1e-4)
        assert scores.psnr.low < scores.psnr.estimate < scores.psnr.high


def test_what_leaving_the_picture_as_it_is_would_score(
    summary: Summary, dataset: SolidsDataset, factual: Factual
) -> None:
    """The moves by hand, with a region of shifted and grown masks."""
    assert factual.reference is not None
    values: dict[str, list[tuple[float, str]]] = {"frame": [], "reconstruction": []}
    turn = 0
    for row, labels in enumerate(factual.reference.numpy()):
        for label in range(1, labels.max() + 1):
            mask = labels == label
            if mask.sum() < 10:
                continue
            dx, dy = ((6, 0), (-6, 0), (0, 6), (0, -6))[turn % 4]
            turn += 1
            region = mask | shift_mask(mask, dx, dy)
            for _ in range(2):
                region = np.any([shift_mask(region, *step) for step in STEPS], axis=0)
            edit = (0, Move(int(label) - 1, dx, dy))
            truth = (
                dataset.render_counterfactuals([int(factual.window[row])], [edit]).frames[0] / 255
            )
            for name, image in (("frame", factual.frame / 255), ("reconstruction", factual.image)):
                error = ((image[row].double() - truth.double()) ** 2).mean(0).numpy()[region].mean()
                values[name].append((-10 * np.log10(error), factual.source[row]))
    for name, scores in values.items():
        expected = by_video(*(np.array(part) for part in zip(*scores, strict=True)))
        got = getattr(summary.position, f"psnr_{name}").estimate
        assert got == pytest.approx(expected, rel=1e-5)


STEPS = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))


def shift_mask(mask: np.ndarray, dx: int, dy: int) -> np.ndarray:
    padded = np.pad(mask, 8)
    return np.roll(padded, (dy, dx), (0, 1))[8:-8, 8:-8]


def test_reconstruction_and_segmentation(summary: Summary, factual: Factual) -> None:
    assert (summary.model, summary.step) == ("tiny", 7)
    assert (summary.windows, summary.videos) == (WINDOWS, 4)
    assert factual.reference is not None
    error = ((factual.image - factual.frame / 255) ** 2).double().flatten(1).mean(1)
    assert summary.psnr == pytest.approx(float((-10 * error.log10()).mean()), rel=1e-5)
    scores = []
    for labels, masks in zip(factual.reference.numpy(), factual.masks.numpy(), strict=True):
        inside = labels > 0
        scores.append(adjusted_rand_score(labels[inside], masks.argmax(0)[inside]))
    assert summary.foreground_ari.value == pytest.approx(np.mean(scores))


# -- the gallery -----------------------------------------------------------------------------------


def test_subjects_are_objects_and_the_slots_that_hold_them(
    subjects: list[Subject], dataset: SolidsDataset
) -> None:
    assert [subject.window for subject in subjects] == demo_pictures.choose_clear_windows(dataset)
    assert all(dataset.starts[subject.window % len(dataset.starts)] == 16 for subject in subjects)
    assert any(subject.slot is not None for subject in subjects)
    for subject in subjects:
        clip = dataset[subject.window]
        assert np.array_equal(subject.scene.source, clip.video[0].permute(1, 2, 0).numpy())
        assert clip.masks is not None
        labels, masks = clip.masks[0].numpy(), subject.scene.masks
        objects = [labels == label for label in range(1, labels.max() + 1)]
        # All ways to give each object a slot of its own, where that is possible.
        shared = np.array([[(one & mask).sum() for mask in masks] for one in objects])
        ways = [
            sum(shared[k, slot] for k, slot in enumerate(way) if slot < len(masks))
            for way in itertools.permutations(range(max(len(masks), len(objects))), len(objects))
        ]
        best = max(ways)
        if subject.slot is not None:
            others = np.delete(np.delete(shared, subject.item, 0), subject.slot, 1)
            rest = max(
                sum(others[k, slot] for k, slot in enumerate(way) if slot < others.shape[1])
                for way in itertools.permutations(range(max(others.shape)), len(others))
            )
            assert shared[subject.item, subject.slot] > 0
            assert shared[subject.item, subject.slot] + rest == best
            assert subject.slot != subject.scene.decoded.background


def test_edits_are_those_of_the_editor_and_of_the_generator(
    subjects: list[Subject], dataset: SolidsDataset
) -> None:
    rows = demo_pictures.edit_subjects(subjects, dataset)
    for number, (subject, row) in enumerate(zip(subjects, rows, strict=True)):
        following = (number + 1) % len(subjects)
        donor = subjects[following]
        edits = (
            subject.move,
            Scale(subject.item, 1.5),
            Replace(subject.item, 1, donor.item),
        )
        truth = dataset.render_counterfactuals(
            [subject.window, donor.window], [(0, e) for e in edits]
        )
        assert np.array_equal(np.stack(row.truth), truth.frames.permute(0, 2, 3, 1).numpy())
        if subject.slot is None:
            assert row.edited == ("no slot holds this object",) * 3
            continue
        moved, enlarged, swapped = row.edited
        assert isinstance(moved, Scene)
        again = subject.scene.move(subject.slot, subject.move.dx, subject.move.dy)
        assert np.array_equal(moved.image, again.image)
        if isinstance(enlarged, Scene):
            assert np.array_equal(enlarged.image, subject.scene.resize(subject.slot, 1.5).image)
        else:
            assert "would get scale" in enlarged
        if donor.slot is not None:
            assert isinstance(swapped, Scene)
            given = subject.scene.transplant(subject.slot, donor.scene, donor.slot)
            assert np.array_equal(swapped.image, given.image)


def test_the_gallery_shows_them_in_their_places(
    subjects: list[Subject], dataset: SolidsDataset
) -> None:
    rows = demo_pictures.edit_subjects(subjects, dataset)
    picture = demo_pictures.compose_gallery(subjects, rows)
    zoom, side = 12, 192

    def cell(row: int, column: int) -> np.ndarray:
        groups = sum(column >= first for first in (3, 5, 7))
        left = 16 + 112 + column * (side + 6) + groups * (28 - 6)
        top = 16 + 2 * 28 + row * (side + 6)
        return picture[top : top + side, left : left + side]

    for number, (subject, row) in enumerate(zip(subjects, rows, strict=True)):
        assert np.array_equal(cell(number, 1), drawing.magnify(subject.scene.image, zoom))
        assert np.array_equal(cell(number, 2), subject.scene.draw_outlines(zoom))
        for kind, (edited, truth) in enumerate(zip(row.edited, row.truth, strict=True)):
            assert np.array_equal(cell(number, 4 + 2 * kind), drawing.magnify(truth, zoom))
            if isinstance(edited, Scene):
                shown = cell(number, 3 + 2 * kind)
                assert np.array_equal(shown, drawing.magnify(edited.image, zoom))
        framed = cell(number, 0) != drawing.magnify(subject.scene.source, zoom)
        assert 0 < framed.any(-1).mean() < 0.1  # a thin line around the object
    assert (picture[:16] == 255).all()
    assert (picture[16:72, 128:] < 128).any()  # headings


def test_a_free_move_hides_least() -> None:
    objects = torch.zeros(2, 64, 64, dtype=torch.bool)
    objects[0, 2:8, 20:26] = True  # at the top
    objects[1, 2:8, 32:38] = True  # and its neighbour on the right
    assert demo_pictures.choose_free_move(objects, 0, 10 / 64) == (-10, 0)
    objects[1, 2:8, 8:38] = True
    objects[1, 2:8, 20:26] = False
    assert demo_pictures.choose_free_move(objects, 0, 10 / 64) == (0, 10)


# -- the clip --------------------------------------------------------------------------------------


def test_the_clip_is_an_episode_edited_through_all_frames(
    clip: demo_pictures.EditedClip, dataset: SolidsDataset
) -> None:
    film, length = clip.film, SMALL_SOLIDS.frames
    assert clip.title == "episode 1"  # window 4 of three to an episode
    assert clip.numbers == tuple(range(length))
    assert len(film) == length
    scenes = dataset.extract_scenes(np.full(length, 1), np.arange(length))
    still = render_counterfactuals(
        scenes, dataset.canvas, [(k, Move(0, 0, 0)) for k in range(length)]
    )
    assert np.array_equal(film.frames, still.frames.permute(0, 2, 3, 1).numpy())
    move, resize = film.history
    slot = move.slot  # type: ignore[union-attr]
    encoded = film.editor.encode_video(film.frames).decoded
    assert slot == resize.slot != encoded.background  # type: ignore[union-attr]
    before = encoded.slots
    after = film.decoded.slots
    others = [index for index in range(TINY_MODEL.slots.count) if index != slot]
    assert torch.equal(after.position[:, others], before.position[:, others])
    pixels = (after.position - before.position)[:, slot] * (SIZE - 1) / 2
    goal = pixels[-1].round()
    assert goal.abs().sum() == round(14 / 64 * SIZE)
    np.testing.assert_allclose(pixels[9], goal, atol=1e-4)
    np.testing.assert_allclose(pixels[3], goal / 3, atol=1e-4)
    factor = (after.scale / before.scale)[:, slot]
    np.testing.assert_allclose(factor[[0, 9, 14, 19]], [1, 1, 1.4**0.5, 1.4], rtol=1e-4)


def test_a_clip_is_edited_only_where_a_slot_follows_an_object(
    clip: demo_pictures.EditedClip,
    loaded_model: pretrained.LoadedModel,
    dataset: SolidsDataset,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frames = dataset.extract_scenes(np.full(20, 1), np.arange(20))
    labels = render_scenes(frames, dataset.canvas).masks.numpy()
    encoded = Editor(loaded_model).encode_video(clip.film.frames)
    slot = clip.film.history[0].slot  # type: ignore[union-attr]
    mask = encoded.masks[:, slot]
    scores = []
    for label in range(1, labels.max() + 1):
        shared = (mask & (labels == label)).sum()
        scores.append(2 * shared / (mask.sum() + (labels == label).sum()))
    assert max(scores) > 0.01
    monkeypatch.setattr(demo_pictures, "LEAST_F1", 0.99)
    other = demo_pictures.edit_clip(Editor(loaded_model), dataset, 4)
    assert other.film.history == ()
    assert np.array_equal(other.film.images, encoded.images)


def test_the_clip_shows_original_and_edited(clip: demo_pictures.EditedClip) -> None:
    pictures = demo_pictures.draw_clip(clip)
    assert len(pictures) == len(clip.film)
    zoom, side = 20, 320
    for picture, before, after in zip(pictures, clip.film.frames, clip.film.images, strict=True):
        lower = picture[28 + 4 : -4]
        assert np.array_equal(lower[:, 4 : 4 + side], drawing.magnify(before, zoom))
        assert np.array_equal(lower[:, 8 + side : -4], drawing.magnify(after, zoom))


# -- the whole -------------------------------------------------------------------------------------


def test_the_demo_with_a_shipped_model(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    loaded_model: pretrained.LoadedModel,
    dataset: SolidsDataset,
) -> None:
    place(tmp_path, "geoco-solids-tiny", loaded_model)
    monkeypatch.setattr(pretrained, "_SHIPPED", (tmp_path,))
    generator: list[Path] = []  # shown elsewhere
    monkeypatch.setattr(run, "show_generator", lambda out, console: generator.append(out))
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["demo", "--out", str(out)], catch_exceptions=False)
    assert done.exit_code == 0
    assert generator == [out]
    assert {path.name for path in out.iterdir()} == OF_A_MODEL
    text = " ".join(done.stdout.split())
    assert "on the CPU" in text
    assert "model: geoco-solids-tiny, step 7" in text
    assert "geoco serve geoco-solids-tiny and open http://127.0.0.1:8000" in text

    values = json.loads((out / "summary.json").read_text())
    expected = as_values(measure_model(loaded_model, dataset)) | {"model": "geoco-solids-tiny"}
    assert values == expected
    assert values["windows"] == 12  # all there are
    assert f"{values['position']['psnr']['estimate']:.1f}" in text

    editor = Editor.load("geoco-solids-tiny")
    film = Film.replay((out / "edits.json").read_text(), editor)
    again = demo_pictures.edit_clip(
        editor, dataset, demo_pictures.choose_clear_windows(dataset)[0]
    ).film
    assert film.history == again.history
    assert np.array_equal(film.images, again.images)
    with Image.open(out / "edited.gif") as image:
        assert image.n_frames == len(film) == SMALL_SOLIDS.frames  # type: ignore[attr-defined]
        assert f"{image.n_frames} frames" in text  # type: ignore[attr-defined]
        for number in (0, 10, 19):
            image.seek(number)
            shown = np.asarray(image.convert("RGB"))[32:-4, 328:-4].astype(float)
            # An animation has 256 colours.
            assert np.abs(shown - drawing.magnify(film.images[number], 20)).mean() < 4


def test_the_demo_of_a_named_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(run, "run_demo", lambda *given: asked.append((given[0], given[2])))
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path), "--model", "runs/mine"])
    assert done.exit_code == 0
    assert asked == [(tmp_path, "runs/mine")]


def test_the_demo_without_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrained, "_SHIPPED", ())
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)], catch_exceptions=False)
    assert done.exit_code == 0
    assert "No trained model ships with this version: `geoco train" in done.stdout
    assert "serve" not in done.stdout
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert set(sizes) == GENERATED
    assert min(sizes.values()) > 10_000


def test_a_model_that_finds_nothing(
    tmp_path: Path, blind: pretrained.LoadedModel, dataset: SolidsDataset
) -> None:
    console = Console(file=io.StringIO(), width=200)
    run.show_model(blind, tmp_path, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert text.count("not moved or enlarged or transplanted: no slot holds this object") == 4
    assert "not edited, because no slot follows an object" in text
    assert {path.name for path in tmp_path.iterdir()} == OF_A_MODEL
    film = Film.replay((tmp_path / "edits.json").read_text(), Editor(blind))
    assert film.history == ()
    values = json.loads((tmp_path / "summary.json").read_text())
    for kind in ("position", "scale", "transplant"):
        assert values[kind]["scored"] == 0
        assert values[kind]["f1"]["estimate"] is None
        assert values[kind]["psnr"]["estimate"] > 0
    assert "–" in text


def test_which_model_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    for names, wanted in (
        (("a", "geoco-solids-b", "geoco-solids-c"), "geoco-solids-b"),
        (("a", "b"), "a"),
        ((), None),
    ):
        shipped = dict.fromkeys(names, Path())
        monkeypatch.setattr(pretrained, "list_shipped", lambda shipped=shipped: shipped)
        assert run.find_preferred() == wanted


def test_a_model_of_other_data_is_shown_embedded_scenes_of_its_size(
    loaded_model: pretrained.LoadedModel,
) -> None:
    data = config.StoreConfig(path=Path("nowhere"), height=SIZE, width=SIZE, source=None)
    other = pretrained.LoadedModel(
        "other", loaded_model.model, config.Config(model=TINY_MODEL, data=data), 0, (0, 1)
    )
    console = Console(file=io.StringIO())
    assert run.open_scenes(other, console).frame_size == (SIZE, SIZE)
    assert "other data" in console.file.getvalue()  # type: ignore[attr-defined]


def test_the_generators_edits_are_of_the_scene_beside_them(tmp_path: Path) -> None:
    dataset = SolidsDataset(config.SolidsConfig(), "val")
    scenes = dataset.extract_scenes(np.arange(4), np.full(4, 14))
    with Image.open(run.draw_edits(tmp_path, dataset, scenes)) as image:
        sheet = np.asarray(image)
    cells = [sheet[4:-4, 4 + k * 196 : 196 + k * 196] for k in range(7)]
    edits = (Move(1, 0, 0), Replace(1, 1, 1), Remove(1))
    expected = render_counterfactuals(scenes, dataset.canvas, [(3, edit) for edit in edits]).frames
    for shown, frame in zip((cells[0], cells[5], cells[6]), expected, strict=True):
        assert np.array_equal(shown, drawing.magnify(frame.permute(1, 2, 0).numpy(), 3))
