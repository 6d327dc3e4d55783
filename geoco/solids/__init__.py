"""`solids`: Obj3D-like scenes of colliding solids, made on the fly with all that is true of them.

episodes = simulate_episodes(config, "train", ids)     what stands where, and how it moves
scenes = extract_scenes(episodes, episode, frame)      single moments, as tensors
pictures = render_scenes(scenes, canvas)               frames, visible and amodal masks
targets = render_counterfactuals(scenes, canvas, edits)    the exact result of each edit
"""

from geoco.solids.edits import (
    Move,
    Outlines,
    Remove,
    Replace,
    Scale,
    SceneEdit,
    measure_outlines,
    place_edits,
    render_counterfactuals,
)
from geoco.solids.physics import MATERIALS, SHAPES, Episodes, simulate_episodes
from geoco.solids.render import Layers, Pictures, render_frames, render_layers, render_scenes
from geoco.solids.scenes import Scenes, extract_scenes
from geoco.solids.tracing import Canvas, Placement

__all__ = [
    "MATERIALS",
    "SHAPES",
    "Canvas",
    "Episodes",
    "Layers",
    "Move",
    "Outlines",
    "Pictures",
    "Placement",
    "Remove",
    "Replace",
    "Scale",
    "SceneEdit",
    "Scenes",
    "extract_scenes",
    "measure_outlines",
    "place_edits",
    "render_counterfactuals",
    "render_frames",
    "render_layers",
    "render_scenes",
    "simulate_episodes",
]
