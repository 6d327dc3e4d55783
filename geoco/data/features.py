"""Features of a frozen encoder, kept for every frame of a store: what is read instead of computed.

A folder beside the store. `features.bf16` is raw bfloat16 [frame, view, token, channel], the frames
in the store's order; the second view, if there is one, is that of mirror images. `index.json` says
what they were made of and by, and a checksum for every video. While it is written, the folder is
called `<path>.partial` and a journal takes one line per finished video, after that video's bytes
are on disk; so a computation killed at any moment goes on where it stopped.
"""

import json
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import IO

import numpy as np
import torch
from jaxtyping import BFloat16, Int64
from torch import Tensor

from geoco.config.loading import Section
from geoco.data.store import StoreDataset, get_partial_path
from geoco.errors import GeocoError
from geoco.files import sync_folder, write_through

if sys.platform != "win32":
    import fcntl

FORMAT = 1
FEATURES, INDEX, JOURNAL = "features.bf16", "index.json", "journal.jsonl"
_BYTES = 2  # of a value
_PIECE = 256  # frames that go to a device at a time


class FeatureRecipe(Section):
    """All that decides what the features of a store are."""

    format: int
    store: str  # checksum of the store's frames
    encoder: str  # checksum of the frozen encoder's weights
    precision: str
    frames: int
    views: int
    tokens: int
    channels: int

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return self.frames, self.views, self.tokens, self.channels

    @property
    def frame_bytes(self) -> int:
        return _BYTES * self.views * self.tokens * self.channels


class FeatureIndex(Section):
    recipe: FeatureRecipe
    frames: tuple[int, ...]  # of each video
    checksums: tuple[str, ...]  # CRC-32 of each video's features, in hexadecimal


class FeatureStore:
    """The features at `path`, memory-mapped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.index = read_feature_index(path)
        self.recipe = self.index.recipe

    def read(
        self, frames: Int64[np.ndarray, "*rows"]
    ) -> BFloat16[Tensor, "*rows view token channel"]:
        """The features of frames, by their places in the store."""
        return _to_tensor(self._map[frames])

    def iterate(self) -> Iterator[BFloat16[Tensor, "_frame view token channel"]]:
        """All of them in order, some at a time."""
        for first in range(0, self.recipe.frames, _PIECE):
            yield _to_tensor(self._map[first : first + _PIECE].copy())

    def verify(self, progress: Callable[[int, int], None]) -> None:
        """Recompute every checksum; `progress(done, total)`."""
        first, damaged = 0, 0
        for done, (frames, checksum) in enumerate(
            zip(self.index.frames, self.index.checksums, strict=True), start=1
        ):
            damaged += compute_feature_checksum(self._map[first : first + frames]) != checksum
            first += frames
            progress(done, len(self.index.frames))
        if damaged:
            raise GeocoError(
                f"{self.path}: the features of {damaged} of {len(self.index.frames)} videos do not "
                f"match their checksum: delete it and run geoco data features <config> again"
            )

    @cached_property
    def _map(self) -> np.ndarray:
        mapped = np.memmap(self.path / FEATURES, dtype=np.int16, mode="r")
        return np.asarray(mapped).reshape(self.recipe.shape)


class FeatureWriter:
    """Appends the features of videos to an unfinished folder, which it starts or continues.

    `done` counts the videos that are there.
    """

    def __init__(self, path: Path, recipe: FeatureRecipe) -> None:
        if path.exists():
            raise GeocoError(
                f"{path}: there are features already: delete them or choose another "
                "train.feature_store"
            )
        self._path, self._folder, self._recipe = path, get_partial_path(path), recipe
        self._frames: list[int] = []
        self._checksums: list[str] = []
        self._files: list[IO[bytes]] = []
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._journal = self._open(JOURNAL)
            _lock(self._journal, self._folder)
            self._recover()
            self._file = self._open(FEATURES)
            sync_folder(self._folder)
        except OSError as error:
            self.close()
            raise _explain(self._folder, error) from None
        except BaseException:
            self.close()
            raise

    @property
    def done(self) -> int:
        return len(self._frames)

    def __enter__(self) -> "FeatureWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the files; what was appended stays, and another writer can continue it."""
        for file in self._files:
            file.close()

    def append(self, features: BFloat16[Tensor, "frame view token channel"]) -> None:
        """Add the features of the next video. Once this returns, no kill can lose them."""
        expected = self._recipe.shape[1:]
        if features.shape[1:] != expected:
            raise GeocoError(
                f"{self._folder}: expected features [frame, {', '.join(map(str, expected))}], got "
                f"{list(features.shape)}"
            )
        values = features.contiguous().cpu().view(torch.int16).numpy()
        checksum = compute_feature_checksum(values)
        try:
            _append(self._file, values.data)
            _append(self._journal, f"{json.dumps([len(values), checksum])}\n".encode())
        except OSError as error:
            raise _explain(self._folder, error) from None
        self._frames.append(len(values))
        self._checksums.append(checksum)

    def finish(self) -> None:
        """Write the index and give the folder its final name."""
        if sum(self._frames) != self._recipe.frames:
            raise GeocoError(
                f"{self._folder}: {sum(self._frames)} of {self._recipe.frames} frames have "
                "features: not all of the store was computed"
            )
        index = FeatureIndex(
            recipe=self._recipe, frames=tuple(self._frames), checksums=tuple(self._checksums)
        )
        try:
            write_through(self._folder / INDEX, index.model_dump_json(indent=1).encode() + b"\n")
            self._folder.rename(self._path)
            sync_folder(self._path.parent)
            (self._path / JOURNAL).unlink()
        except OSError as error:
            raise _explain(self._folder, error) from None

    def _open(self, name: str) -> IO[bytes]:
        self._files.append((self._folder / name).open("ab"))
        return self._files[-1]

    def _recover(self) -> None:
        """Take up the journal, and drop the bytes and the torn line that a kill left behind it."""
        journal, whole = self._folder / JOURNAL, 0
        for number, line in enumerate(journal.read_bytes().splitlines(keepends=True)):
            if not line.endswith(b"\n"):
                break
            if number == 0:
                self._check_recipe(line)
            else:
                frames, checksum = json.loads(line)
                self._frames.append(frames)
                self._checksums.append(checksum)
            whole += len(line)
        os.truncate(journal, whole)
        if whole == 0:
            _append(self._journal, self._recipe.model_dump_json().encode() + b"\n")
        file, expected = self._folder / FEATURES, sum(self._frames) * self._recipe.frame_bytes
        size = file.stat().st_size if file.exists() else 0
        if size < expected:
            raise GeocoError(
                f"{file}: expected at least {expected} bytes, found {size}: delete {self._folder} "
                "to compute from the start"
            )
        if size > expected:
            os.truncate(file, expected)

    def _check_recipe(self, line: bytes) -> None:
        differences = describe_differences(FeatureRecipe.model_validate_json(line), self._recipe)
        if differences:
            raise GeocoError(
                f"{self._folder}: begun with {' and '.join(differences)}: delete it, or choose "
                "another train.feature_store"
            )


