"""Results as files: one JSON per table, with the population that it is about.

Nothing here computes anything, and nothing needs torch. A value that is undefined is null.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from geoco.errors import GeocoError
from geoco.files import parse_json, write_whole

FORMAT = 2
OWN = ("model", "checksum of the model", "slots")  # what may differ between populations

Values = Mapping[str, Any]


def as_values(scores: Any) -> dict[str, Any]:
    """A dataclass of scores as what JSON holds: nan becomes null, tuples lists."""
    assert is_dataclass(scores)
    assert not isinstance(scores, type)
    values = _to_plain(asdict(scores))
    assert isinstance(values, dict)
    return values


def write_table(folder: Path, table: str, population: Values, values: Values) -> Path:
    """Write a finished table, whole or not at all."""
    content = {"format": FORMAT, "table": table, "population": population, "values": values}
    text = json.dumps(_to_plain(content), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    path = locate_table(folder, table)
    write_whole(path, text.encode())
    return path


def read_table(folder: Path, table: str, population: Values) -> dict[str, Any] | None:
    """The values of a finished table of this population; None if there is none yet."""
    content = _read_content(folder, table)
    if content is None:
        return None
    stored, wanted = content["population"], _to_plain(dict(population))
    changed = [name for name in {**stored, **wanted} if stored.get(name) != wanted.get(name)]
    if changed:
        raise GeocoError(
            f"{locate_table(folder, table)}: results of another evaluation ({', '.join(changed)} "
            "differ): delete it, or write to another folder"
        )
    return dict(content["values"])


def read_results(
    folder: Path, tables: Sequence[str]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """All finished tables of a folder, whomever they are about, and whom that is."""
    contents = {table: _read_content(folder, table) for table in tables}
    finished = {table: content for table, content in contents.items() if content is not None}
    if not finished:
        raise GeocoError(f"{folder}: there are no results here: give the folder of an evaluation")
    # A table may say more of its own population; the first says what all share.
    first = next(iter(finished.values()))["population"]
    return dict(first), {table: dict(content["values"]) for table, content in finished.items()}


def _read_content(folder: Path, table: str) -> dict[str, Any] | None:
    path = locate_table(folder, table)
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
        version = content["format"]
        whole = isinstance(content["population"], dict) and isinstance(content["values"], dict)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        whole = False
    if not whole:
        raise GeocoError(f"{path}: damaged: delete it, and it is computed again")
    if version != FORMAT:
        raise GeocoError(
            f"{path}: results of format {version}, but this version of geoco-savi reads format "
            f"{FORMAT}: delete it, or write to another folder"
        )
    return dict(content)


def locate_table(folder: Path, table: str) -> Path:
    return folder / f"{table}.json"


def _to_plain(value: Any) -> Any:
    """Nested values as JSON has them."""
    if isinstance(value, Mapping):
        return {str(key): _to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
