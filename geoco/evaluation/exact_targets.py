"""The truth about an edit, where a generator knows it: exact counterfactual pictures.

The visible-layer oracle guesses what an object hid and leaves its shadow behind. `solids` draws the
edited scene anew, shadows, hidden parts and depth order included.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from geoco.evaluation.commands import FACTORS, MOVES
from geoco.evaluation.reference_objects import AskedEdits, References
from geoco.evaluation.windows import Factual
from geoco.solids import Move, Pictures, Replace, Scale, SceneEdit


@runtime_checkable
class Generator(Protocol):
    """A dataset that can draw what a window's first frame would be after an edit."""

    def render_counterfactuals(
        self,
        indices: Sequence[int],
        edits: Sequence[tuple[int, SceneEdit]],
        device: torch.device | str = "cpu",
    ) -> Pictures:
        """One picture per edit; its scenes are places in `indices`, its objects labels less one."""


@dataclass(frozen=True)
class Truth:
    """The edited picture, and what is visible of the edited object in it."""

    image: Float64[Tensor, "edit 3 height width"]
    mask: Bool[Tensor, "edit height width"]


def draw_truths(
    generator: Generator,
    factual: Factual,
    objects: References,
    edits: AskedEdits,
    device: torch.device,
) -> Truth:
    """Exact pictures of some edits."""
    rows = objects.window[torch.cat((edits.object, edits.donor))]
    windows, where = rows.unique(return_inverse=True)
    scene, donor_scene = where.view(2, -1).tolist()
    item, donor_item = ((objects.label[part] - 1).tolist() for part in (edits.object, edits.donor))
    wanted = [
        (place, _build_edit(edits.kind, *numbers))
        for place, *numbers in zip(
            scene, edits.command.tolist(), item, donor_scene, donor_item, strict=True
        )
    ]
    drawn = generator.render_counterfactuals(
        factual.window[windows.numpy()].tolist(), wanted, device
    )
    labels = torch.tensor(item, device=device) + 1
    return Truth(drawn.frames.double() / 255, drawn.masks == labels[:, None, None])


def _build_edit(kind: str, command: int, item: int, donor_scene: int, donor_item: int) -> SceneEdit:
    if kind == "position":
        return Move(item, *MOVES[command])
    if kind == "scale":
        return Scale(item, FACTORS[command])
    return Replace(item, donor_scene, donor_item)
