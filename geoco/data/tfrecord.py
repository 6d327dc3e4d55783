"""TFRecord files as TensorFlow Datasets writes them, read without TensorFlow.

Three layers: records (a length and its checksum, the data and its checksum, little-endian),
`tf.train.Example` (a map from names to lists of bytes, floats or integers), and `features.json`
(the shape and type that each name had before its values were flattened into such a list).
"""

import importlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from geoco.errors import GeocoError
from geoco.files import parse_json

_HEADER, _FOOTER = struct.Struct("<QI"), struct.Struct("<I")


@dataclass(frozen=True)
class Record:
    """Where one record lies; `number` counts from 0 within its file."""

    path: Path
    number: int
    offset: int
    length: int

    @property
    def where(self) -> str:
        """How messages name the record."""
        return f"{self.path}: record {self.number} at byte {self.offset}"

    def read(self) -> bytes:
        """The record's data, once its checksum is found right."""
        with self.path.open("rb") as file:
            file.seek(self.offset + _HEADER.size)
            data, footer = file.read(self.length), file.read(_FOOTER.size)
        if footer != _FOOTER.pack(_compute_masked_checksum(data)):
            raise GeocoError(
                f"{self.where}: the checksum of its {self.length} bytes of data is not the one "
                f"stored after them, so the file is damaged; please fetch it again"
            )
        return data


def list_records(path: Path) -> list[Record]:
    """Find every record by its length alone, which also shows a file that was cut short."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            records: list[Record] = []
            offset = 0
            while offset < size:
                file.seek(offset)
                records.append(
                    _locate_record(path, len(records), offset, file.read(_HEADER.size), size)
                )
                offset += _HEADER.size + records[-1].length + _FOOTER.size
    except OSError as error:
        raise GeocoError(f"{path}: cannot read this tfrecord file: {error.strerror}") from None
    return records


def _locate_record(path: Path, number: int, offset: int, header: bytes, size: int) -> Record:
    where = f"{path}: record {number} at byte {offset}"
    if len(header) < _HEADER.size:
        raise GeocoError(
            f"{where}: the file ends inside the record's length, after {len(header)} of "
            f"{_HEADER.size} bytes, so it was cut short; please fetch it again"
        )
    length, checksum = _HEADER.unpack(header)
    if checksum != _compute_masked_checksum(header[:8]):
        raise GeocoError(
            f"{where}: the checksum of the record's length is wrong, so the file is damaged or no "
            f"uncompressed TFRecord file; please fetch it again"
        )
    present = size - offset - _HEADER.size
    if present < length:
        raise GeocoError(
            f"{where}: the file ends inside the record's data, after {present} of {length} bytes, "
            f"so it was cut short; please fetch it again"
        )
    if present < length + _FOOTER.size:
        raise GeocoError(
            f"{where}: the file ends inside the checksum after the record's data, after "
            f"{present - length} of {_FOOTER.size} bytes, so it was cut short; please fetch it "
            f"again"
        )
    return Record(path, number, offset, length)


def _compute_masked_checksum(data: bytes) -> int:
    """CRC-32C, rotated and offset: a plain one is weak on data that hold checksums themselves."""
    plain: int = _import_library("google_crc32c").value(data)
    return ((plain >> 15 | plain << 17) + 0xA282EAD8) & 0xFFFFFFFF


# -- tf.train.Example ------------------------------------------------------------------------------


def parse_example(record: Record) -> dict[str, Any]:
    """The record's fields by name; `values` gives what one of them holds."""
    message = _import_library("google.protobuf.message")
    try:
        example = _build_example_class().FromString(record.read())
    except message.DecodeError:
        raise GeocoError(f"{record.where}: expected a tf.train.Example, got other data") from None
    if not example.features.feature:
        raise GeocoError(f"{record.where}: expected a tf.train.Example with fields, got none")
    return dict(example.features.feature)


def extract_values(feature: Any) -> list[bytes] | np.ndarray:
    """One field's list, converted only now: most fields of a record are never looked at."""
    kind = feature.WhichOneof("kind")
    if kind == "bytes_list":
        return list(feature.bytes_list.value)
    if kind == "float_list":
        return np.array(feature.float_list.value, np.float32)
    return np.array(feature.int64_list.value, np.int64)


