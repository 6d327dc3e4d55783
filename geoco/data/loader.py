"""Training batches: which clips a step takes, and how they come to the device.

The order is a function of seed and step alone: a run resumed anywhere, on any number of processes,
sees the clips that an uninterrupted one would have seen.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import BFloat16, Int64
from torch import Tensor

from geoco.data.clip import ClipBatch, to_device
from geoco.data.features import FeatureStore
from geoco.data.mixture import ClipDataset

_AHEAD = 4  # batches that a stream reads before they are asked for

Rows = Callable[[int], Int64[np.ndarray, " batch"]]  # the clips of each step


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
            rows[here] = self._permute(int(epoch))[places[here] % self.count]
        return rows

    def _permute(self, epoch: int) -> Int64[np.ndarray, " count"]:
        if self._epoch[0] != epoch:
            self._epoch = (epoch, np.random.default_rng((self.seed, epoch)).permutation(self.count))
        return self._epoch[1]


class ResidentFeed:
    """All frames of a split on the device, in memory, and their features if they are given."""

    def __init__(
        self,
        dataset: ClipDataset,
        rows: Rows,
        device: torch.device,
        progress: Callable[[int, int], None] = lambda done, all: None,
        features: BFloat16[Tensor, "frame view token channel"] | None = None,
    ) -> None:
        self._features = features
        self.frames = torch.empty(
            (dataset.frame_count, 3, *dataset.frame_size), dtype=torch.uint8, device=device
        )
        done = 0
        for piece in dataset.iterate_frames(device):
            self.frames[done : done + len(piece)] = piece
            done += len(piece)
            progress(done, dataset.frame_count)
        self._rows, self._sources = rows, dataset.sources
        self._first = torch.from_numpy(dataset.first_frames).to(device)
        self._numbers = torch.from_numpy(dataset.frame_numbers).to(device)
        self._source_numbers = torch.from_numpy(dataset.source_numbers).to(device)
        self._offsets = torch.arange(dataset.length, device=device)

    def __call__(self, step: int) -> ClipBatch:
        numbers = self._rows(step)
        rows = to_device(torch.from_numpy(numbers), self.frames.device)
        places = self._first[rows, None] + self._offsets
        return ClipBatch(
            video=self.frames[places],
            sources=tuple(self._sources[number] for number in numbers),
            frames=self._numbers[rows, None] + self._offsets,
            source_numbers=self._source_numbers[rows],
            features=None if self._features is None else self._features[places],
        )


class StreamFeed:
    """Clips read, or rendered, a few batches ahead by a thread of its own; so are features."""

    def __init__(
        self,
        dataset: ClipDataset,
        rows: Rows,
        device: torch.device,
        features: FeatureStore | None = None,
    ) -> None:
        self._dataset, self._rows, self._device, self._features = dataset, rows, device, features
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="feed")
        self._ahead: dict[int, Future[ClipBatch]] = {}

    def __call__(self, step: int) -> ClipBatch:
        self._ahead = {t: future for t, future in self._ahead.items() if t >= step}
        for t in range(step, step + _AHEAD):
            if t not in self._ahead:
                self._ahead[t] = self._pool.submit(self._read, self._rows(t))
        return self._ahead.pop(step).result().to(self._device)

    def _read(self, rows: Int64[np.ndarray, " batch"]) -> ClipBatch:
        batch = self._dataset.batch_frames(rows.tolist())
        if self._features is None:
            return batch
        places = self._dataset.first_frames[rows, None] + np.arange(self._dataset.length)
        return replace(batch, features=self._features.read(places))


Feed = ResidentFeed | StreamFeed  # called with a step, gives its batch
