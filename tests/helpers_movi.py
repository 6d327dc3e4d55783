"""Small MOVi-C datasets of any size, in the records that TensorFlow Datasets wrote for the fixture.

Each record is one of the fixture's with other pictures, framed by code that is not ours.
"""

import io
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from helpers import ROOT
from PIL import Image
from tfrecord import example_pb2
from tfrecord.writer import TFRecordWriter

FIXTURE = ROOT / "tests" / "data" / "movi" / "movi_c" / "tiny" / "1.0.0"
FRAMES, FIXTURE_SIZE = 24, (12, 16)
LEFT_OUT = ("forward_flow", "backward_flow", "depth", "normal", "object_coordinates")


def draw_clip(number: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Three discs that cross a floor that becomes brighter: frames and masks of a video."""
    time, row, column = (
        np.mgrid[0:FRAMES, 0:size, 0:size] / np.array([1, size, size])[:, None, None, None]
    )
    frames = np.stack([60 + 60 * row + 2 * time, 90 + 40 * column, 120 - 60 * row], -1)
    masks = np.zeros((FRAMES, size, size), np.uint8)
    random = np.random.default_rng(number)
    for label, color in enumerate(np.eye(3) * 200 + 40, 1):
        (x, y), (across, down) = random.uniform(0.2, 0.8, 2), random.uniform(-0.01, 0.01, 2)
        away = (column - x - across * time) ** 2 + (row - y - down * time) ** 2
        inside = away < random.uniform(0.1, 0.18) ** 2
        frames[inside], masks[inside] = color, label
    return frames.astype(np.uint8), masks


def write_movi(folder: Path, size: int, splits: dict[str, int]) -> None:
    """So many videos of each split (train, validation), a file each, and what describes them."""
    folder.mkdir(parents=True)
    template = example_pb2.Example.FromString(_read_first_record())
    for name in LEFT_OUT:  # nobody reads them, and they are large
        del template.features.feature[name]
    number = 0
    for split, count in splits.items():
        for shard in range(count):
            frames, masks = draw_clip(number, size)
            fields = template.features.feature
            fields["video"].bytes_list.value[:] = [_encode_png(frame) for frame in frames]
            fields["segmentations"].bytes_list.value[:] = [_encode_png(mask) for mask in masks]
            fields["metadata/video_name"].bytes_list.value[:] = [str(number).encode()]
            for side in ("width", "height"):
                fields[f"metadata/{side}"].int64_list.value[:] = [size]
            name = f"movi_c-{split}.tfrecord-{shard:05d}-of-{count:05d}"
            (folder / name).write_bytes(
                _frame_record(template.SerializeToString(deterministic=True))
            )
            number += 1
    described = json.loads((FIXTURE / "dataset_info.json").read_text())
    for entry in described["splits"]:
        entry["shardLengths"] = ["1"] * splits[entry["name"]]
    (folder / "dataset_info.json").write_text(json.dumps(described))
    features = json.loads((FIXTURE / "features.json").read_text())
    (folder / "features.json").write_text(json.dumps(_resize_shapes(features, size)))
    labels = "instances-category.labels.txt"
    (folder / labels).write_bytes((FIXTURE / labels).read_bytes())


def _read_first_record() -> bytes:
    content = (FIXTURE / "movi_c-validation.tfrecord-00000-of-00002").read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    return content[12 : 12 + length]


def _frame_record(data: bytes) -> bytes:
    length, checksum = struct.pack("<Q", len(data)), TFRecordWriter.masked_crc
    return length + checksum(length) + data + checksum(data)


def _encode_png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "png")
    return buffer.getvalue()


def _resize_shapes(described: Any, size: int) -> Any:
    """The same features with pictures of another size."""
    if isinstance(described, dict):
        return {name: _resize_shapes(value, size) for name, value in described.items()}
    if isinstance(described, list):
        old, new = [str(side) for side in FIXTURE_SIZE], [str(size)] * 2
        for place in range(len(described) - 1):
            if described[place : place + 2] == old:
                return [*described[:place], *new, *described[place + 2 :]]
        return [_resize_shapes(value, size) for value in described]
    return described
