"""Edits of a model whose slots have no position and no scale: what it can do, and what it says."""

import pytest
import torch
from helpers_web import make_frames

from geoco import config
from geoco.editing.editor import Editor, Scene
from geoco.errors import GeocoError
from geoco.models import pretrained
from geoco.models.statm import Statm

SETTINGS = config.StatmConfig(
    encoder=config.ConvEncoderConfig(width=8),
    slots=config.StatmSlotsConfig(count=4, dim=8, update_dim=8),
    decoder=config.BaselineDecoderConfig(broadcast=4, layers=((8, 3), (16, 3))),
    predictor=config.PredictorConfig(heads=2, hidden=8),
)


@pytest.fixture(scope="module")
def scene() -> Scene:
    torch.manual_seed(0)
    loaded = pretrained.LoadedModel(
        "statm", Statm(SETTINGS), config.Config(model=SETTINGS), 0, (0.05, 1.2)
    )
    return Editor(loaded).encode(make_frames()[0, 0])


def test_places_are_refused_in_a_sentence(scene: Scene) -> None:
    said = r"^slots of this model have no position and no scale: it cannot move, resize or dup"
    for change in (
        lambda: scene.move(1, dx=2),
        lambda: scene.move_to(1, 0, 0),
        lambda: scene.resize(1, 1.5),
        lambda: scene.resize_to(1, 0.2),
        lambda: scene.duplicate(1, dx=2, into=2),
    ):
        with pytest.raises(GeocoError, match=said):
            change()


def test_appearances_are_exchanged(scene: Scene) -> None:
    """Slots are alike but for their appearance, so that a swap shows the same picture."""
    swapped = scene.swap(1, 2)
    assert torch.equal(
        swapped.decoded.slots.appearance, scene.decoded.slots.appearance[:, [0, 2, 1, 3]]
    )
    assert abs(swapped.image.astype(int) - scene.image).max() <= 1
    given = scene.transplant(1, scene, 2)
    assert torch.equal(
        given.decoded.slots.appearance, scene.decoded.slots.appearance[:, [0, 2, 2, 3]]
    )
    assert not scene.remove(1).decoded.present[0, 1]
    assert torch.equal(
        scene.interpolate(swapped, 0.5).decoded.slots.appearance[:, 1],
        scene.decoded.slots.appearance[:, 1:3].mean(1),
    )
