"""The kinds of cases: files that are damaged or crafted, and work that is killed half-way."""

import io
import itertools
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import safetensors
import torch
from campaigns.campaign import Case, Kind, LostError
from campaigns.damage import NASTY, damage_bytes, damage_json, damage_yaml, to_text
from helpers import ROOT, TINY_MODEL
from helpers_faults import survives
from helpers_movi import write_movi
from helpers_web import SIZE, encode_image, make_editor, make_frames
from PIL import Image
from safetensors.torch import load_file, save

from geoco import config, media
from geoco.config import Config, MoviSource
from geoco.data import movi, tfrecord
from geoco.data.source import RawVideo
from geoco.data.store import read_index, verify_store
from geoco.data.store_writer import StoreWriter
from geoco.editing import recording
from geoco.models import checkpoints, pretrained
from geoco.models.build import build
from geoco.web import Settings, uploads

CONFIG = Config(model=TINY_MODEL)


# -- weights ---------------------------------------------------------------------------------------


def prepare_weights(folder: Path) -> Case:
    """Bytes of weights: whatever loads must be what was saved."""
    file, data = _write_weights(folder)
    stored = {name: value.clone() for name, value in load_file(file).items()}

    def run(draw: random.Random) -> None:
        damaged = folder / "damaged.safetensors"
        damaged.write_bytes(damage_bytes(draw, data))
        loaded = pretrained.load(damaged).model.state_dict()
        if any(not torch.equal(loaded[name], value) for name, value in stored.items()):
            raise LostError("damaged weights were loaded as if they were whole")

    return run


def prepare_crafted_weights(folder: Path) -> Case:
    """Headers and tensors of someone who knows how the checksum is made."""
    file, _ = _write_weights(folder)
    tensors = {name: value.clone() for name, value in load_file(file).items()}
    with safetensors.safe_open(file, "pt") as opened:
        header = json.loads(opened.metadata()["geoco"])
    del header["checksum"]
    changes: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda old: old * torch.nan,
        lambda old: old.long(),
        lambda old: old.to(torch.complex64),
        lambda old: old.to(torch.bfloat16),
        lambda old: old.to(torch.float8_e4m3fn),
        lambda old: old.reshape(-1),
        lambda old: old.reshape(-1)[:0],
        lambda old: old.double() * 1e300 * 1e9,
        lambda old: torch.zeros(1),
    ]

    def run(draw: random.Random) -> None:
        fields, values = dict(header), dict(tensors)
        match draw.randrange(4):
            case 0:
                fields = damage_json(draw, fields)
            case 1:
                fields["config"] = damage_yaml(draw, fields["config"])
            case 2:
                raw = config.loads(fields["config"]).model_dump(mode="json")
                fields["config"] = json.dumps(damage_json(draw, raw))
            case 3:
                name = draw.choice(list(values))
                values[name] = draw.choice(changes)(values[name])
        if not isinstance(fields, dict):
            fields = {"format": fields}
        text = to_text(draw, {**fields, "checksum": ""})
        try:
            header_again = json.loads(text)
            header_again.pop("checksum")
            checksum = checkpoints._compute_checksum(values, header_again)
            text = json.dumps({**header_again, "checksum": checksum})
            data = save(values, {"geoco": text})
        except (ValueError, UnicodeEncodeError):
            return  # nobody can write that either
        crafted = folder / "crafted.safetensors"
        crafted.write_bytes(data)
        loaded = pretrained.load(crafted)
        if any(not value.isfinite().all() for value in loaded.model.state_dict().values()):
            raise LostError("weights that are not finite were loaded")

    return run


def _write_weights(folder: Path) -> tuple[Path, bytes]:
    torch.manual_seed(0)
    file = folder / "weights.safetensors"
    checkpoints.write_weights(file, 3, CONFIG, build(TINY_MODEL).state_dict())
    return file, file.read_bytes()


# -- texts -----------------------------------------------------------------------------------------


def prepare_yaml(folder: Path) -> Case:
    """Configurations of anyone, as files, as stored texts and as overrides."""
    texts = [file.read_text() for file in sorted((ROOT / "configs").glob("*.yaml"))]
    texts.append(CONFIG.to_yaml())

    def run(draw: random.Random) -> None:
        text = damage_yaml(draw, draw.choice(texts))
        match draw.randrange(3):
            case 0:
                config.loads(text)
            case 1:
                (folder / "x.yaml").write_text(text, errors="replace")
                config.load(folder / "x.yaml")
            case 2:
                line = draw.choice(text.splitlines() or [""])
                config.load(None, [line.strip().replace(": ", "=", 1)])

    return run


