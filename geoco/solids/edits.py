"""Exact layer counterfactuals: what a picture would be if one object were moved, resized, replaced.

An edit acts in the image plane on an object's layer: its body and its shadow, as the camera saw
them. Depth order, background and all other layers stay. Nothing is inpainted, because every layer
is known in full: what an object hid, and what lay outside the picture.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from geoco.errors import GeocoError
from geoco.solids.render import Pictures, render_scenes
from geoco.solids.scenes import Scenes
from geoco.solids.tracing import Canvas, Placement, trace_rays


@dataclass(frozen=True)
class Move:
    """Shift an object by pixels, x to the right and y down."""

    object: int
    dx: float
    dy: float


@dataclass(frozen=True)
class Scale:
    """Resize an object about the centroid of its whole outline."""

    object: int
    factor: float


@dataclass(frozen=True)
class Replace:
    """Put another object's layer in an object's place: same centroid, same RMS radius."""

    object: int
    donor_scene: int
    donor_object: int


@dataclass(frozen=True)
class Remove:
    """Take an object away, with its shadow."""

    object: int


SceneEdit = Move | Scale | Replace | Remove


@dataclass(frozen=True)
class Outlines:
    """Whole outlines in pixels, hidden parts and up to one canvas beyond the edges included."""

    centroid: Float64[Tensor, "scene object 2"]
    radius: Float64[Tensor, "scene object"]  # RMS distance from the centroid
    defined: Bool[Tensor, "scene object"]

    def select(
        self, scene: Int64[Tensor, " edit"], item: Int64[Tensor, " edit"]
    ) -> tuple[Float64[Tensor, "edit 2"], Float64[Tensor, " edit"]]:
        """Centroids and radii of some outlines."""
        for number in (~self.defined[scene, item]).nonzero()[:1, 0].tolist():
            raise GeocoError(
                f"object {int(item[number])} of scene {int(scene[number])} is too far outside the "
                "picture to be resized or replaced; choose one that is at least partly near it"
            )
        return self.centroid[scene, item], self.radius[scene, item]

    def to(self, device: torch.device | str) -> "Outlines":
        return Outlines(self.centroid.to(device), self.radius.to(device), self.defined.to(device))


def measure_outlines(
    scenes: Scenes, canvas: Canvas, wanted: Bool[Tensor, "scene object"] | None = None
) -> Outlines:
    """Centroid and RMS radius of whole outlines, of every object or of some, from their samples."""
    count, objects = scenes.present.shape
    placement = Placement.from_scenes(scenes)
    if wanted is not None:
        placement = replace(placement, shown=placement.shown & wanted)
    hits = trace_rays(scenes, canvas, placement, margin=max(canvas.height, canvas.width))
    sums = torch.zeros(5, count * objects, dtype=torch.int64, device=hits.layer.device)
    # Whole numbers, so that the sums are exact in any order.
    x, y = 2 * hits.column + 1, 2 * hits.row + 1
    for total, values in zip(sums, (torch.ones_like(x), x, y, x * x, y * y), strict=True):
        total.index_add_(0, hits.layer, values)
    mass, sum_x, sum_y, sum_xx, sum_yy = sums.view(5, count, objects).double()
    defined = mass > 0
    mass = mass.clamp(min=1)
    mean_x, mean_y = sum_x / mass, sum_y / mass
    variance = sum_xx / mass - mean_x * mean_x + sum_yy / mass - mean_y * mean_y
    halves = 2 * canvas.supersample
    return Outlines(
        centroid=torch.stack((mean_x, mean_y), -1) / halves,
        radius=variance.clamp(min=0).sqrt() / halves,
        defined=defined,
    )


def render_counterfactuals(
    scenes: Scenes,
    canvas: Canvas,
    edits: Sequence[tuple[int, SceneEdit]],
    amodal: bool = False,
) -> Pictures:
    """The picture and masks of each (scene, edit), one canvas per edit."""
    return render_scenes(scenes, canvas, place_edits(scenes, canvas, edits), amodal)


def place_edits(
    scenes: Scenes, canvas: Canvas, edits: Sequence[tuple[int, SceneEdit]]
) -> Placement:
    """The placement that carries out each (scene, edit)."""
    present = scenes.present.tolist()
    for scene, edit in edits:
        _check_edit(present, scene, edit)
    device = scenes.present.device
    background = torch.tensor([scene for scene, _ in edits], dtype=torch.int64)
    fact = Placement.from_scenes(scenes.to("cpu"))
    source, item, shown = (values[background] for values in (fact.scene, fact.object, fact.shown))
    scale, shift = fact.scale[background], fact.shift[background]

    moves = _Rows.of(edits, Move, lambda edit: (edit.dx, edit.dy))
    shift[moves.row, moves.object] = moves.values
    removals = _Rows.of(edits, Remove, lambda edit: (0, 0))
    shown[removals.row, removals.object] = False

    resizes = _Rows.of(edits, Scale, lambda edit: (edit.factor, edit.factor))
    swaps = _Rows.of(edits, Replace, lambda edit: (edit.donor_scene, edit.donor_object))
    resized = (background[resizes.row], resizes.object)
    replaced = (background[swaps.row], swaps.object)
    donors = (swaps.values[:, 0].long(), swaps.values[:, 1].long())
    wanted = torch.zeros_like(fact.shown)
    for place in (resized, replaced, donors):
        wanted[place] = True
    if wanted.any():
        whole = measure_outlines(scenes, canvas, wanted.to(device)).to("cpu")
        center, _ = whole.select(*resized)
        place, factor = (resizes.row, resizes.object), resizes.values[:, 0]
        scale[place], shift[place] = factor, center * (1 - factor)[:, None]
        center, radius = whole.select(*replaced)
        donor_center, donor_radius = whole.select(*donors)
        place, ratio = (swaps.row, swaps.object), radius / donor_radius
        source[place], item[place] = donors
        scale[place], shift[place] = ratio, center - donor_center * ratio[:, None]
    order = fact.order[background]
    placement = Placement(background, source, item, shown, scale, shift, order, repeated=True)
    return placement.to(device)


@dataclass(frozen=True)
class _Rows:
    """Edits of one kind among all: which they are, of which object, and two numbers of each."""

    row: Int64[Tensor, " edit"]
    object: Int64[Tensor, " edit"]
    values: Float64[Tensor, "edit 2"]

    @classmethod
    def of(
        cls,
        edits: Sequence[tuple[int, SceneEdit]],
        kind: type,
        read: Callable[[Any], tuple[float, float]],
    ) -> "_Rows":
        chosen = [row for row, (_, edit) in enumerate(edits) if isinstance(edit, kind)]
        some = [edits[row][1] for row in chosen]
        return cls(
            torch.tensor(chosen, dtype=torch.int64),
            torch.tensor([edit.object for edit in some], dtype=torch.int64),
            torch.tensor([read(edit) for edit in some], dtype=torch.float64).view(-1, 2),
        )


def _check_edit(present: Sequence[Sequence[bool]], scene: int, edit: SceneEdit) -> None:
    """Refuse what cannot be done, in a sentence."""
    places = [(scene, edit.object)]
    if isinstance(edit, Replace):
        places.append((edit.donor_scene, edit.donor_object))
    for number, item in places:
        if not 0 <= number < len(present):
            raise GeocoError(f"{edit}: there is no scene {number}; there are {len(present)} scenes")
        if not (0 <= item < len(present[number]) and present[number][item]):
            here = [k for k, there in enumerate(present[number]) if there]
            raise GeocoError(f"{edit}: scene {number} has no object {item}; it has {here}")
    if isinstance(edit, Scale) and not 0 < edit.factor < math.inf:
        raise GeocoError(f"{edit}: the factor must be a positive number")
    if isinstance(edit, Move) and not (math.isfinite(edit.dx) and math.isfinite(edit.dy)):
        raise GeocoError(f"{edit}: dx and dy must be finite numbers of pixels")
