"""Who is evaluated: windows, starting positions, factual slots and supports, valid objects.

The single-frame protocol takes the first frame of every window, that of videos (`video_rows`) all
of its frames; a frame is a row of `Factual`, from which every table reads. All that decides who
takes part (background, validity, donors) is fixed here from factual outputs, before any
intervention. The starting positions belong to a window, not to a batch, so that results do not
depend on how many windows are computed at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64, UInt8
from torch import Tensor

from geoco import edit_maps, metrics
from geoco.data import ClipBatch
from geoco.errors import GeocoError
from geoco.evaluation import supports
from geoco.evaluation.interfaces import Encoded, SlotModel
from geoco.metrics.rgb import psnr
from geoco.models import compositing
from geoco.models.slots import Slots, draw_positions

SEED = 42
VIDEO_SEED = 20260723  # of models that carry slots through videos
GROUP = 4  # windows that share a generator: the paper's batch
INITIALIZATIONS = 4  # of the reconstruction
_APART = 1_000_000  # seeds between two initialisations of a window
_CHUNK = 64  # rows whose masks are measured at a time

Progress = Callable[[int, int], None]


@runtime_checkable
class Windows(Protocol):
    """What is evaluated on: the datasets of `geoco.data`, or anything like them.

    A `description`, a line of text, goes into the results if there is one.
    """

    @property
    def sources(self) -> Sequence[str]:
        """The video that each window is cut from; windows of a video in their order."""

    def __len__(self) -> int: ...

    def batch(self, indices: Sequence[int]) -> ClipBatch: ...


@dataclass(frozen=True)
class Factual:
    """Factual slots and supports of every frame, on the CPU: what all edits start from.

    A row is a frame: the first of a window, or one of `length` that follow each other. The model's
    own canvas is that of `masks`; reference masks may have another size.
    """

    window: Int64[np.ndarray, " window"]  # index in the dataset
    source: tuple[str, ...]
    slots: Slots  # [window slot ...]
    attention: Float[Tensor, "window slot token"] | None
    masks: Bool[Tensor, "window slot height width"]  # measurement supports
    background: Int64[Tensor, " window"]
    valid: Bool[Tensor, "window slot"]  # objects: not background, at least ten pixels
    frame: UInt8[Tensor, "window 3 height width"]
    image: Float[Tensor, "window 3 height width"]  # its reconstruction
    psnr: Float64[Tensor, " window"]
    reference: UInt8[Tensor, "window rows columns"] | None  # labels from outside, 0 is background
    device: torch.device | str = "cpu"  # of the model: where masks are quickly warped
    owner: UInt8[Tensor, "window rows columns"] | None = (
        None  # slots, where masks have another size
    )
    active: Bool[Tensor, "window slot"] | None = None  # of a model that closes slots
    length: int = 1  # rows of a window

    def __len__(self) -> int:
        return len(self.source)

    @property
    def canvas(self) -> tuple[int, int]:
        """Height and width of the model's frames."""
        height, width = self.masks.shape[-2:]
        return height, width

    @property
    def clip(self) -> Int64[np.ndarray, " window"]:
        """The number of each row's window among those that are evaluated."""
        return np.arange(len(self)) // self.length

    @property
    def time(self) -> Int64[np.ndarray, " window"]:
        """The number of each row's frame within its window."""
        return np.arange(len(self)) % self.length

    @cached_property
    def owners(self) -> UInt8[Tensor, "window rows columns"]:
        """Which slot each pixel belongs to, at the size of the reference masks if there are any."""
        return (
            self.masks.to(torch.uint8).argmax(1).to(torch.uint8)
            if self.owner is None
            else self.owner
        )

    @property
    def video(self) -> Int64[np.ndarray, " window"]:
        """The number of each window's video, in the order in which videos first appear."""
        names = {name: number for number, name in enumerate(dict.fromkeys(self.source))}
        return np.array([names[name] for name in self.source], dtype=np.int64)

    @property
    def objects(self) -> tuple[Int64[Tensor, " object"], Int64[Tensor, " object"]]:
        """Window (a row of this record) and slot of every valid object."""
        window, slot = self.valid.nonzero(as_tuple=True)
        return window, slot

    @property
    def rank(self) -> Int64[Tensor, " object"]:
        """The index of every object among the valid foreground slots of its window."""
        return (self.valid.long().cumsum(1) - 1)[self.valid]

    @property
    def explicit(self) -> bool:
        """Whether slots have a position and a scale of their own."""
        return bool(self.slots.position.isfinite().all() and self.slots.scale.isfinite().all())

    @cached_property
    def moments(self) -> metrics.SupportMoments:
        """Of the measurement supports."""
        pieces = [
            metrics.support_moments(some.to(self.device)) for some in self.masks.split(_CHUNK)
        ]
        names = [part.name for part in fields(metrics.SupportMoments)]
        return metrics.SupportMoments(
            *(torch.cat([getattr(piece, name) for piece in pieces]).cpu() for name in names)
        )

    @property
    def anchor(self) -> Float[Tensor, "window slot 2"]:
        """About what a slot is resized: its position, or the decoded centroid if it has none."""
        return self.slots.position if self.explicit else self.moments.center

    @property
    def extent(self) -> Float[Tensor, "window slot"]:
        """What a slot's size is told by: its scale, or the decoded radius if it has none."""
        return self.slots.scale if self.explicit else self.moments.radius

    def encoded(self, rows: Int64[Tensor, " row"]) -> Encoded:
        """The factual encodings of some windows."""
        return Encoded(self.slots, self.attention, self.active).rows(rows)