def read_feature_index(path: Path) -> FeatureIndex:
    """Read and check the index of the features at `path`, and the size of their file."""
    make = "run geoco data features <config>"
    if not path.is_dir():
        unfinished = get_partial_path(path).is_dir()
        reason = "their computation did not finish" if unfinished else "there are no features here"
        raise GeocoError(f"{path}: {reason}: {make}")
    try:
        raw = json.loads((path / INDEX).read_text(encoding="utf-8"))
        version = raw["recipe"]["format"]
        index = FeatureIndex.model_validate_json(json.dumps(raw)) if version == FORMAT else None
    except OSError as error:
        raise GeocoError(f"{path / INDEX}: cannot read this file: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise GeocoError(
            f"{path / INDEX}: not an index of features, or damaged: delete {path} and {make} again"
        ) from None
    if index is None:
        raise GeocoError(
            f"{path}: features of format {version}, but this version of geoco-savi reads format "
            f"{FORMAT}: delete them and {make} again"
        )
    file, expected = path / FEATURES, index.recipe.frames * index.recipe.frame_bytes
    size = file.stat().st_size if file.is_file() else 0
    if size != expected or sum(index.frames) != index.recipe.frames:
        raise GeocoError(
            f"{file}: expected {expected} bytes, found {size}: delete {path} and {make} again"
        )
    return index


def describe_differences(present: FeatureRecipe, wanted: FeatureRecipe) -> list[str]:
    """In words, what features were made with that others are wanted of."""
    words = {
        "store": "another store",
        "encoder": "another encoder",
        "precision": f"precision {present.precision}",
        "frames": f"{present.frames} frames",
        "views": "mirror images" if present.views > wanted.views else "no mirror images",
        "tokens": f"{present.tokens} tokens",
        "channels": f"{present.channels} channels",
    }
    return [text for name, text in words.items() if getattr(present, name) != getattr(wanted, name)]


def compute_store_checksum(dataset: StoreDataset) -> str:
    """Of all frames of a store, by the checksums of its videos."""
    videos = [(video.frames, video.checksum) for video in dataset.index.videos]
    return f"{zlib.crc32(json.dumps(videos).encode()):08x}"


def compute_feature_checksum(values: np.ndarray) -> str:
    return f"{zlib.crc32(np.ascontiguousarray(values).data):08x}"


def _to_tensor(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values).view(torch.bfloat16)


def _append(file: IO[bytes], data: bytes | memoryview) -> None:
    file.write(data)
    file.flush()
    os.fsync(file.fileno())


def _lock(file: IO[bytes], folder: Path) -> None:
    """One writer at a time. The lock ends with the process, however that ends."""
    if sys.platform != "win32":
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise GeocoError(f"{folder}: another process is writing features here") from None


def _explain(folder: Path, error: OSError) -> GeocoError:
    return GeocoError(
        f"{folder}: cannot write here: {error.strerror}: once that is solved, geoco data features "
        "<config> goes on where it stopped"
    )
