"""`solids`: Obj3D-like scenes of colliding solids, made on the fly with all that is true of them.

episodes = simulate(config, "train", ids)       what stands where, and how it moves
scenes = moments(episodes, episode, frame)      single moments, as tensors
pictures = render(scenes, canvas)               frames, visible and amodal masks
targets = counterfactual(scenes, canvas, edits) the exact result of moving, resizing, replacing
"""

from geoco.solids.edits import (
    Edit,
    Move,
    Outlines,
    Remove,
    Replace,
    Scale,
    counterfactual,
    outlines,
    placed,
)
from geoco.solids.physics import MATERIALS, SHAPES, Episodes, simulate
from geoco.solids.render import Layers, Pictures, layers, render
from geoco.solids.scenes import Scenes, moments
from geoco.solids.tracing import Canvas, Placement

__all__ = [
    "MATERIALS",
    "SHAPES",
    "Canvas",
    "Edit",
    "Episodes",
    "Layers",
    "Move",
    "Outlines",
    "Pictures",
    "Placement",
    "Remove",
    "Replace",
    "Scale",
    "Scenes",
    "counterfactual",
    "layers",
    "moments",
    "outlines",
    "placed",
    "render",
    "simulate",
]
