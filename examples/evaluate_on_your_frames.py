"""Does a model obey on frames of yours? Any array of frames will do, with masks or without.

    python examples/evaluate_on_your_frames.py frames.npz --model geoco-solids --windows 50

The file holds `frames`, uint8 [video, time, height, width, 3], and perhaps `masks`, uint8 [video,
time, height, width] with 0 for the background. Every frame is a window of its own.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from geoco import evaluation
from geoco.data import Clip, ClipBatch
from geoco.models import pretrained


class Frames:
    """Single frames of an array as a dataset that can be evaluated on."""

    def __init__(self, path: Path) -> None:
        stored = np.load(path, allow_pickle=False)
        self.frames = torch.from_numpy(stored["frames"]).permute(0, 1, 4, 2, 3)
        self.masks = torch.from_numpy(stored["masks"]) if "masks" in stored else None
        self.sources = [f"video {v}" for v in range(len(self.frames)) for _ in self.frames[v]]

    def __len__(self) -> int:
        return len(self.sources)

    def batch(self, indices: Sequence[int]) -> ClipBatch:
        return ClipBatch.collate([self._clip(*divmod(i, self.frames.shape[1])) for i in indices])

    def _clip(self, video: int, time: int) -> Clip:
        masks = None if self.masks is None else self.masks[video, time, None]
        where = torch.tensor([time])
        return Clip(self.frames[video, time, None], f"video {video}", where, masks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("frames", type=Path)
    parser.add_argument("--model", default="geoco-solids", help="a shipped name, a run or a file")
    parser.add_argument("--windows", type=int)
    parser.add_argument("--tables", default="factual,editing,stability")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("evaluation"))
    arguments = parser.parse_args()
    loaded = pretrained.load(arguments.model, arguments.device)
    evaluation.evaluate(
        evaluation.adapter(loaded.model, loaded.config),
        Frames(arguments.frames),
        arguments.out,
        arguments.model,
        arguments.tables.split(","),
        windows=arguments.windows,
        figures=True,
        progress=lambda table, done, total: print(f"\r{table} {done}/{total}  ", end=""),
    )
    print(f"\nwrote {arguments.out / 'tables.md'}")


if __name__ == "__main__":
    main()
