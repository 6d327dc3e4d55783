"""Records as files: every edit as arrays, so that anybody can resample them later."""

import io
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from geoco.errors import GeocoError
from geoco.files import write_whole

Record = TypeVar("Record")


def save_records(folder: Path, name: str, records: Any) -> None:
    """A dataclass of arrays, whole numbers, names and such dataclasses, as one file."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **_flatten_arrays(records, ""))  # type: ignore[arg-type]
    write_whole(_locate(folder, name), buffer.getvalue())


def load_records(folder: Path, name: str, kind: type[Record]) -> Record:
    """The records of a table that an evaluation left in its folder."""
    path = _locate(folder, name)
    try:
        with np.load(path, allow_pickle=False) as file:
            return _build_record(kind, dict(file), "")
    except FileNotFoundError:
        raise GeocoError(f"{path}: there are no records here: evaluate '{name}' first") from None
    except (ValueError, OSError, KeyError):
        raise GeocoError(f"{path}: damaged, or of another version: delete it and {name}.json, and "
                         "evaluate again") from None  # fmt: skip


def _locate(folder: Path, name: str) -> Path:
    return folder / f"{name}-records.npz"


def _flatten_arrays(records: Any, prefix: str) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    for part in fields(records):
        value = getattr(records, part.name)
        if is_dataclass(value):
            arrays |= _flatten_arrays(value, f"{prefix}{part.name}.")
        else:
            arrays[prefix + part.name] = np.asarray(value)
    return arrays


def _build_record(kind: type[Record], arrays: dict[str, np.ndarray], prefix: str) -> Record:
    parts: list[Any] = []
    for part in fields(kind):  # type: ignore[arg-type]
        inner: Any = part.type
        if is_dataclass(inner) and isinstance(inner, type):
            parts.append(_build_record(inner, arrays, f"{prefix}{part.name}."))
            continue
        value = arrays[prefix + part.name]
        if value.ndim == 0:
            parts.append(value.item())
        else:
            parts.append(tuple(value.tolist()) if value.dtype.kind == "U" else value)
    return kind(*parts)
