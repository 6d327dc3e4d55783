"""Models with a part that was trained elsewhere: from where it is published, or a checkpoint."""

import shutil
from pathlib import Path

import pytest
import torch
from helpers import TINY_MODEL, write_dino

from geoco.config import Config
from geoco.errors import GeocoError
from geoco.models import checkpoints, pretrained
from geoco.models.build import build


def check_equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture
def with_dino(tmp_path: Path) -> Config:
    encoder = write_dino(tmp_path / "dino")
    model = TINY_MODEL.model_copy(update={"encoder": encoder})
    return Config().model_copy(update={"model": model})


def test_a_checkpoint_needs_no_folder_of_the_encoder(tmp_path: Path, with_dino: Config) -> None:
    model = build(with_dino.model)
    checkpoints.save(tmp_path / "run" / "checkpoints", 1, with_dino, model.state_dict(), {})
    shutil.rmtree(tmp_path / "dino")
    loaded = pretrained.load(tmp_path / "run").model
    check_equal(loaded.state_dict(), model.state_dict())
    with pytest.raises(GeocoError, match="there is no such folder"):
        build(with_dino.model)


def test_weights_may_lack_what_is_published(tmp_path: Path, with_dino: Config) -> None:
    model = build(with_dino.model)
    tensors = model.state_dict()
    light = {name: value for name, value in tensors.items() if "backbone" not in name}
    assert len(light) < len(tensors)
    file = tmp_path / "weights.safetensors"
    checkpoints.write_weights(file, 1, with_dino, light)
    check_equal(pretrained.load(file).model.state_dict(), tensors)
    shutil.rmtree(tmp_path / "dino")
    with pytest.raises(GeocoError) as error:
        pretrained.load(file)
    assert str(error.value) == (
        f"{file}: these weights come without their encoder's backbone: model.encoder.weights: "
        f"cannot read DINOv2 from '{tmp_path / 'dino'}': there is no such folder; expected one, or "
        "a name of the Hub such as facebook/dinov2-small"
    )


def test_a_part_of_a_backbone_is_damage(with_dino: Config) -> None:
    model = build(with_dino.model)
    tensors = dict(model.state_dict())
    del tensors["encoder.backbone.positions"]
    with pytest.raises(GeocoError, match=r"'encoder\.backbone\.positions' is missing from them"):
        checkpoints.load_into(model, tensors, "here")
