"""MOVi-A to -E (Kubric) from the tfrecord files that TFDS publishes, without TensorFlow.

`read_videos` gives frames, masks and metadata; `read_examples` gives each record before it is
decoded, and `Example.decode_forward_flow` the optical flow, which videos leave out for its size.

Metadata holds the fields under `metadata/` by their own names, and `instances`, `camera` and
`background` as they are called. Under `instances` every field is a list with one item per object:
what TFDS splits into `ragged_flat_values` and `ragged_row_lengths_0` is put together again, and
numbers that stand for labels become their names. Without `features.json` the shapes of the
published MOVi are assumed; without `*.labels.txt` labels stay numbers.
"""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, UInt8
from PIL import Image

from geoco.config import MoviSource, Split
from geoco.data.source import RawVideo
from geoco.data.tfrecord import Field, extract_values, list_records, parse_example, read_features
from geoco.errors import GeocoError
from geoco.files import parse_json

_SPLITS: Mapping[Split, str] = {"train": "train", "val": "validation", "test": "test"}
_SECTIONS = ("metadata", "instances", "camera", "background", "background_color")
_FLAT, _ROWS = "/ragged_flat_values", "/ragged_row_lengths_0"


def list_splits(source: MoviSource) -> tuple[Split, ...]:
    """The splits of which there are files."""
    pattern = f"{source.name}-{{}}.tfrecord-*"
    folder = _find_folder(source)
    return tuple(split for split, name in _SPLITS.items() if any(folder.glob(pattern.format(name))))


def count_videos(source: MoviSource, split: Split) -> int | None:
    """Videos in a split according to `dataset_info.json`; None where that does not say."""
    lengths = [length for _, length in _list_shards(_find_folder(source), source.name, split)]
    known = [length for length in lengths if length is not None]
    return sum(known) if len(known) == len(lengths) else None


def read_videos(source: MoviSource, split: Split, skip: int = 0) -> Iterator[RawVideo]:
    """The videos after the first `skip`, shard by shard in the order they are stored."""
    for number, example in enumerate(read_examples(source, split, skip), start=skip):
        frames, masks, metadata = (
            example.decode_frames(),
            example.decode_masks(),
            example.collect_metadata(),
        )
        if masks is not None and masks.shape != frames.shape[:3]:
            raise GeocoError(
                f"{example.where}: masks are {_format_size(masks[0])}, but frames are "
                f"{_format_size(frames[0])}; expected one size"
            )
        name = f"{source.name}/{split}/{metadata.get('video_name', number)}"
        yield RawVideo(name, frames, masks, metadata)


def read_examples(source: MoviSource, split: Split, skip: int = 0) -> Iterator["Example"]:
    """The records after the first `skip`, of which nothing but the length is read."""
    folder = _find_folder(source)
    features = folder / "features.json"
    declared = read_features(features) if features.exists() else {}
    labels = {
        path.name.removesuffix(".labels.txt").replace("-", "/"): (
            path.read_text("utf-8", "replace").splitlines()
        )
        for path in folder.glob("*.labels.txt")
    }
    for path, length in _list_shards(folder, source.name, split):
        records = list_records(path)
        if length not in (None, len(records)):
            raise GeocoError(
                f"{path}: holds {len(records)} records, but dataset_info.json says {length}, so "
                f"one of the two is incomplete; please fetch them again"
            )
        for record in records[skip:]:
            yield Example(record.where, parse_example(record), declared, labels)
        skip = max(0, skip - len(records))


