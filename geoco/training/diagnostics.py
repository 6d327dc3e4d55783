"""What a run shows of itself: pictures of scenes and of commands, and gradients by module."""

import math
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from geoco import drawing, media
from geoco.data import ClipBatch
from geoco.metrics import rgb
from geoco.models import compositing
from geoco.models.interface import Model, Reconstruction
from geoco.models.slots import Binding, Slots
from geoco.training.curriculum import TERMS, Plan
from geoco.training.objective import Draws
from geoco.training.step import Stepper

MOVE = 6  # pixels of the commanded move
RESIZE = 1.5  # factor of the commanded resize


# Compiled parts would be compiled anew for every size of batch: looking at a model runs eagerly.
@torch.compiler.set_stance("force_eager")
@torch.no_grad()
def draw_scenes(
    model: Model,
    video: Float[Tensor, "batch 1 3 height width"],
    positions: Float[Tensor, "batch slot 2"],
    zoom: int = 2,
) -> drawing.Picture:
    """A row per scene: input, reconstruction, masks, one move, one resize, one transplant.

    The slot with the largest object obeys; it takes the appearance of the next scene's.
    """
    binding = model.bind(video, positions)
    scene = model.decode(binding)
    slots = binding.slots
    chosen = _find_largest_slot(scene)
    commanded = compositing.compute_masks(scene.fields.logits)
    picked = (torch.arange(slots.scale.shape[-1], device=chosen.device) == chosen[:, None])[:, None]
    moved = slots.position.clone()
    moved[..., 0] += MOVE * 2 / (video.shape[-1] - 1)
    given = slots.appearance[torch.arange(len(chosen)), 0, chosen].roll(-1, 0)[:, None, None]
    edits = [
        replace(slots, position=torch.where(picked[..., None], moved, slots.position)),
        replace(slots, scale=torch.where(picked, RESIZE * slots.scale, slots.scale)),
        replace(slots, appearance=torch.where(picked[..., None], given, slots.appearance)),
    ]
    # Masks by number, the background's left out: a picture shows what is not background.
    background = compositing.find_measurement_background(scene.alpha)
    numbers = commanded.long().argmax(-3) + 1
    labels = numbers.masked_fill(numbers == background[..., None, None] + 1, 0)
    columns = [
        *(_split_pictures(image) for image in (video, scene.image)),
        *(_split_pictures(_draw_edited(model, binding, edit)) for edit in edits),
    ]
    masks = [
        drawing.overlay_masks(frame, label.cpu().numpy().astype(np.uint8), zoom)
        for frame, label in zip(columns[0], labels[:, 0], strict=True)
    ]
    rows = []
    for index, mask in enumerate(masks):
        row = [drawing.magnify(column[index], zoom) for column in columns]
        rows.append([*row[:2], mask, *row[2:]])
    return drawing.compose_sheet(rows)


def measure_gradient_norms(
    stepper: Stepper, batch: ClipBatch, draws: Draws, plan: Plan
) -> dict[str, float]:
    """By "term/module", the norm of the gradient that a term sends to a module.

    Terms have the weights of the curriculum, or none where it does not know them.
    """
    model = stepper.model
    norms: dict[str, float] = {}
    for term in stepper.objective.terms:
        if term in TERMS and term not in plan.mode.terms:
            norms |= {f"{term}/{name}": math.nan for name, _ in model.named_children()}
            continue
        for parameter in model.parameters():
            parameter.grad = None
        weights = {t: plan.weights[t] if t == term else 0.0 for t in TERMS}
        weight = sum(weights.values()) if term in TERMS else 1.0
        losses = stepper.evaluate(batch, draws, replace(plan, weights=weights))
        losses.backward_alone(term, weight)
        stepper.sum_gradients()
        for name, part in model.named_children():
            squares = [p.grad.square().sum() for p in part.parameters() if p.grad is not None]
            norms[f"{term}/{name}"] = float(torch.stack(squares).sum().sqrt()) if squares else 0.0
    for parameter in model.parameters():
        parameter.grad = None
    return norms


@torch.compiler.set_stance("force_eager")
@torch.no_grad()
def measure_psnr(
    model: Model,
    video: Float[Tensor, "batch time 3 height width"],
    positions: Float[Tensor, "batch slot 2"],
) -> float:
    """The mean PSNR of frames that the model reads and draws."""
    values = []
    for frames, start in zip(video.split(16), positions.split(16), strict=True):
        image = model.decode(model.bind(frames, start)).image
        values.append(rgb.psnr(image, frames).flatten())
    return float(torch.cat(values).mean())


def _draw_edited(model: Model, binding: Binding, slots: Slots) -> Tensor:
    """Pictures of edited slots, in the way in which the model obeys."""
    fields = model.refine(model.decode_edited(slots, binding.slots), binding.attention)
    return Reconstruction(replace(binding, slots=slots), fields).image


def _find_largest_slot(scene: Reconstruction) -> Int64[Tensor, " batch"]:
    """The slot that has most pixels, of those that are not background."""
    owned = compositing.compute_masks(scene.fields.logits).sum((-2, -1))[:, 0]
    background = compositing.find_measurement_background(scene.alpha)[:, 0]
    slots = torch.arange(owned.shape[-1], device=owned.device)
    return owned.masked_fill(slots == background[:, None], -1).argmax(-1)


def _split_pictures(image: Float[Tensor, "batch 1 3 height width"]) -> list[drawing.Picture]:
    return list(media.to_bytes(image[:, 0]))
