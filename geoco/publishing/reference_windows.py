"""The first windows of a model's validation split, and what the model makes of them, as a file.

Frames are stored too, so that masks and PSNR can be computed again without the data. They are
evaluated by the protocol's own factual pass: starting positions belong to a window's number.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from jaxtyping import Float64, UInt8
from torch import Tensor

from geoco.data import ClipBatch
from geoco.errors import GeocoError
from geoco.evaluation import Factual, SlotModel, Windows, windows
from geoco.files import parse_json

FILE = "first-windows.safetensors"
FORMAT = 1
_KEY = "geoco"

Owners = UInt8[Tensor, "window height width"]  # the slot that owns each pixel


@dataclass(frozen=True)
class FirstWindows:
    """First frames of the first windows of a dataset, which can be evaluated like a dataset."""

    frames: UInt8[Tensor, "window 3 height width"]
    sources: tuple[str, ...]

    @staticmethod
    def from_dataset(dataset: Windows, count: int) -> "FirstWindows":
        clips = dataset.batch(range(min(count, len(dataset))))
        return FirstWindows(clips.video[:, 0], clips.sources)

    def __len__(self) -> int:
        return len(self.sources)

    def batch(self, indices: Sequence[int]) -> ClipBatch:
        rows = torch.tensor(indices)
        sources = tuple(self.sources[index] for index in indices)
        return ClipBatch(self.frames[rows, None], sources, torch.zeros_like(rows)[:, None])

    def evaluate(
        self, model: SlotModel, progress: windows.Progress = lambda done, total: None
    ) -> Factual:
        """What a model makes of them."""
        return windows.compute_factual(model, self, windows.GROUP, None, progress)


def find_owners(factual: Factual) -> Owners:
    return factual.masks.to(torch.uint8).argmax(1).to(torch.uint8)


def encode_file(first: FirstWindows, factual: Factual) -> bytes:
    """The file's content."""
    tensors = {
        "frames": first.frames.contiguous(),
        "masks": find_owners(factual),
        "psnr": factual.psnr.double(),
    }
    header = {"format": FORMAT, "kind": "first windows", "sources": first.sources}
    return safetensors.torch.save(tensors, {_KEY: json.dumps(header)})


def read_file(file: Path) -> tuple[FirstWindows, Float64[Tensor, " window"], Owners]:
    """First windows with their PSNR and masks."""
    if not file.is_file():
        raise GeocoError(
            f"{file}: there is no such file, and so nothing to compare with: give a model that "
            "was made by geoco publish"
        )
    try:
        with safetensors.safe_open(file, framework="pt") as opened:
            header = parse_json(opened.metadata()[_KEY])
            frames, masks, psnr = (opened.get_tensor(part) for part in ("frames", "masks", "psnr"))
        sources = tuple(header["sources"])
        whole = (
            header["format"] == FORMAT
            and frames.dtype == masks.dtype == torch.uint8
            and frames.ndim == 4
            and frames.shape[:2] == (len(sources), 3)
            and masks.shape == (len(sources), *frames.shape[2:])
            and psnr.shape == (len(sources),)
            and len(sources) > 0
        )
    except (safetensors.SafetensorError, OSError, KeyError, TypeError, ValueError):
        whole = False
    if not whole:
        raise GeocoError(f"{file}: damaged, or of another version: publish the model again")
    return FirstWindows(frames, sources), psnr, masks