def prepare_edit_lists(_: Path) -> Case:
    """Edit lists of anyone, replayed."""
    editor = make_editor()
    frames = make_frames()
    donor = editor.encode(frames[1, 0])
    film = editor.encode_video(frames[0, :2]).move(1, dx=2).resize(0, 1.2)
    scenes = [
        editor.encode(frames[0, 0]).move(1, dx=1).transplant(2, donor, 1),
        film,
        film.frame(1).remove(0),
    ]
    lists = [json.loads(scene.to_json()) for scene in scenes]

    def run(draw: random.Random) -> None:
        chosen = draw.choice(lists)
        if draw.random() < 0.3:
            text = damage_bytes(draw, json.dumps(chosen).encode()).decode(errors="replace")
        else:
            text = to_text(draw, damage_json(draw, chosen))
        uploads.read_edit_list(text.encode(errors="replace"), Settings())
        recording.replay(None, text, editor)

    return run


def prepare_descriptions(folder: Path) -> Case:
    """Small JSON files beside checkpoints, TFRecords and stores."""
    store = _write_store(folder / "store")
    index = json.loads((store / "index.json").read_text())
    info = {"splits": [{"name": "train", "shardLengths": ["1", "2"]}, {"name": "validation"}]}
    features = json.loads(next((ROOT / "tests/data/movi").rglob("features.json")).read_text())
    best = {"step": 3, "value": 0.5}

    def run(draw: random.Random) -> None:
        value, name, read = draw.choice(
            [
                (index, "store/index.json", lambda path: read_index(path.parent)),
                (info, "dataset_info.json", lambda path: movi._read_shard_lengths(path, "train")),
                (features, "features.json", tfrecord.read_features),
                (best, "best.json", lambda path: checkpoints.find_best(path.parent)),
            ]
        )
        text = to_text(draw, damage_json(draw, value))
        if draw.random() < 0.3:
            text = damage_bytes(draw, text.encode()).decode(errors="replace")
        if draw.random() < 0.05:
            text = "[" * 50_000
        (folder / name).write_text(text, errors="replace")
        read(folder / name)

    return run


# -- pictures, videos and data ---------------------------------------------------------------------


def prepare_pictures(folder: Path) -> Case:
    """Pictures and videos of every kind, by the page and by the package."""
    frames = make_frames()[0]
    files = {kind.lower(): encode_image(frames[0], kind) for kind in ("PNG", "JPEG", "BMP", "WEBP")}
    pictures = [Image.fromarray(frame) for frame in frames]
    for kind in ("GIF", "PNG", "TIFF"):
        buffer = io.BytesIO()
        pictures[0].save(buffer, kind, save_all=True, append_images=pictures[1:])
        files[f"many.{kind.lower()}"] = buffer.getvalue()
    media.save_frames(folder / "film.mp4", list(frames))
    files["mp4"] = (folder / "film.mp4").read_bytes()
    settings = Settings()

    def run(draw: random.Random) -> None:
        name = draw.choice(list(files))
        data = damage_bytes(draw, files[name])
        if draw.random() < 0.5:
            uploads.read_upload(data, SIZE, settings)
            return
        path = folder / f"damaged.{name.rpartition('.')[2]}"
        path.write_bytes(data)
        if media.is_video(path):
            for _ in media.iterate_video(path):
                pass
        else:
            media.read_picture(path)

    return run


def prepare_records(folder: Path) -> Case:
    """TFRecords with damage, half of them under checksums that are right again."""
    place = folder / "1.0.0"
    write_movi(place, 16, {"train": 1, "validation": 0})
    file = next(place.glob("*train.tfrecord*"))
    data = file.read_bytes()
    source = MoviSource(path=place)

    def run(draw: random.Random) -> None:
        if draw.random() < 0.5:
            file.write_bytes(damage_bytes(draw, data))
        else:
            content = damage_bytes(draw, data[12:-4])
            file.write_bytes(_frame_record(content))
        for _ in movi.read_videos(source, "train"):
            pass

    return run


