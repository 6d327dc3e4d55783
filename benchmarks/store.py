"""How fast clips come out of a warm store: `python benchmarks/store.py`.

A store of random frames is written to a temporary folder and read once, so that it lies in the
page cache. Random batches are then gathered by `StoreDataset.batch`, by a torch DataLoader that
calls `__getitem__` in two workers, and by a bare copy out of a numpy memory map, the floor.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader

from geoco.config import StoreConfig, WindowConfig
from geoco.data.clip import ClipBatch
from geoco.data.source import RawVideo
from geoco.data.store import FRAMES, StoreDataset
from geoco.data.store_writer import StoreWriter

BATCH = 64
TARGET = 20_000  # frames/s of 64 x 64 on two cores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=64, help="height and width of a frame")
    parser.add_argument("--videos", type=int, default=200, help="videos of 100 frames")
    parser.add_argument("--seconds", type=float, default=3.0, help="time for each measurement")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        seconds = write_store(path / "train", arguments.videos, arguments.size)
        total = arguments.videos * 100
        print(f"{total:,} frames of {arguments.size} x {arguments.size}, batches of {BATCH} clips")
        print(f"writing, every video synced: {total / seconds:,.0f} frames/s")
        (path / "train" / FRAMES).read_bytes()
        for length in (1, 4):
            window = WindowConfig(length=length, stride=1)
            size = arguments.size
            config = StoreConfig(path=path, height=size, width=size, source=None, window=window)
            dataset = StoreDataset(config, "train")
            print(f"T = {length}")
            for name, make in PEERS.items():
                rate = measure_rate(make(dataset, length), length, arguments.seconds)
                verdict = f", target {TARGET:,}" if make is gather_batches else ""
                print(f"  {name:42} {rate:12,.0f} frames/s{verdict}")


def gather_batches(dataset: StoreDataset, length: int) -> Iterator[object]:
    generator = np.random.default_rng(0)
    while True:
        yield dataset.batch(generator.integers(len(dataset), size=BATCH).tolist())


def load_batches(dataset: StoreDataset, length: int) -> Iterator[object]:
    loader = DataLoader(
        dataset, BATCH, shuffle=True, num_workers=2, collate_fn=ClipBatch.collate, drop_last=True
    )
    while True:
        yield from loader


def copy_batches(dataset: StoreDataset, length: int) -> Iterator[object]:
    shape = (-1, 3, dataset.index.height, dataset.index.width)
    mapped = np.memmap(dataset.path / FRAMES, dtype=np.uint8, mode="r")
    frames = np.asarray(mapped).reshape(shape)  # slicing a np.memmap itself costs extra
    batch = np.empty((BATCH, length, *frames.shape[1:]), dtype=np.uint8)
    generator = np.random.default_rng(0)
    while True:
        firsts = generator.integers(len(frames) - length + 1, size=BATCH)
        for row, first in zip(batch, firsts.tolist(), strict=True):
            row[:] = frames[first : first + length]
        yield batch


PEERS: dict[str, Callable[[StoreDataset, int], Iterator[object]]] = {
    "StoreDataset.batch": gather_batches,
    "torch DataLoader, __getitem__, 2 workers": load_batches,
    "numpy memory map, bare copy (floor)": copy_batches,
}


def measure_rate(batches: Iterator[object], length: int, seconds: float) -> float:
    """Frames per second, after a few batches that warm caches and start workers."""
    for _ in islice(batches, 10):
        pass
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        next(batches)
        count += BATCH * length
    return count / (time.perf_counter() - start)


def write_store(path: Path, videos: int, size: int) -> float:
    """Write a store of random frames; returns the seconds it took."""
    generator = np.random.default_rng(0)
    frames = generator.integers(0, 256, (100, size, size, 3), dtype=np.uint8)
    start = time.perf_counter()
    with StoreWriter(path, size, size, {}) as writer:
        for number in range(videos):
            writer.append(RawVideo(str(number), frames))
        writer.finish()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
