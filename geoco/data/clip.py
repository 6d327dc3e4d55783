"""The one sample record: `Clip`, and `ClipBatch` for many of them, from the dataset to the GPU.

An image is a clip of one frame.

Axis legend of the whole project: batch time slot token dim height width; `object` counts the
ground-truth instances of a scene.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import BFloat16, Bool, Float, Int64, UInt8
from torch import Tensor

from geoco.errors import GeocoError


@dataclass(frozen=True)
class Clip:
    """Consecutive frames of one video.

    `source` names the video, so that transplant pairs can come from different ones. In `masks`
    0 is background and i + 1 the visible part of object i; they show the same view as the frames,
    possibly in more pixels. `amodal` holds whole objects, hidden parts included.
    """

    video: UInt8[Tensor, "time 3 height width"]
    source: str
    frames: Int64[Tensor, " time"]
    masks: UInt8[Tensor, "time mask_height mask_width"] | None = None
    amodal: Bool[Tensor, "time object height width"] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        time, channels, height, width = self.video.shape
        _check_shape(channels == 3, "video", "[time, 3, height, width]", self.video)
        _check_shape(self.frames.shape == (time,), "frames", f"[{time}]", self.frames)
        if self.masks is not None:
            fits = self.masks.ndim == 3 and len(self.masks) == time
            _check_shape(fits, "masks", f"[{time}, mask height, mask width]", self.masks)
        if self.amodal is not None:
            fits = self.amodal.shape[:1] + self.amodal.shape[2:] == (time, height, width)
            _check_shape(fits, "amodal", f"[{time}, object, {height}, {width}]", self.amodal)


@dataclass(frozen=True)
class ClipBatch:
    """Clips of one length and size, stacked. Optional fields are present only if all have them.

    `source_numbers` are the numbers of the videos in their dataset: what tells them apart on a GPU,
    where transplants are chosen. Batches for training have them, and neither masks nor metadata.
    `features` are a frozen encoder's, of the frames and, as a second view, of their mirror images.
    """

    video: UInt8[Tensor, "batch time 3 height width"]
    sources: tuple[str, ...]
    frames: Int64[Tensor, "batch time"]
    masks: UInt8[Tensor, "batch time mask_height mask_width"] | None = None
    amodal: Bool[Tensor, "batch time object height width"] | None = None
    metadata: tuple[Mapping[str, Any], ...] = ()
    source_numbers: Int64[Tensor, " batch"] | None = None
    features: BFloat16[Tensor, "batch time view token channel"] | None = None

    @staticmethod
    def collate(clips: Sequence[Clip]) -> "ClipBatch":
        """Stack clips; where scenes have fewer objects, `amodal` is padded with empty ones."""
        if not clips:
            raise GeocoError("a batch needs at least one clip, got none")
        shapes = {tuple(clip.video.shape) for clip in clips}
        if len(shapes) > 1:
            raise GeocoError(f"a batch needs clips of one shape, got {sorted(shapes)}")
        masks = [clip.masks for clip in clips if clip.masks is not None]
        sizes = {tuple(mask.shape[1:]) for mask in masks}
        if len(sizes) > 1:
            raise GeocoError(f"a batch needs masks of one size, got {sorted(sizes)}")
        amodal = [clip.amodal for clip in clips if clip.amodal is not None]
        return ClipBatch(
            video=torch.stack([clip.video for clip in clips]),
            sources=tuple(clip.source for clip in clips),
            frames=torch.stack([clip.frames for clip in clips]),
            masks=torch.stack(masks) if len(masks) == len(clips) else None,
            amodal=_stack_padded(amodal) if len(amodal) == len(clips) else None,
            metadata=tuple(clip.metadata for clip in clips),
        )

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, row: int) -> Clip:
        """One of the clips; its `amodal` keeps the padding."""
        return Clip(
            video=self.video[row],
            source=self.sources[row],
            frames=self.frames[row],
            masks=None if self.masks is None else self.masks[row],
            amodal=None if self.amodal is None else self.amodal[row],
            metadata=self.metadata[row] if self.metadata else {},
        )

    def images(self) -> Float[Tensor, "batch time 3 height width"]:
        """The frames as RGB in [0, 1]."""
        return self.video.float() / 255

    def tensors(self) -> dict[str, Tensor]:
        """The fields that are tensors, by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    def map(self, change: Callable[[Tensor], Tensor]) -> "ClipBatch":
        """The batch with every tensor changed in the same way."""
        changed: dict[str, Any] = {name: change(value) for name, value in self.tensors().items()}
        return replace(self, **changed)

    def to(self, device: torch.device | str) -> "ClipBatch":
        return self.map(lambda value: to_device(value, torch.device(device)))


def to_device(value: Tensor, device: torch.device) -> Tensor:
    """To the device without waiting for it."""
    if device.type == "cuda" and not value.is_cuda:
        return value.pin_memory().to(device, non_blocking=True)
    return value.to(device)


def _stack_padded(amodal: list[Tensor]) -> Tensor:
    most = max(masks.shape[1] for masks in amodal)
    stacked = amodal[0].new_zeros(len(amodal), amodal[0].shape[0], most, *amodal[0].shape[2:])
    for row, masks in zip(stacked, amodal, strict=True):
        row[:, : masks.shape[1]] = masks
    return stacked


def _check_shape(condition: bool, name: str, expected: str, got: Tensor) -> None:
    if not condition:
        raise GeocoError(f"clip {name}: expected shape {expected}, got {list(got.shape)}")