@dataclass(frozen=True)
class Example:
    """One record: its fields as they are stored, decoded by the methods when they are asked for."""

    where: str
    fields: Mapping[str, Any]
    declared: Mapping[str, Field]
    labels: Mapping[str, Sequence[str]]

    def decode_frames(self) -> UInt8[np.ndarray, "time height width 3"]:
        return np.stack(self._decode_images("video", "frame", ("RGB",)))

    def decode_masks(self) -> UInt8[np.ndarray, "time height width"] | None:
        """0 is background, i + 1 instance i; None if the dataset declares no masks."""
        if "segmentations" not in self.fields and "segmentations" not in self.declared:
            return None
        masks = np.stack(self._decode_images("segmentations", "mask", ("L", "I;16", "I")))
        frames = len(self._list_encoded("video"))
        if len(masks) != frames:
            raise GeocoError(f"{self.where}: {len(masks)} masks for {frames} frames, not one each")
        if masks.max() > 255:
            raise GeocoError(f"{self.where}: a mask has id {masks.max()}; ids go from 0 to 255")
        return masks.astype(np.uint8)

    def decode_forward_flow(self) -> Float32[np.ndarray, "time height width 2"]:
        """Where each pixel goes until the next frame, as (rows, columns) in pixels."""
        low, high = self._read_array("metadata/forward_flow_range", (2,)).tolist()
        if "forward_flow" in self.declared:
            shape = self.declared["forward_flow"].shape
        else:
            shape = (*self.decode_frames().shape[:3], 2)
        stored = self._read_array("forward_flow", shape)
        return (stored * ((high - low) / 65535) + low).astype(np.float32)

    def collect_metadata(self) -> dict[str, Any]:
        """The fields that are neither pictures nor events, as plain lists, numbers and strings."""
        metadata: dict[str, Any] = {}
        for stored in sorted(self.fields):
            name = stored.removesuffix(_FLAT)
            section, _, key = name.partition("/")
            if section not in _SECTIONS or stored.endswith(_ROWS):
                continue
            if section == "metadata":
                metadata[key] = self._read_value(name)
            elif key:
                metadata.setdefault(section, {})[key] = self._read_value(name)
            else:
                metadata[section] = self._read_value(name)
        return metadata

    def _decode_images(self, name: str, what: str, modes: tuple[str, ...]) -> list[np.ndarray]:
        images: list[np.ndarray] = []
        for time, png in enumerate(self._list_encoded(name)):
            images.append(_decode_png(png, modes, f"{self.where}: {what} {time}"))
            if images[time].shape != images[0].shape:
                raise GeocoError(
                    f"{self.where}: {what} {time} is {_format_size(images[time])}, but {what} 0 is "
                    f"{_format_size(images[0])}; expected one size"
                )
        return images

    def _list_encoded(self, name: str) -> list[bytes]:
        encoded = self._list_values(name)
        if not isinstance(encoded, list) or not encoded:
            raise GeocoError(f"{self.where}: '{name}' holds no pictures; expected a PNG per frame")
        return encoded

    def _list_values(self, name: str) -> list[bytes] | np.ndarray:
        if name not in self.fields:
            have = ", ".join(sorted({field.partition("/")[0] for field in self.fields}))
            raise GeocoError(f"{self.where}: the field '{name}' is missing; there are {have}")
        return extract_values(self.fields[name])

    def _read_value(self, name: str) -> Any:
        """A field as plain Python values; a ragged one as a list per instance."""
        shape = self._find_field(name).shape
        if name + _FLAT not in self.fields:
            return self._read_array(name, shape).tolist()
        rows = self._read_array(name + _FLAT, (None, *shape[2:])).tolist()
        lengths = self._read_array(name + _ROWS, (None,)).tolist()
        if sum(lengths) != len(rows) or min(lengths, default=0) < 0:
            raise GeocoError(
                f"{self.where}: '{name}' has {len(rows)} rows, but lengths that add up to "
                f"{sum(lengths)}"
            )
        remaining = iter(rows)
        return [[next(remaining) for _ in range(length)] for length in lengths]

    def _read_array(self, stored: str, shape: tuple[int | None, ...]) -> np.ndarray:
        array = self._list_values(stored)
        if isinstance(array, list):
            array = np.array([text.decode("utf-8", "replace") for text in array], object)
        elif stored in self.labels:
            names = dict(enumerate(self.labels[stored]))
            array = np.array([names.get(label, label) for label in array.tolist()], object)
        elif stored in self.declared and self.declared[stored].dtype == "bool":
            array = array.astype(bool)
        try:
            return array.reshape([-1 if length is None else length for length in shape])
        except ValueError:
            expected = " x ".join("any" if length is None else str(length) for length in shape)
            raise GeocoError(
                f"{self.where}: '{stored}' holds {array.size} values; expected {expected or 'one'}"
            ) from None

    def _find_field(self, name: str) -> Field:
        """What `features.json` declares, else what the published MOVi do."""
        if name in self.declared:
            return self.declared[name]
        if name in _PUBLISHED:
            time = len(self._list_encoded("video"))
            return Field(tuple(time if length == -1 else length for length in _PUBLISHED[name]))
        single = not name.startswith("instances/") and len(self._list_values(name)) == 1
        return Field(() if single else (None,))