def prepare_stores(folder: Path) -> Case:
    """Stores with damage, which a check must find."""
    store = _write_store(folder / "store")
    files = [file for file in sorted(store.iterdir()) if file.suffix in (".u8", ".json")]
    whole = {file: file.read_bytes() for file in files}

    def run(draw: random.Random) -> None:
        for file, data in whole.items():
            file.write_bytes(data)
        file = draw.choice(files)
        damaged = damage_bytes(draw, whole[file])
        file.write_bytes(damaged)
        verify_store(store, lambda *_: None)
        if file.suffix == ".u8" and damaged != whole[file]:
            raise LostError(f"damage in {file.name} was not found")

    return run


def _write_store(path: Path) -> Path:
    random = np.random.default_rng(0)
    with StoreWriter(path, 8, 8, {"crop": "center"}) as writer:
        for number in range(3):
            frames = random.integers(0, 256, (4, 8, 8, 3), dtype=np.uint8)
            masks = random.integers(0, 3, (4, 8, 8), dtype=np.uint8)
            writer.append(RawVideo(f"train/{number}", frames, masks, {"number": number}))
        writer.finish()
    return path


def _frame_record(content: bytes) -> bytes:
    length = len(content).to_bytes(8, "little")
    checks = [
        tfrecord._compute_masked_checksum(part).to_bytes(4, "little") for part in (length, content)
    ]
    return length + checks[0] + content + checks[1]


# -- kills -----------------------------------------------------------------------------------------


def prepare_kills(folder: Path) -> Case:
    """Checkpoints, marks, stores and configurations, killed before the k-th operation on files."""
    place = folder / "checkpoints"
    tensors = {"a": torch.arange(8.0)}

    def save_step(step: int) -> None:
        checkpoints.save(place, step, CONFIG, {"a": tensors["a"] + step}, {"s": torch.tensor(step)})

    def run(draw: random.Random) -> None:
        shutil.rmtree(place, ignore_errors=True)
        first = draw.randrange(1, 5)
        save_step(first)
        finished = first
        for step in range(first, first + draw.randrange(1, 4)):

            def work(step: int = step) -> None:
                save_step(step)
                checkpoints.mark_best(place, step, 1.0)
                checkpoints.prune(place, 1)

            if survives(draw.randrange(40), work):
                finished = step
            checkpoints.sweep(place)
            _check_checkpoints(place, finished)

    return run


def prepare_imports(folder: Path) -> Case:
    """A store whose import is killed again and again, and taken up until it is done."""
    random_numbers = np.random.default_rng(0)
    videos = [
        RawVideo(
            f"train/{number}", random_numbers.integers(0, 256, (3, 8, 8, 3), np.uint8), None, {}
        )
        for number in range(4)
    ]

    def write(path: Path) -> None:
        with StoreWriter(path, 8, 8, {"crop": "center"}) as writer:
            for video in videos[len(writer) :]:
                writer.append(video)
            writer.finish()

    write(folder / "whole")
    expected = {file.name: file.read_bytes() for file in (folder / "whole").iterdir()}

    def run(draw: random.Random) -> None:
        path = folder / "killed"
        for old in folder.glob("killed*"):
            shutil.rmtree(old)
        for attempt in itertools.count():
            limit = 10_000 if attempt == 6 else draw.randrange(60)
            if survives(limit, lambda: write(path)):
                break
            if path.exists():
                break
        # The journal may outlive a store that is whole: its deletion is the last thing of all.
        found = {name: (path / name).read_bytes() for name in expected}
        if found != expected:
            raise LostError("an import that was killed is not what it would have been")

    return run


def _check_checkpoints(place: Path, least: int) -> None:
    newest = checkpoints.find_latest(place)
    if newest is None:
        raise LostError("no checkpoint is left")
    weights = checkpoints.read_weights(newest)
    state = checkpoints.read_state(newest)
    if weights.step < least or weights.step != state.step:
        raise LostError(f"step {least} was finished, and {weights.step} is the last one")
    if not torch.equal(weights.tensors["a"], torch.arange(8.0) + weights.step):
        raise LostError(f"step {weights.step} holds other numbers than were saved")


KINDS = [
    Kind("weights", prepare_weights, 1.5),
    Kind("crafted weights", prepare_crafted_weights, 1.5),
    Kind("configurations", prepare_yaml, 2),
    Kind("edit lists", prepare_edit_lists, 1),
    Kind("descriptions", prepare_descriptions, 2),
    Kind("pictures and videos", prepare_pictures, 2),
    Kind("TFRecords", prepare_records, 1),
    Kind("stores", prepare_stores, 1),
    Kind("kills of checkpoints", prepare_kills, 0.5),
    Kind("kills of imports", prepare_imports, 0.5),
]
assert len(NASTY) > 20
