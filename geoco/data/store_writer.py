"""Writing a store: resumable after a kill at any moment, and whole or absent under its name.

While it is written, a store's folder is called `<path>.partial`, and a journal takes one line per
finished video after that video's bytes are on disk.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np

from geoco.config.loading import Section
from geoco.data.source import RawVideo
from geoco.data.store import (
    FORMAT,
    FRAMES,
    INDEX,
    JOURNAL,
    MASKS,
    StoredVideo,
    StoreIndex,
    compute_checksum,
    get_partial_path,
)
from geoco.errors import GeocoError
from geoco.files import parse_json, sync_folder, write_through

if sys.platform != "win32":
    import fcntl


class StoreWriter:
    """Appends videos to an unfinished store, which it starts or continues; `len` counts them.

    `height` and `width` are those of the frames. Masks have the size that the first video's have,
    whatever that is. `settings` say how the videos were made: an unfinished store made otherwise is
    refused.
    """

    def __init__(self, path: Path, height: int, width: int, settings: Mapping[str, Any]) -> None:
        if path.exists():
            raise GeocoError(
                f"{path}: there is a store already: delete it or choose another data.path"
            )
        self._path, self._folder = path, get_partial_path(path)
        # Through JSON, so that it compares equal to what a journal gives back.
        self._settings = json.loads(json.dumps(dict(settings)))
        self._height, self._width = height, width
        self._videos: list[StoredVideo] = []
        self._mask_size: tuple[int, int] | None = None  # unknown until the first video
        self._files: dict[str, IO[bytes]] = {}
        with self._close_on_error():
            self._folder.mkdir(parents=True, exist_ok=True)
            self._open_file(JOURNAL)
            self._lock()
            self._recover()

    @property
    def videos(self) -> tuple[StoredVideo, ...]:
        """All that are in the store."""
        return tuple(self._videos)

    @property
    def last(self) -> StoredVideo | None:
        """The last video that is in the store."""
        return self._videos[-1] if self._videos else None

    def __len__(self) -> int:
        return len(self._videos)

    def __enter__(self) -> "StoreWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append(self, video: RawVideo) -> None:
        """Add a video of the store's size. Once this returns, no kill can lose it."""
        if not self._files:
            raise GeocoError(f"{self._folder}: this writer is closed: open another to continue")
        self._check_video(video)
        frames = np.ascontiguousarray(video.frames.transpose(0, 3, 1, 2))
        masks = None if video.masks is None else np.ascontiguousarray(video.masks, dtype=np.uint8)
        try:
            metadata = json.loads(json.dumps(dict(video.metadata), allow_nan=False))
        except (TypeError, ValueError) as error:
            raise GeocoError(f"{video.source}: metadata that JSON cannot hold: {error}") from None
        last = self._videos[-1:]
        stored = StoredVideo(
            source=video.source,
            first=video.first,
            start=last[0].start + last[0].frames if last else 0,
            frames=len(frames),
            checksum=compute_checksum(frames, masks),
            metadata=metadata,
        )
        mask_size = None if masks is None else (masks.shape[1], masks.shape[2])
        line = _JournalLine(mask_size=mask_size, video=stored).model_dump_json()
        with self._close_on_error():
            self._append_bytes(FRAMES, frames.data)
            if masks is not None:
                self._append_bytes(MASKS, masks.data)
            self._append_bytes(JOURNAL, line.encode() + b"\n")
        self._videos.append(stored)
        self._mask_size = mask_size

    def finish(self) -> None:
        """Write the index and give the store its final name."""
        if not self._videos:
            raise GeocoError(f"{self._path}: no videos were imported, so there is no store to make")
        with self._close_on_error():
            described = self._build_index().model_dump_json(indent=1).encode() + b"\n"
            write_through(self._folder / INDEX, described)
            self.close()
            self._folder.rename(self._path)
            sync_folder(self._path.parent)
            (self._path / JOURNAL).unlink()

    def close(self) -> None:
        """Let go of the files; what was appended stays, and another writer can continue it."""
        for file in self._files.values():
            with suppress(OSError):  # all that counts was flushed when it was written
                file.close()
        self._files.clear()

    def _recover(self) -> None:
        """Take up the journal, and drop the bytes and the torn line that a kill left behind it."""
        journal = self._folder / JOURNAL
        start_over = f"delete {self._folder} to import from the start"
        lines = journal.read_bytes().splitlines(keepends=True)
        whole = 0
        for number, line in enumerate(lines):
            try:
                record = dict(parse_json(line if line.endswith(b"\n") else b"torn"))
                entry = _JournalLine.model_validate_json(line) if number else None
            except (ValueError, TypeError):
                if number == len(lines) - 1:
                    break
                raise GeocoError(f"{journal}: line {number + 1} is damaged: {start_over}") from None
            if entry is None:
                check_recipe(self._folder, record, self._build_index().recipe)
            else:
                self._videos.append(entry.video)
                self._mask_size = entry.mask_size
            whole += len(line)
        os.truncate(journal, whole)
        if whole == 0:
            self._append_bytes(JOURNAL, json.dumps(self._build_index().recipe).encode() + b"\n")
        shapes = self._build_index().shapes
        for file in (self._folder / FRAMES, self._folder / MASKS):
            expected = prod(shapes.get(file.name, (0,)))
            size = file.stat().st_size if file.exists() else 0
            if size < expected:
                raise GeocoError(
                    f"{file}: expected at least {expected} bytes, found {size}: {start_over}"
                )
            if size > expected:
                os.truncate(file, expected)
        if self._mask_size is None:
            (self._folder / MASKS).unlink(missing_ok=True)

    def _check_video(self, video: RawVideo) -> None:
        frames, masks = video.frames, video.masks
        shape = (len(frames), self._height, self._width)
        if frames.dtype != np.uint8 or frames.shape != (*shape, 3) or len(frames) == 0:
            expected = f"uint8 frames [time, {self._height}, {self._width}, 3]"
            got = f"{frames.dtype} {list(frames.shape)}"
            raise GeocoError(f"{video.source}: expected {expected}, got {got}")
        if self._videos and (self._mask_size is None) != (masks is None):
            one, other = ("has no", "have") if masks is None else ("has", "have no")
            raise GeocoError(f"{video.source}: this video {one} masks, but those before {other}")
        if masks is not None:
            self._check_masks(video.source, len(frames), masks)

    def _check_masks(self, source: str, time: int, masks: np.ndarray) -> None:
        fits = masks.ndim == 3 and len(masks) == time and 0 not in masks.shape
        same = self._mask_size in (None, masks.shape[1:])  # as those of the videos before
        if masks.dtype.kind not in "iu" or not fits or not same:
            height, width = self._mask_size or ("height", "width")
            expected = f"integer masks [{time}, {height}, {width}]"
            got = f"{masks.dtype} {list(masks.shape)}"
            raise GeocoError(f"{source}: expected {expected}, got {got}")
        if masks.min() < 0 or masks.max() > 255:
            raise GeocoError(
                f"{source}: mask ids from {masks.min()} to {masks.max()}, but a store holds "
                "0 (background) to 255"
            )

    def _build_index(self) -> StoreIndex:
        return StoreIndex(
            format=FORMAT,
            height=self._height,
            width=self._width,
            mask_size=self._mask_size,
            settings=self._settings,
            videos=tuple(self._videos),
        )

    def _open_file(self, name: str) -> None:
        self._files[name] = (self._folder / name).open("ab")
        sync_folder(self._folder)

    def _append_bytes(self, name: str, data: bytes | memoryview) -> None:
        if name not in self._files:
            self._open_file(name)
        file = self._files[name]
        file.write(data)
        file.flush()
        os.fsync(file.fileno())

    def _lock(self) -> None:
        """One writer at a time. The lock ends with the process, however that ends."""
        if sys.platform != "win32":
            try:
                fcntl.flock(self._files[JOURNAL], fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise GeocoError(f"{self._folder}: another import is writing here") from None

    @contextmanager
    def _close_on_error(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.close()
            raise GeocoError(
                f"{self._folder}: cannot write here: {error.strerror}: once that is solved, "
                "geoco data import <config> goes on where it stopped"
            ) from None
        except BaseException:  # also an interruption: what was written is unknown until reopened
            self.close()
            raise


def check_recipe(where: Path, present: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse to mix videos made in different ways in one store."""
    changed = [name for name in {**present, **wanted} if present.get(name) != wanted.get(name)]
    if changed:
        raise GeocoError(
            f"{where}: already imported with other settings ({', '.join(changed)} changed): "
            "delete it, go back to those settings or choose another data.path"
        )


class _JournalLine(Section):
    mask_size: tuple[int, int] | None
    video: StoredVideo
