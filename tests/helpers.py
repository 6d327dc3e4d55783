"""Small models and data sets, and the command line, for tests of any part."""

import json
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from geoco import config
from geoco.data import SolidsDataset
from geoco.evaluation import GeoCoModel
from geoco.models.decoders import DECODERS, Decoder
from geoco.models.geoco import GeoCo

TINY_MODEL = config.ModelConfig(
    encoder=config.ConvEncoderConfig(width=8),
    slots=config.SlotsConfig(count=4, dim=8, update_dim=8, grid_dim=8),
    decoder=config.DecoderConfig(broadcast=4, layers=((8, 3), (16, 3))),
    # So loose that the selector of a network without training acts, and so tight that objects stay.
    selector=config.SelectorConfig(threshold=0.5, least_area=1, least_peak=0.0, label_limit=0.1),
)
SMALL_SOLIDS = config.SolidsConfig(
    episodes=config.EpisodesConfig(train=1, val=4, test=1),
    frames=20,
    height=16,
    width=16,
    supersample=1,
)


def make_tiny_model() -> GeoCoModel:
    """Without training, but loud enough that slots differ: each window gets two valid objects."""
    torch.manual_seed(1)
    model = GeoCo(TINY_MODEL).double()
    assert model.selector is not None
    with torch.no_grad():
        for weight in (model.decoder.place.weight, model.decoder.alpha.weight):
            weight.mul_(6)
        model.attention.query.weight.mul_(8)
        for weight in model.selector.judge.parameters():
            weight.mul_(4)
    return GeoCoModel(model)


def build_decoder(design: str, dim: int, **settings: Any) -> Decoder:
    """A decoder by its design; `settings` are those of its section of the configuration."""
    return DECODERS[design](config.DecoderConfig(design=design, **settings), dim)


def write_dino(
    folder: Path, width: int = 24, depth: int = 2, heads: int = 2, registers: int = 0
) -> config.DinoEncoderConfig:
    """A thin DINOv2 of random numbers in the Hub's format; returns the settings that read it."""
    torch.manual_seed(0)
    shapes = {
        "embeddings.cls_token": (1, 1, width),
        "embeddings.mask_token": (1, width),
        "embeddings.position_embeddings": (1, 1 + 37**2, width),
        "embeddings.patch_embeddings.projection.weight": (width, 3, 14, 14),
        "embeddings.patch_embeddings.projection.bias": (width,),
        "layernorm.weight": (width,),
        "layernorm.bias": (width,),
    }
    if registers:
        shapes["embeddings.register_tokens"] = (1, registers, width)
    for number in range(depth):
        layer = f"encoder.layer.{number}"
        for part, inputs, outputs in (
            *((f"attention.attention.{name}", width, width) for name in ("query", "key", "value")),
            ("attention.output.dense", width, width),
            ("mlp.fc1", width, 4 * width),
            ("mlp.fc2", 4 * width, width),
        ):
            shapes[f"{layer}.{part}.weight"] = (outputs, inputs)
            shapes[f"{layer}.{part}.bias"] = (outputs,)
        for place in ("1", "2"):
            shapes[f"{layer}.layer_scale{place}.lambda1"] = (width,)
            shapes[f"{layer}.norm{place}.weight"] = (width,)
            shapes[f"{layer}.norm{place}.bias"] = (width,)
    tensors = {name: 0.3 * torch.randn(shape) for name, shape in shapes.items()}
    numbers = {
        "model_type": "dinov2_with_registers" if registers else "dinov2",
        "hidden_size": width,
        "num_hidden_layers": depth,
        "num_attention_heads": heads,
        "image_size": 518,
        "patch_size": 14,
        **({"num_register_tokens": registers} if registers else {}),
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(numbers))
    size = config.BackboneConfig(width=width, depth=depth, heads=heads, registers=registers)
    return config.DinoEncoderConfig(weights=str(folder), backbone=size, dim=16)


def make_small_solids() -> SolidsDataset:
    return SolidsDataset(SMALL_SOLIDS, "val")


ROOT = Path(__file__).parents[1]


def run_geoco(*arguments: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "geoco.cli", *map(str, arguments)]
    path = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=path, timeout=120)


SMALL_OVERRIDES = [
    "data.episodes={train: 2, val: 1, test: 1}",
    "data.frames=4",
    "data.height=16",
    "data.width=16",
    "data.supersample=1",
    "model.decoder.broadcast=4",
    "model.decoder.layers=[[8,3],[16,3]]",
    "model.selector.least_area=0",
    "model.selector.least_peak=0.0",
    "model.selector.label_limit=50.0",
]


def make_png_header(width: int, height: int) -> bytes:
    """A PNG of a few bytes that promises a picture of any size."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(b"\0" * 99)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )
