"""Frames that you have as an array, made into a store to train on.

    python examples/store_from_arrays.py frames.npz stores/mine
    geoco train configs/geoco.yaml 'train.extra_stores=[{path: stores/mine}]' --out runs/mixed

The file holds `frames`, uint8 [video, time, height, width, 3], at the size that the model sees, and
perhaps `masks`, uint8 [video, time, height, width] with 0 for the background, which may be larger.
"""

import argparse
from pathlib import Path

import numpy as np

from geoco.data.source import RawVideo
from geoco.data.store_writer import StoreWriter


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("arrays", type=Path)
    parser.add_argument("store", type=Path)
    parser.add_argument("--split", default="train", choices=("train", "val", "test"))
    arguments = parser.parse_args()
    stored = np.load(arguments.arrays, allow_pickle=False)
    frames, masks = stored["frames"], stored.get("masks")
    height, width = frames.shape[2:4]
    settings = {"source": {"kind": "arrays", "file": arguments.arrays.name}}
    with StoreWriter(arguments.store / arguments.split, height, width, settings) as writer:
        for number in range(len(writer), len(frames)):  # goes on where it was stopped
            own = None if masks is None else masks[number]
            writer.append(RawVideo(f"video {number}", frames[number], own))
        writer.finish()
    print(f"wrote {arguments.store}: {len(frames)} videos of {frames.shape[1]} frames")


if __name__ == "__main__":
    main()