def order_window_major(sources: Sequence[str]) -> Int64[np.ndarray, " window"]:
    """Window w of every video, then w + 1 of every video: the order in which donors are sought."""
    seen: dict[str, int] = {}
    turn = np.empty(len(sources), dtype=np.int64)
    for place, source in enumerate(sources):
        turn[place] = seen[source] = seen.get(source, -1) + 1
    return np.argsort(turn, kind="stable")


def choose_windows(
    dataset: Windows, limit: int | None, spread: bool = False
) -> Int64[np.ndarray, " window"]:
    """All windows, or some: those that come first in window-major order, to keep videos many.

    Those are the starts of videos, which need not be like the rest of them; `spread` takes some at
    equal steps from all windows instead.
    """
    if len(dataset) == 0 or (limit is not None and limit < 1):
        raise GeocoError("an evaluation needs at least one window, got none")
    if spread and limit is not None:
        places = np.linspace(0, len(dataset) - 1, min(limit, len(dataset)))
        return places.round().astype(np.int64)
    return np.sort(order_window_major(dataset.sources)[:limit])


def draw_starting_positions(
    window: int, slots: int, initialization: int = 0, seed: int = SEED
) -> Float[Tensor, "{slots} 2"]:
    """Where the slots of a window start: uniform in [-1, 1], from its group's own generator."""
    own = seed + window // GROUP + initialization * _APART
    return draw_positions(GROUP, slots, torch.Generator().manual_seed(own))[window % GROUP]


def compute_factual(
    model: SlotModel,
    dataset: Windows,
    batch: int,
    limit: int | None = None,
    progress: Progress = lambda done, total: None,
) -> Factual:
    """Encode and decode the first frame of every window, `batch` of them at a time."""
    return compute_factual_of(model, dataset, choose_windows(dataset, limit), batch, progress)


@torch.no_grad()
def compute_factual_of(
    model: SlotModel,
    dataset: Windows,
    windows: Int64[np.ndarray, " window"],
    batch: int,
    progress: Progress = lambda done, total: None,
) -> Factual:
    """The same of some windows."""
    pieces = []
    for first in range(0, len(windows), batch):
        some = windows[first : first + batch]
        pieces.append(_compute_piece(model, dataset, some))
        progress(first + len(some), len(windows))
    return join_factuals(pieces)


@torch.no_grad()
def measure_reconstruction(
    model: SlotModel, factual: Factual, initialization: int, batch: int
) -> Float64[Tensor, " window"]:
    """PSNR of every window's first frame from another start."""
    qualities = []
    for first in range(0, len(factual), batch):
        some = slice(first, first + batch)
        frames = factual.frame[some].float() / 255
        _, _, image = _reconstruct(model, frames, factual.window[some], initialization)
        qualities.append(psnr(image, frames.to(image.device)).cpu())
    return torch.cat(qualities)