@cache
def _build_example_class() -> Any:
    """`tf.train.Example` from a description made here, in a pool of its own.

    The default pool is shared with TensorFlow, which may be imported beside us and would refuse a
    second definition of the same name.
    """
    schema = _import_library("google.protobuf.descriptor_pb2")
    pool = _import_library("google.protobuf.descriptor_pool").DescriptorPool()
    factory = _import_library("google.protobuf.message_factory")
    kinds = schema.FieldDescriptorProto
    file = schema.FileDescriptorProto(name="example.proto", package="tf", syntax="proto3")

    def add(message: Any, name: str, number: int, kind: int, **options: Any) -> None:
        options.setdefault("label", kinds.LABEL_OPTIONAL)
        message.field.add(name=name, number=number, type=kind, **options)

    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    types = {"bytes": kinds.TYPE_BYTES, "float": kinds.TYPE_FLOAT, "int64": kinds.TYPE_INT64}
    for number, (name, kind) in enumerate(types.items(), start=1):
        values = file.message_type.add(name=f"{name.title()}List")
        add(values, "value", 1, kind, label=kinds.LABEL_REPEATED)
        list_type = {"type_name": f".tf.{values.name}", "oneof_index": 0}
        add(feature, f"{name}_list", number, kinds.TYPE_MESSAGE, **list_type)

    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry", options={"map_entry": True})
    add(entry, "key", 1, kinds.TYPE_STRING)
    add(entry, "value", 2, kinds.TYPE_MESSAGE, type_name=".tf.Feature")
    entries = {"type_name": ".tf.Features.FeatureEntry", "label": kinds.LABEL_REPEATED}
    add(features, "feature", 1, kinds.TYPE_MESSAGE, **entries)

    example = file.message_type.add(name="Example")
    add(example, "features", 1, kinds.TYPE_MESSAGE, type_name=".tf.Features")
    pool.Add(file)
    return factory.GetMessageClass(pool.FindMessageTypeByName("tf.Example"))


def _import_library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise GeocoError(
            f"reading MOVi needs {name.rpartition('.')[0] or name}, which is not installed: "
            f"pip install 'geoco-savi[movi]'"
        ) from None


# -- features.json ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Field:
    """What a field was before flattening. None is a length that differs between examples."""

    shape: tuple[int | None, ...]
    dtype: str | None = None


def read_features(path: Path) -> dict[str, Field]:
    """The fields that a `features.json` declares, by the names they have in an Example."""
    try:
        return dict(_iterate_fields(parse_json(path.read_text(encoding="utf-8")), "", ()))
    except (
        OSError,
        ValueError,
        OverflowError,
        RecursionError,
        TypeError,
        KeyError,
        AttributeError,
    ):
        raise GeocoError(
            f"{path}: expected the description of fields that TFDS writes; without this file the "
            f"shapes of the published MOVi are assumed"
        ) from None


def _iterate_fields(
    node: Mapping[str, Any], name: str, outer: tuple[int | None, ...]
) -> Iterator[tuple[str, Field]]:
    kind, content = _parse_node(node)
    if kind == "FeaturesDict":
        for key, child in content.get("features", content).items():
            yield from _iterate_fields(child, f"{name}/{key}" if name else key, outer)
    elif kind == "Sequence":
        yield from _iterate_fields(
            content["feature"], name, (*outer, _parse_length(content["length"]))
        )
    else:
        # Up to 4.4 a box does not tell its shape.
        shape = content.get("shape") or ((4,) if kind == "BBoxFeature" else ())
        if isinstance(shape, Mapping):
            shape = shape["dimensions"]
        yield name, Field((*outer, *map(_parse_length, shape)), content.get("dtype"))


def _parse_node(node: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """TFDS up to 4.5 writes `type` and `content`, later `pythonClassName` and one more key.

    The published MOVi is from the time of the change, in which both occur within one file and
    some contents are JSON text inside JSON.
    """
    if "type" in node:
        name, content = node["type"], node["content"]
    else:
        name = node["pythonClassName"]
        content = next((value for value in node.values() if isinstance(value, Mapping)), {})
    if isinstance(content, str):
        content = parse_json(content)
    if set(content) == {"json"}:
        content = parse_json(content["json"])
    return name.rpartition(".")[2], content


def _parse_length(stored: int | str | None) -> int | None:
    return None if stored is None or int(stored) < 0 else int(stored)
