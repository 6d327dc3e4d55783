"""Training batches: which clips a step takes, and how they come to the device.

The order is a function of seed and step alone: a run resumed anywhere, on any number of processes,
sees the clips that an uninterrupted one would have seen.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from geoco.data.mixture import Clips

_AHEAD = 4  # batches that a stream reads before they are asked for


@dataclass(frozen=True)
class Batch:
    """Clips on the device, and the number of the video that each comes from."""

    video: UInt8[Tensor, "batch time 3 height width"]
    source: Int64[Tensor, " batch"]


class Order:
    """Clips of each step: one random order of all after another, cut into batches."""

    def __init__(self, count: int, batch: int, seed: int) -> None:
        self.count, self.batch, self.seed = count, batch, seed
        self._epoch = (-1, np.empty(0, dtype=np.int64))

    def __call__(self, step: int) -> Int64[np.ndarray, " batch"]:
        places = np.arange(step * self.batch, (step + 1) * self.batch)
        rows = np.empty(self.batch, dtype=np.int64)
        for epoch in np.unique(places // self.count):
            here = places // self.count == epoch
            rows[here] = self._permutation(int(epoch))[places[here] % self.count]
        return rows

    def _permutation(self, epoch: int) -> Int64[np.ndarray, " count"]:
        if self._epoch[0] != epoch:
            self._epoch = (epoch, np.random.default_rng((self.seed, epoch)).permutation(self.count))
        return self._epoch[1]


class ResidentFeed:
    """All frames of a split on the device, in memory."""

    def __init__(
        self,
        dataset: Clips,
        rows: Callable[[int], Int64[np.ndarray, " batch"]],
        device: torch.device,
        progress: Callable[[int, int], None] = lambda done, all: None,
    ) -> None:
        self.frames = torch.empty(
            (dataset.frame_count, 3, *dataset.frame_size), dtype=torch.uint8, device=device
        )
        done = 0
        for piece in dataset.all_frames(device):
            self.frames[done : done + len(piece)] = piece
            done += len(piece)
            progress(done, dataset.frame_count)
        self._rows = rows
        self._first = torch.from_numpy(dataset.first_frames).to(device)
        self._source = torch.from_numpy(dataset.source_numbers).to(device)
        self._offsets = torch.arange(dataset.length, device=device)

    def __call__(self, step: int) -> Batch:
        rows = to_device(torch.from_numpy(self._rows(step)), self.frames.device)
        places = self._first[rows][:, None] + self._offsets
        return Batch(self.frames[places], self._source[rows])


class StreamFeed:
    """Clips read, or rendered, a few batches ahead by a thread of its own."""

    def __init__(
        self,
        dataset: Clips,
        rows: Callable[[int], Int64[np.ndarray, " batch"]],
        device: torch.device,
    ) -> None:
        self._dataset, self._rows, self._device = dataset, rows, device
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="feed")
        self._source = dataset.source_numbers
        self._ahead: dict[int, Future[tuple[Tensor, Tensor]]] = {}

    def __call__(self, step: int) -> Batch:
        self._ahead = {t: future for t, future in self._ahead.items() if t >= step}
        for t in range(step, step + _AHEAD):
            if t not in self._ahead:
                self._ahead[t] = self._pool.submit(self._read, self._rows(t))
        video, source = self._ahead.pop(step).result()
        return Batch(to_device(video, self._device), to_device(source, self._device))

    def _read(self, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        video = self._dataset.batch(rows.tolist()).video
        return video, torch.from_numpy(self._source[rows])


Feed = ResidentFeed | StreamFeed  # called with a step, gives its batch


def to_device(value: Tensor, device: torch.device) -> Tensor:
    """To the device without waiting for it."""
    if device.type == "cuda":
        return value.pin_memory().to(device, non_blocking=True)
    return value.to(device)