@dataclass(frozen=True)
class Frames:
    """Frames of windows, of which rows are made; `reference` may have another size."""

    window: Int64[np.ndarray, " row"]
    source: tuple[str, ...]
    pixels: UInt8[Tensor, "row 3 height width"]
    reference: UInt8[Tensor, "row rows columns"] | None
    length: int


def make_rows(
    frames: Frames,
    encoded: Encoded,
    logits: Float[Tensor, "row slot height width"],
    image: Float[Tensor, "row 3 height width"],
) -> Factual:
    """Everything about some frames that follows from what a model made of them."""
    masks = compositing.compute_masks(logits)
    background = compositing.find_measurement_background(compositing.compute_alpha(logits))
    slots = torch.arange(masks.shape[1], device=masks.device)
    objects = edit_maps.is_large_enough(masks) & (slots != background[:, None])
    attention, active, reference = encoded.attention, encoded.active, frames.reference
    if active is not None:
        objects = objects & active.to(objects.device)
    owner = None
    if reference is not None and reference.shape[-2:] != masks.shape[-2:]:
        owner = supports.find_owners(logits, reference.shape[-2:]).cpu()
    target = frames.pixels.to(image.device).float() / 255
    return Factual(
        window=frames.window,
        source=frames.source,
        slots=encoded.slots.to("cpu"),
        attention=None if attention is None else attention.cpu(),
        masks=masks.cpu(),
        background=background.cpu(),
        valid=objects.cpu(),
        frame=frames.pixels.cpu(),
        image=image.float().cpu(),
        psnr=psnr(image, target).cpu(),
        reference=None if reference is None else reference.cpu(),
        device=masks.device,
        owner=owner,
        active=None if active is None else active.cpu(),
        length=frames.length,
    )


def _compute_piece(model: SlotModel, dataset: Windows, windows: np.ndarray) -> Factual:
    clips = dataset.batch(windows.tolist())
    check_size(model, clips)
    masks = None if clips.masks is None else clips.masks[:, 0]
    frames = Frames(windows, clips.sources, clips.video[:, 0], masks, 1)
    return make_rows(frames, *_reconstruct(model, frames.pixels.float() / 255, windows, 0))


def _reconstruct(
    model: SlotModel, frames: Tensor, windows: np.ndarray, initialization: int
) -> tuple[Encoded, Tensor, Tensor]:
    """Encodings, alpha logits and pictures of frames."""
    starts = [draw_starting_positions(int(w), model.slots, initialization) for w in windows]
    encoded = model.encode(frames, torch.stack(starts))
    rgb, logits = model.decode(encoded, encoded.slots)
    return encoded, logits, compositing.composite(rgb, compositing.compute_alpha(logits))


def check_size(model: SlotModel, clips: ClipBatch) -> None:
    """Frames must have the model's size."""
    height, width = clips.video.shape[-2:]
    if (height, width) != (model.size, model.size):
        raise GeocoError(
            f"the model works on {model.size} x {model.size} pixels, but the dataset has "
            f"{height} x {width}"
        )


def join_factuals(pieces: Sequence[Factual]) -> Factual:
    """Several records as one."""

    def cat(name: str) -> Tensor:
        return torch.cat([getattr(piece, name) for piece in pieces])

    def cat_if_all(name: str) -> Tensor | None:
        return None if any(getattr(piece, name) is None for piece in pieces) else cat(name)

    return Factual(
        window=np.concatenate([piece.window for piece in pieces]),
        source=tuple(name for piece in pieces for name in piece.source),
        slots=Slots.cat([piece.slots for piece in pieces]),
        attention=cat_if_all("attention"),
        masks=cat("masks"),
        background=cat("background"),
        valid=cat("valid"),
        frame=cat("frame"),
        image=cat("image"),
        psnr=cat("psnr"),
        reference=cat_if_all("reference"),
        device=pieces[0].device,
        owner=cat_if_all("owner"),
        active=cat_if_all("active"),
        length=pieces[0].length,
    )
