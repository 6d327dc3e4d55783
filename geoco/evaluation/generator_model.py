"""The truth as a model: what the protocol gives to pictures in which nothing is wrong.

Targets are factual masks under a map. In truth a moved object may go behind another one, come out
from behind it, or bring in what lay beyond the edge; it is resized about the centroid of its whole
outline, and a donor is put in whole. So the generator's own counterfactual pictures do not score
F1 = 100. That is no upper bound: whoever paints an edited mask on top of everything can have more,
but not by being right.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64, UInt8
from torch import Tensor

from geoco import metrics
from geoco.data import SolidsDataset
from geoco.errors import GeocoError
from geoco.evaluation.interfaces import Decoded, Encoded
from geoco.evaluation.windows import order_window_major
from geoco.models.slots import Slots
from geoco.solids import Move, Replace, Scale, SceneEdit

_SURE = 20.0  # logits are this or its negative: the owner's alpha is one to the last bit
_LOOK = 64  # windows that are drawn at a time to find a frame among them
_NEAR = 1e-4  # pixels: commands arrive in float32, which does not hold a pixel of the grid


class TrueScenes:
    """Slot 0 is the background and slot i + 1 object i of a scene, each owning what is seen of it.

    Appearance says which object this is: the number of its window, and its label there. Position
    and scale are those of the visible mask, zero where there is none. Edits are the generator's:
    moves and sizes are told (`command`), an appearance from elsewhere puts that object's layer in
    this one's place. Every slot has the colours of the whole picture.

    Windows are told apart by their first frames. Two that look the same to the byte are the same
    here: what is hidden in them is taken from the one that comes first in window-major order.
    """

    def __init__(self, dataset: SolidsDataset) -> None:
        height, width = dataset.frame_size
        if height != width:
            raise GeocoError(f"only square frames can be evaluated, got {height} x {width}")
        self.size: int = height
        first = np.zeros(1, dtype=np.int64)
        self.slots: int = dataset.extract_scenes(first, first).present.shape[1] + 1
        self._dataset = dataset
        self._unseen: list[int] = order_window_major(dataset.sources).tolist()
        self._window: dict[bytes, int] = {}
        self._picture: dict[int, tuple[Tensor, Tensor]] = {}

    def encode(
        self,
        frames: Float[Tensor, "batch 3 height width"],
        starts: Float[Tensor, "batch slot 2"],
    ) -> Encoded:
        pixels = (255 * frames).round().to(torch.uint8).cpu()
        window = torch.tensor([self._find(frame.numpy().tobytes()) for frame in pixels])
        label = torch.arange(self.slots).expand(len(window), -1)
        seen = metrics.support_moments(_find_owned(self._factual(window)[1], label))
        appearance = torch.stack((window[:, None].expand_as(label), label), -1)
        return Encoded(Slots(appearance.float(), seen.center.nan_to_num(0), seen.radius), None)

    def decode(self, encoded: Encoded, slots: Slots) -> Decoded:
        """Scenes as they are, or with one object each exchanged for another."""
        known = encoded.slots
        if not (
            torch.equal(known.position, slots.position) and torch.equal(known.scale, slots.scale)
        ):
            raise GeocoError("true objects are moved and resized by `command`, not by their slots")
        window, label = known.appearance.long().unbind(-1)
        row, index = (known.appearance != slots.appearance).any(-1).nonzero(as_tuple=True)
        if len(row.unique()) < len(row):
            raise GeocoError("the generator exchanges one object of a scene at a time")
        frames, masks = self._factual(window[:, 0])
        if len(row):
            donor_window, donor = slots.appearance.long()[row, index].unbind(-1)
            places = torch.cat((window[row, index], donor_window))
            windows, place = places.unique(return_inverse=True)
            scene, donor_scene = place.view(2, -1).tolist()
            item = (label[row, index] - 1).tolist()
            parts = zip(item, donor_scene, (donor - 1).tolist(), strict=True)
            edits = [Replace(*part) for part in parts]
            frames[row], masks[row] = self._render_edited(windows, scene, edits)
        return _draw_masks(frames, masks, label)

    def command(
        self,
        encoded: Encoded,
        index: int,
        move: Float[Tensor, "batch 2"],
        factor: Float[Tensor, " batch"],
    ) -> Decoded:
        """Scenes with one object each moved, or resized about its whole outline's centroid."""
        window, label = encoded.slots.appearance.long().unbind(-1)
        pixels = move.double() * (self.size - 1) / 2
        whole = pixels.round()
        pixels = whole.where((pixels - whole).abs() < _NEAR, pixels)
        if ((pixels != 0).any(-1) & (factor != 1)).any():
            raise GeocoError("the generator moves an object or resizes it, not both at once")
        edits: list[SceneEdit] = [
            Move(item, *shift) if size == 1 else Scale(item, size)
            for item, shift, size in zip(
                (label[:, index] - 1).tolist(), pixels.tolist(), factor.tolist(), strict=True
            )
        ]
        windows, scene = window[:, index].unique(return_inverse=True)
        return _draw_masks(*self._render_edited(windows, scene.tolist(), edits), label)

    def _find(self, frame: bytes) -> int:
        """Which window this is the first frame of; windows are drawn until it is among them."""
        while frame not in self._window:
            some, self._unseen = self._unseen[:_LOOK], self._unseen[_LOOK:]
            if not some:
                raise GeocoError("a frame is not the first of any window of the dataset")
            pictures = self._factual(torch.tensor(some))[0]
            for window, picture in zip(some, pictures, strict=True):
                self._window.setdefault(picture.numpy().tobytes(), window)
        return self._window[frame]

    def _factual(
        self, windows: Int64[Tensor, " batch"]
    ) -> tuple[UInt8[Tensor, "batch 3 height width"], UInt8[Tensor, "batch height width"]]:
        """First frames and their masks; each window is drawn once."""
        missing = [window for window in windows.unique().tolist() if window not in self._picture]
        if missing:
            clips = self._dataset.batch(missing)
            assert clips.masks is not None
            pictures = zip(clips.video[:, 0].cpu(), clips.masks[:, 0].cpu(), strict=True)
            self._picture.update(zip(missing, pictures, strict=True))
        frames, masks = zip(*(self._picture[window] for window in windows.tolist()), strict=True)
        return torch.stack(frames), torch.stack(masks)

    def _render_edited(
        self, windows: Int64[Tensor, " scene"], scene: list[int], edits: Sequence[SceneEdit]
    ) -> tuple[UInt8[Tensor, "batch 3 height width"], UInt8[Tensor, "batch height width"]]:
        """One picture per edit of a scene, which is a place in `windows`."""
        asked = list(zip(scene, edits, strict=True))
        drawn = self._dataset.render_counterfactuals(windows.tolist(), asked, self._dataset.device)
        return drawn.frames.cpu(), drawn.masks.cpu()


def _find_owned(
    masks: UInt8[Tensor, "batch height width"], label: Int64[Tensor, "batch slot"]
) -> Bool[Tensor, "batch slot height width"]:
    return masks[:, None] == label[..., None, None]


def _draw_masks(
    frames: UInt8[Tensor, "batch 3 height width"],
    masks: UInt8[Tensor, "batch height width"],
    label: Int64[Tensor, "batch slot"],
) -> Decoded:
    logits = torch.where(_find_owned(masks, label), _SURE, -_SURE)
    rgb = (frames.float() / 255)[:, None].expand(-1, label.shape[1], -1, -1, -1)
    return rgb, logits
