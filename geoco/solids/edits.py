"""Exact layer counterfactuals: what a picture would be if one object were moved, resized, replaced.

An edit acts in the image plane on an object's layer: its body and its shadow, as the camera saw
them. Depth order, background and all other layers stay. Nothing is inpainted, because every layer
is known in full: what an object hid, and what lay outside the picture.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64
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

    def select(self, scene: int, item: int) -> tuple[Float64[Tensor, "2"], Float64[Tensor, ""]]:
        """Centroid and radius of one outline."""
        if not self.defined[scene, item]:
            raise GeocoError(
                f"object {item} of scene {scene} is too far outside the picture to be resized or "
                "replaced; choose one that is at least partly near it"
            )
        return self.centroid[scene, item], self.radius[scene, item]

    def to(self, device: torch.device | str) -> "Outlines":
        return Outlines(self.centroid.to(device), self.radius.to(device), self.defined.to(device))


def measure_outlines(scenes: Scenes, canvas: Canvas) -> Outlines:
    """Centroid and RMS radius of every object's whole outline, from its samples."""
    count, objects = scenes.present.shape
    hits = trace_rays(
        scenes, canvas, Placement.from_scenes(scenes), margin=max(canvas.height, canvas.width)
    )
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
    for scene, edit in edits:
        _check_edit(scenes, scene, edit)
    device = scenes.present.device
    background = torch.tensor([scene for scene, _ in edits], dtype=torch.int64)
    fact = Placement.from_scenes(scenes.to("cpu"))
    source, item, shown = (values[background] for values in (fact.scene, fact.object, fact.shown))
    scale, shift = fact.scale[background], fact.shift[background]
    whole = measure_outlines(scenes, canvas).to("cpu")
    for row, (scene, edit) in enumerate(edits):
        slot = (row, edit.object)
        match edit:
            case Move():
                shift[slot] = torch.tensor([edit.dx, edit.dy], dtype=torch.float64)
            case Remove():
                shown[slot] = False
            case Scale():
                center, _ = whole.select(scene, edit.object)
                scale[slot] = edit.factor
                shift[slot] = center * (1 - edit.factor)
            case Replace():
                center, radius = whole.select(scene, edit.object)
                donor_center, donor_radius = whole.select(edit.donor_scene, edit.donor_object)
                source[slot], item[slot] = edit.donor_scene, edit.donor_object
                scale[slot] = radius / donor_radius
                shift[slot] = center - donor_center * (radius / donor_radius)
    order = fact.order[background]
    return Placement(
        *(values.to(device) for values in (background, source, item, shown, scale, shift, order))
    )


def _check_edit(scenes: Scenes, scene: int, edit: SceneEdit) -> None:
    """Refuse what cannot be done, in a sentence."""
    places = [(scene, edit.object)]
    if isinstance(edit, Replace):
        places.append((edit.donor_scene, edit.donor_object))
    for number, item in places:
        if not 0 <= number < len(scenes):
            raise GeocoError(f"{edit}: there is no scene {number}; there are {len(scenes)} scenes")
        present = torch.nonzero(scenes.present[number]).flatten().tolist()
        if item not in present:
            raise GeocoError(f"{edit}: scene {number} has no object {item}; it has {present}")
    if isinstance(edit, Scale) and not 0 < edit.factor < math.inf:
        raise GeocoError(f"{edit}: the factor must be a positive number")
    if isinstance(edit, Move) and not (math.isfinite(edit.dx) and math.isfinite(edit.dy)):
        raise GeocoError(f"{edit}: dx and dy must be finite numbers of pixels")
