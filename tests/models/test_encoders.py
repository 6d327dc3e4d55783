"""Encoders: where tokens look, and DINOv2 read from files in its true format."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from geoco.errors import GeocoError
from geoco.models.encoders import IMAGENET_DEVIATION, IMAGENET_MEAN, ConvEncoder, DinoEncoder


def test_tokens_lie_on_every_fourth_pixel_row_by_row() -> None:
    encoder = ConvEncoder(width=3)
    for layer in encoder.layers:
        assert isinstance(layer, torch.nn.Conv2d)
        torch.nn.init.zeros_(layer.weight)
        assert layer.bias is not None
        torch.nn.init.zeros_(layer.bias)
        layer.weight.data[range(3), range(3), 2, 2] = 1  # each layer passes its centre on
    image = torch.rand(2, 3, 64, 64)
    tokens = encoder(image)
    assert tokens.shape == (2, 256, 3)
    torch.testing.assert_close(tokens, image[:, :, ::4, ::4].flatten(2).transpose(1, 2))
    assert encoder.side(64) == 16


def test_the_receptive_field_is_what_four_layers_see() -> None:
    torch.manual_seed(0)
    encoder = ConvEncoder(width=16)
    image = torch.rand(1, 3, 64, 64, requires_grad=True)
    encoder(image).view(16, 16, 16)[8, 8].sum().backward()
    assert image.grad is not None
    rows = image.grad.abs().sum((0, 1, 3)).nonzero().flatten()
    # 2 + 2 * 2 + 4 * 2 + 4 * 2 pixels to each side of pixel 32.
    assert rows.min() >= 32 - 22
    assert rows.max() <= 32 + 22


def test_negative_features_are_cut_off() -> None:
    assert (ConvEncoder()(torch.rand(1, 3, 64, 64)) >= 0).all()


def test_parameters_are_those_of_the_release() -> None:
    assert sum(parameter.numel() for parameter in ConvEncoder().parameters()) == 312_256


@pytest.fixture(scope="module")
def dino(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A DINOv2 of two thin layers, written as the published ones are."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("dino")
    torch.manual_seed(0)
    settings = transformers.Dinov2Config(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=2, image_size=518, patch_size=14
    )
    transformers.Dinov2Model(settings).save_pretrained(folder)
    return Path(folder)


def test_dino_tokens_come_before_the_final_norm(dino: Path) -> None:
    encoder = DinoEncoder(dino, dim=16)
    image = torch.rand(2, 3, 64, 64)
    assert encoder.side(64) == 24
    large = F.interpolate(image, (336, 336), mode="bicubic", antialias=True)
    mean, deviation = (
        torch.tensor(part).view(3, 1, 1) for part in (IMAGENET_MEAN, IMAGENET_DEVIATION)
    )
    with torch.no_grad():
        field = encoder.backbone.embeddings((large - mean) / deviation)
        for layer in encoder.backbone.encoder.layer:
            output = layer(field)
            field = output[0] if isinstance(output, tuple) else output
        expected = encoder.project(field[:, 1:])  # without the class token
        torch.testing.assert_close(encoder(image), expected, rtol=1e-4, atol=1e-5)
    assert expected.shape == (2, 576, 16)


def test_dino_is_frozen_but_for_its_projection(dino: Path) -> None:
    encoder = DinoEncoder(dino).train()
    assert not encoder.backbone.training
    encoder(torch.rand(1, 3, 64, 64)).sum().backward()
    assert all(parameter.grad is None for parameter in encoder.backbone.parameters())
    assert all(parameter.grad is not None for parameter in encoder.project.parameters())
    trainable = [name for name, p in encoder.named_parameters() if p.requires_grad]
    assert {name.split(".")[0] for name in trainable} == {"project"}


def test_dino_that_is_not_there(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(GeocoError, match="cannot load DINOv2 from"):
        DinoEncoder(tmp_path)
