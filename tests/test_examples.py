"""The examples do what they say."""

import importlib.util
import io
import json
import subprocess
import sys
from itertools import islice
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from helpers import make_tiny_model
from PIL import Image

from geoco import config
from geoco.data import SolidsDataset, StoreDataset
from geoco.data.source import RawVideo
from geoco.data.store import verify_store
from geoco.data.store_writer import StoreWriter
from geoco.errors import GeocoError
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


# -- MOVi-like clips -------------------------------------------------------------------------------

SHEET = (3, 8)  # rows and columns of frames
REAL = ROOT.parent / "shared" / "data"  # where the real files are, if they are


def load_script(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    script = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(script)
    return script


def paste_sheet(frames: np.ndarray, kind: str, **options: int) -> bytes:
    """A clip's frames as one picture, each pasted where it belongs."""
    height, width = frames.shape[1:3]
    sheet = Image.new("L" if frames.ndim == 3 else "RGB", (SHEET[1] * width, SHEET[0] * height))
    for number, frame in enumerate(frames):
        row, column = divmod(number, SHEET[1])
        sheet.paste(Image.fromarray(frame), (column * width, row * height))
    buffer = io.BytesIO()
    sheet.save(buffer, kind, **options)
    return buffer.getvalue()


def join_sheets(sheets: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    ends = np.cumsum([0, *map(len, sheets)]).astype(np.int64)
    return np.frombuffer(b"".join(sheets), np.uint8), ends


def pack_clips(path: Path, names: list[int], masks: bool) -> tuple[list[bytes], np.ndarray]:
    """A file in the form of the real ones, of 8 x 16 pixels; its JPEG sheets and its masks."""
    random = np.random.default_rng(names[0])
    coarse = random.integers(0, 256, (len(names), 24, 1, 2, 3), np.uint8)
    sheets = [paste_sheet(c.repeat(8, 1).repeat(8, 2), "jpeg", subsampling=0) for c in coarse]
    labels = random.integers(0, 11, (len(names), 24, 16, 32), np.uint8)
    packed = dict(zip(("sheets", "offsets"), join_sheets(sheets), strict=True))
    if masks:
        pictures = join_sheets([paste_sheet(label, "png") for label in labels])
        packed |= zip(("mask_sheets", "mask_offsets"), pictures, strict=True)
    np.savez(path, names=np.array(names), **packed)
    return sheets, labels


def test_movi_like_clips_become_a_store(tmp_path: Path) -> None:
    sheets = pack_clips(tmp_path / "movi_like_train_0.npz", [4, 9], False)[0]
    sheets += pack_clips(tmp_path / "movi_like_train_1.npz", [20], False)[0]
    labels = pack_clips(tmp_path / "movi_like_val.npz", [100, 101], True)[1]
    (tmp_path / "movi_like.npz").write_bytes(b"of no split")
    command = ("store_from_movi_like.py", tmp_path, "stores/movi-like")
    for _ in range(2):  # the second time there is nothing to do
        said = run(*command, cwd=tmp_path)
        assert (
            said == "wrote stores/movi-like/train: 3 videos\nwrote stores/movi-like/val: 2 videos\n"
        )
    store = config.StoreConfig(
        path=tmp_path / "stores" / "movi-like",
        height=8,
        width=16,
        window=config.WindowConfig(length=24),
    )
    train, val = StoreDataset(store, "train"), StoreDataset(store, "val")
    assert train.sources == tuple(f"movi_like/train/{seed}" for seed in (4, 9, 20))
    for clip, sheet in zip(train, sheets, strict=True):
        picture = Image.open(io.BytesIO(sheet))
        assert clip.masks is None
        for number, frame in enumerate(clip.video):
            row, column = divmod(number, 8)
            expected = picture.crop((16 * column, 8 * row, 16 * column + 16, 8 * row + 8))
            np.testing.assert_array_equal(frame.permute(1, 2, 0).numpy(), np.asarray(expected))
    assert val.sources == ("movi_like/val/100", "movi_like/val/101")
    np.testing.assert_array_equal(val.batch([0, 1]).masks, labels)
    for split in ("train", "val"):
        verify_store(store.path / split, lambda done, total: None)
    # Another file in the folder is another dataset.
    pack_clips(tmp_path / "movi_like_train_2.npz", [30], False)
    with pytest.raises(AssertionError, match=r"train: already imported with other settings"):
        run(*command, cwd=tmp_path)


def test_a_store_of_movi_like_clips_goes_on_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, names in enumerate(([4, 9], [20, 21])):
        pack_clips(tmp_path / f"movi_like_train_{number}.npz", names, True)
    files, script = sorted(tmp_path.glob("*.npz")), load_script("store_from_movi_like")
    script.write_split(files, "train", tmp_path / "whole")
    append, appended = StoreWriter.append, list[str]()

    def stop_at_the_fourth(writer: StoreWriter, video: RawVideo) -> None:
        if len(appended) == 3:
            raise KeyboardInterrupt
        appended.append(video.source)
        append(writer, video)

    monkeypatch.setattr(StoreWriter, "append", stop_at_the_fourth)
    with pytest.raises(KeyboardInterrupt):
        script.write_split(files, "train", tmp_path / "train")
    monkeypatch.undo()
    swapped = tmp_path / "movi_like_train_1.npz"
    kept = swapped.read_bytes()
    pack_clips(swapped, [21, 20], True)
    with pytest.raises(GeocoError, match=r"its files have changed: delete .*train.partial and run"):
        script.write_split(files, "train", tmp_path / "train")
    swapped.write_bytes(kept)
    script.write_split(files, "train", tmp_path / "train")
    assert appended == ["movi_like/train/4", "movi_like/train/9", "movi_like/train/20"]
    for name in ("frames.u8", "masks.u8", "index.json"):
        assert (tmp_path / "train" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.skipif(not (REAL / "movi_like_val.npz").exists(), reason="the clips are not here")
def test_the_real_movi_like_clips() -> None:
    script = load_script("store_from_movi_like")
    for video in islice(script.read_clips([REAL / "movi_like_val.npz"], "val", 100), 3):
        assert video.frames.shape == (24, 64, 64, 3)
        assert video.masks.shape == (24, 128, 128)
        assert 0 < video.masks.max() <= 10
        # Frames that follow each other are alike, across the ends of rows, too.
        frames, masks = video.frames.astype(float), video.masks
        near = np.abs(np.diff(frames, axis=0)).mean((1, 2, 3))
        far = np.abs(frames[12:] - frames[:12]).mean()
        assert near.mean() < far
        assert near[[7, 15]].mean() < 2 * near.mean()
        # Where objects begin frames change, so masks and frames show the same.
        edge = (np.diff(masks.astype(int), axis=2)[:, ::2, 1::2] != 0)[:, :, :63]
        step = np.abs(np.diff(frames, axis=2)).mean(-1)
        assert step[edge].mean() > 1.5 * step[~edge].mean()