# For want of a features.json: the published shapes that a flat list does not show by itself.
# None counts instances or the rows of a ragged field, -1 is the number of frames.
_PUBLISHED: Mapping[str, tuple[int | None, ...]] = {
    "camera/positions": (-1, 3),
    "camera/quaternions": (-1, 4),
    "instances/positions": (None, -1, 3),
    "instances/quaternions": (None, -1, 4),
    "instances/velocities": (None, -1, 3),
    "instances/angular_velocities": (None, -1, 3),
    "instances/image_positions": (None, -1, 2),
    "instances/bboxes_3d": (None, -1, 8, 3),
    "instances/visibility": (None, -1),
    "instances/bboxes": (None, None, 4),
    "instances/bbox_frames": (None, None),
    "instances/color": (None, 3),
}


def _decode_png(png: bytes, modes: tuple[str, ...], where: str) -> np.ndarray:
    try:
        with Image.open(io.BytesIO(png), formats=("PNG",)) as image:
            mode, pixels = image.mode, np.asarray(image)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        raise GeocoError(f"{where}: expected a PNG, got {len(png)} bytes of other data") from None
    if mode not in modes:
        raise GeocoError(f"{where}: expected a PNG in mode {' or '.join(modes)}, got mode {mode}")
    return pixels


def _format_size(image: np.ndarray) -> str:
    return f"{image.shape[1]} x {image.shape[0]}"


# -- finding the files -----------------------------------------------------------------------------


def _find_folder(source: MoviSource) -> Path:
    """The folder that holds the dataset's files: the given one, or the only one below it."""
    if not source.path.is_dir():
        raise GeocoError(
            f"{source.path}: no such folder; expected the one with {source.name}'s tfrecord files"
        )
    pattern = f"{source.name}-*.tfrecord-*"
    if any(source.path.glob(pattern)):
        return source.path
    folders = sorted({path.parent for path in source.path.rglob(pattern)})
    if len(folders) > 1:
        shown = ", ".join(str(folder.relative_to(source.path)) for folder in folders)
        raise GeocoError(
            f"{source.path}: {source.name} is there more than once; expected the path of one: "
            f"{shown}"
        )
    if not folders:
        names = sorted({path.name.partition("-")[0] for path in source.path.rglob("*.tfrecord-*")})
        have = f"only those of {', '.join(names)}" if names else "nor of any other dataset"
        raise GeocoError(f"{source.path}: no tfrecord files of {source.name} here, {have}")
    return folders[0]


def _list_shards(folder: Path, name: str, split: Split) -> list[tuple[Path, int | None]]:
    """The split's files in order, each with the number of records it should hold, if known."""
    pattern = re.compile(rf"{name}-(.+)\.tfrecord-(\d+)-of-(\d+)")
    matches = [match for path in folder.iterdir() if (match := pattern.fullmatch(path.name))]
    files = {(int(m[3]), int(m[2])): folder / m[0] for m in matches if m[1] == _SPLITS[split]}
    if not files:
        have = ", ".join(sorted({match[1] for match in matches})) or "only partial downloads"
        raise GeocoError(f"{folder}: no {_SPLITS[split]} files of {name}; there are {have}")
    totals = sorted({total for total, _ in files})
    if len(totals) > 1:
        raise GeocoError(
            f"{folder}: {name}-{_SPLITS[split]} is there in several sets, of {totals} files; "
            f"expected one"
        )
    total = totals[0]
    missing = [f"{number:05}" for number in range(total) if (total, number) not in files]
    if missing:
        raise GeocoError(
            f"{folder}: {name}-{_SPLITS[split]} lacks {len(missing)} of its {total} files, those "
            f"numbered {', '.join(missing[:8])}{', ...' if len(missing) > 8 else ''}"
        )
    paths = [files[total, number] for number in range(total)]
    lengths = _read_shard_lengths(folder / "dataset_info.json", split)
    if lengths is None:
        return [(path, None) for path in paths]
    if len(lengths) != len(paths):
        raise GeocoError(
            f"{folder}: {len(paths)} files of {name}-{_SPLITS[split]}, but dataset_info.json "
            f"lists {len(lengths)}"
        )
    return list(zip(paths, lengths, strict=True))


def _read_shard_lengths(path: Path, split: Split) -> list[int] | None:
    if not path.exists():
        return None
    try:
        splits = parse_json(path.read_text("utf-8"))["splits"]
        lengths = {entry["name"]: entry.get("shardLengths") for entry in splits}
        known = lengths.get(_SPLITS[split])
        return None if known is None else [int(length) for length in known]
    except (OSError, ValueError, OverflowError, TypeError, KeyError, AttributeError):
        raise GeocoError(
            f"{path}: expected the description of splits that TFDS writes; without this file the "
            f"number of videos stays unknown"
        ) from None
