"""Where masks are compared: the model's own canvas, or that of the reference masks.

Editing is scored on the model's canvas. Whole videos and common objects are measured at the size of
the reference masks, 128 x 128 in MOVi-C beside frames of 64 x 64: supports there are those of
enlarged alpha, commands stay what they were, and ten pixels become forty.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from geoco import edit_maps
from geoco.edit_maps import AffineMap
from geoco.evaluation import supports
from geoco.evaluation.windows import Factual


@dataclass(frozen=True)
class Canvas:
    """A size, factual supports at it, and how edits are measured there."""

    factual: Factual
    size: tuple[int, int]

    @classmethod
    def of_model(cls, factual: Factual) -> "Canvas":
        return cls(factual, factual.canvas)

    @classmethod
    def of_reference(cls, factual: Factual) -> "Canvas":
        """That of the reference masks; the model's own if there are none."""
        if factual.reference is None:
            return cls.of_model(factual)
        height, width = factual.reference.shape[-2:]
        return cls(factual, (height, width))

    @property
    def fewest_pixels(self) -> int:
        """Of a valid object, and of a valid target: as much of the picture as ten of the model's.

        Pixels of a finer canvas are smaller, those of a coarser one not fewer.
        """
        height, width = self.factual.canvas
        share = self.size[0] * self.size[1] / (height * width)
        return round(edit_maps.FEWEST_PIXELS * max(1.0, share))

    def take_masks(
        self,
        row: Int64[Tensor, " mask"],
        slot: Int64[Tensor, " mask"],
        device: torch.device | str = "cpu",
    ) -> Bool[Tensor, "mask height width"]:
        """Factual supports of slots."""
        if self.size == self.factual.canvas:
            return self.factual.masks[row, slot].to(device)
        assert self.factual.owner is not None
        return self.factual.owner[row].to(device) == slot.to(device)[:, None, None]

    def take_scenes(self, row: Int64[Tensor, " row"]) -> Bool[Tensor, "row slot height width"]:
        """Factual supports of all slots of some frames."""
        if self.size == self.factual.canvas:
            return self.factual.masks[row]
        assert self.factual.owner is not None
        slots = torch.arange(self.factual.masks.shape[1])
        return self.factual.owner[row][:, None] == slots[:, None, None]

    def adapt(self, edit: AffineMap) -> AffineMap:
        """A map of the model's canvas as one of this."""
        return edit.resample(self.factual.canvas, self.size)

    def find_support(
        self, logits: Float[Tensor, "row slot height width"], slot: int
    ) -> Bool[Tensor, "row rows columns"]:
        """What a slot owns in decoded scenes."""
        return supports.find_support(logits, slot, self.size)
