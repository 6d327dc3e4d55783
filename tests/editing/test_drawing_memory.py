"""Drawing at the own size: its memory is bounded and told before, and what is small is not slow."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers import make_tiny_model
from PIL import Image
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from geoco import config
from geoco.data import SolidsDataset
from geoco.edit_maps import AffineMap
from geoco.editing.editor import Editor, Scene
from geoco.editing.rendering import _warp
from geoco.models import pretrained

SIDE = 160


class Memory(TorchDispatchMode):
    """Bytes of the tensors that live, and the most of them at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = call(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                key = storage._cdata
                if key not in self._sizes:
                    self._sizes[key] = storage.nbytes()
                    self.now += storage.nbytes()
                    self.most = max(self.most, self.now)
                    weakref.finalize(storage, self._forget, key)
        return result

    def _forget(self, key: int) -> None:
        self.now -= self._sizes.pop(key)


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    editor = Editor(
        pretrained.LoadedModel(
            "tiny", make_tiny_model().model.float(), config.Config(), 0, (0.05, 1.2)
        )
    )
    small = config.SolidsConfig(
        episodes=config.EpisodesConfig(train=1, val=4, test=1),
        frames=1,
        height=SIDE,
        width=SIDE,
        supersample=1,
        window=config.WindowConfig(length=1),
    )
    videos = SolidsDataset(small, "val").batch([0, 1, 2, 3]).video.permute(0, 1, 3, 4, 2).numpy()
    return [editor.encode(Image.fromarray(video[0])) for video in videos]


Change = Callable[[Scene, list[Scene]], Scene]
CHANGES: dict[str, Change] = {
    "nothing": lambda scene, _: scene,
    "a move": lambda scene, _: scene.move(1, dx=2),
    "smaller": lambda scene, _: scene.resize(1, 0.3),
    "hardly there": lambda scene, _: scene.resize_to(1, 0.001).resize_to(2, 0.001),
    "one donor": lambda scene, others: scene.transplant(1, others[0], 2),
    "three donors": lambda scene, others: (
        scene.transplant(1, others[0], 2).transplant(2, others[1], 1).transplant(3, others[2], 2)
    ),
    "between": lambda scene, others: scene.interpolate(
        scene.transplant(1, others[0], 2).transplant(2, others[1], 1), 0.5
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_memory_that_is_told_is_enough(scenes: list[Scene], change: str) -> None:
    edited = CHANGES[change](scenes[0], scenes[1:])
    told = edited.drawing_bytes
    gc.collect()
    memory = Memory()
    with memory:
        picture = edited.render()
    assert picture.shape == (SIDE, SIDE, 3)
    assert 0.4 * told < memory.most <= told


def test_donors_and_looks_count(scenes: list[Scene]) -> None:
    scene, one, two, _ = scenes
    plain = scene.drawing_bytes
    layers = 4 * SIDE**2 * (6 + 2 * 4)  # as 32 bits, of four slots
    once = scene.transplant(1, one, 2).drawing_bytes
    assert once >= plain + layers
    assert scene.transplant(1, one, 2).transplant(2, one, 1).drawing_bytes == once
    assert scene.transplant(1, one, 2).transplant(2, two, 1).drawing_bytes >= once + layers


def draw_plainly(
    planes: torch.Tensor, factor: float, offset: tuple[float, float], side: int, beyond: str
) -> torch.Tensor:
    """Every pixel as the mean of all its samples, everywhere at once."""
    samples = max(1, int(np.ceil(factor * planes.shape[-1] / side - 0.01)))
    fine = torch.arange(side * samples, dtype=torch.float64)
    places = (2 * fine + 1) / (side * samples) - 1
    columns, rows = (factor * places + shift for shift in offset)
    grid = torch.stack(torch.broadcast_tensors(columns[None], rows[:, None]), -1)[None]
    sampled = F.grid_sample(
        planes[None], grid.float(), mode="bilinear", padding_mode=beyond, align_corners=False
    )
    return F.avg_pool2d(sampled, samples)[0]


@pytest.mark.parametrize("beyond", ["zeros", "border"])
@pytest.mark.parametrize("scale", [0.025, 0.07, 0.21, 0.5, 0.9, 1.7])
@pytest.mark.parametrize("given", [33, 48])
def test_what_is_left_out_changes_no_bit(given: int, scale: float, beyond: str) -> None:
    planes = torch.rand(3, given, given, generator=torch.Generator().manual_seed(0))
    for x, y in ((0.1, -0.2), (-0.97, 0.5), (1.6, 0.0), (-3.0, 3.0)):
        center = torch.tensor([x, y], dtype=torch.float64)
        one = torch.ones((), dtype=torch.float64)
        edit = AffineMap.from_transplant(center, scale * one, center * 0, one)
        inverse = edit.inverse()
        offset = (float(inverse.offset[0]), float(inverse.offset[1]))
        expected = draw_plainly(planes, float(inverse.factor), offset, 48, beyond)
        assert torch.equal(_warp(planes, edit, 48, beyond), expected), (x, y)


def test_what_gets_tiny_takes_no_more_memory_than_the_picture() -> None:
    """All samples of a picture that becomes a thousandth would be a million times the picture."""
    planes = torch.ones(5, 64, 64)
    zero, one = torch.zeros(2, dtype=torch.float64), torch.ones((), dtype=torch.float64)
    memory = Memory()
    with memory:
        drawn = _warp(planes, AffineMap.from_transplant(zero, 0.001 * one, zero, one), 64)
    assert memory.most < 30 * 4 * 64**2 * 5
    assert drawn.sum() > 0
    assert drawn[:, :31].sum() == drawn[:, 33:].sum() == 0
