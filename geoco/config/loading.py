"""Configuration files: YAML with bases and dotted overrides, and errors that name the way out.

Knows nothing of what is configured: the schema comes from `schema.py`.
"""

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

from geoco.config.yaml_text import (
    DEEPEST,
    LONGEST_TEXT,
    abbreviate,
    parse_mapping,
    read_text,
)
from geoco.errors import GeocoError

MOST_BASES = 16  # in a chain of files
LONGEST_PATH = 1024  # of a base
MOST_PROBLEMS = 8  # in one message
Schema = TypeVar("Schema", bound=BaseModel)


class Section(BaseModel):
    """A part of the configuration: unknown keys are refused, values cannot be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class ChosenByKind:
    """Marks a section whose class is looked up by its `kind`, so that others can add kinds.

    A section that states none is of the default kind.
    """

    def __init__(self, kinds: Mapping[str, type[Section]], default: str) -> None:
        self.kinds, self.default = kinds, default

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._validate)

    def _validate(self, value: Any) -> Section:
        if isinstance(value, Section):
            return value
        if not isinstance(value, Mapping):
            raise PydanticKnownError("model_type", {"class_name": "section"})
        kind = value.get("kind", self.default)
        if not isinstance(kind, str) or kind not in self.kinds:
            names = ", ".join(map(repr, self.kinds))
            tag = {"discriminator": "'kind'", "tag": str(kind), "expected_tags": names}
            raise PydanticKnownError("union_tag_invalid", tag)
        return self.kinds[kind].model_validate_json(json.dumps(dict(value)), strict=True)


def describe_choice(names: Iterable[str], name: str) -> str:
    """What to say of a name that is none of `names`."""
    choice = list(names)
    name = name[:LONGEST_TEXT]
    close = difflib.get_close_matches(name, choice, n=1)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    return f"expected one of {', '.join(map(repr, choice))}, got '{name}'{hint}"


def read(
    schema: type[Schema],
    path: Path | None,
    overrides: Iterable[str],
    default_kinds: Mapping[str, Any],
    former_names: Mapping[str, str],
) -> Schema:
    """A YAML file with its bases (or nothing), then the overrides, checked against the schema.

    `default_kinds` says what sections are where nobody does; a key of `former_names` (dotted, old
    to new) is refused with its new name, in the same section.
    """
    where = "defaults" if path is None else str(path)
    raw = _merge(default_kinds, {} if path is None else _read(path, ()))
    for override in overrides:
        raw = _merge(raw, _parse_override(override))
    _refuse_former_names(raw, where, former_names)
    return _validate(schema, raw, where)


def apply_overrides(
    config: Schema, overrides: Iterable[str], former_names: Mapping[str, str]
) -> Schema:
    """A resolved configuration with overrides on top."""
    raw = config.model_dump(mode="json")
    for override in overrides:
        raw = _merge(raw, _parse_override(override))
    _refuse_former_names(raw, "overrides", former_names)
    return _validate(type(config), raw, "overrides")


def parse(schema: type[Schema], text: str, where: str, former_names: Mapping[str, str]) -> Schema:
    """A stored configuration from its YAML text; keys of former names are taken by their new one.

    Weights and runs outlive a name: what was stored under the old one must load for ever.
    """
    raw = parse_mapping(text, where)
    for old, new in former_names.items():
        section, _, key = old.rpartition(".")
        holder = _find_section(raw, section)
        if key in holder:
            # In its old place, so that all keys keep their order.
            renamed = {new.rpartition(".")[2] if k == key else k: v for k, v in holder.items()}
            holder.clear()
            holder.update(renamed)
    return _validate(schema, raw, where)


# -- reading and merging ---------------------------------------------------------------------------


def _read(path: Path, readers: tuple[Path, ...]) -> dict[str, Any]:
    if _resolve(path) in readers:
        chain = " -> ".join(str(reader) for reader in (*readers, path))
        raise GeocoError(f"{path}: its base leads back to itself ({chain})")
    if len(readers) == MOST_BASES:
        raise GeocoError(f"{path}: the base of a base, {MOST_BASES} times over: use fewer")
    raw = parse_mapping(read_text(path), str(path))
    base = raw.pop("base", None)
    if base is None:
        return raw
    if not isinstance(base, str) or len(base) > LONGEST_PATH:
        raise GeocoError(f"{path}: base: expected the path of a YAML file, got {abbreviate(base)}")
    return _merge(_read(path.parent / base, (*readers, _resolve(path))), raw)


def _resolve(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):  # links in a circle, names that no file can have
        raise GeocoError(f"{str(path)!r}: this path leads to no file") from None


def _merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Nested union in which `changes` win. A section of another kind replaces the old one."""
    if "kind" in changes and changes["kind"] != base.get("kind", changes["kind"]):
        return dict(changes)
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[key] = _merge(old, value) if both else value  # type: ignore[arg-type]
    return merged


def _parse_override(text: str) -> dict[str, Any]:
    path, equals, value = text.partition("=")
    names = path.strip().split(".")
    if not equals or not all(names) or len(names) > DEEPEST:
        raise GeocoError(
            f"override {abbreviate(text)}: expected section.key=value, as in data.height=96"
        )
    parsed = parse_mapping(f"value: {value}", f"override {abbreviate(text)}")["value"]
    for name in reversed(names):
        parsed = {name: parsed}
    return parsed


def _find_section(raw: dict[str, Any], dotted: str) -> dict[str, Any]:
    """The mapping under a dotted name, or an empty one."""
    for name in dotted.split("."):
        inner = raw.get(name)
        if not isinstance(inner, dict):
            return {}
        raw = inner
    return raw


def _refuse_former_names(raw: dict[str, Any], where: str, former_names: Mapping[str, str]) -> None:
    for old, new in former_names.items():
        section, _, key = old.rpartition(".")
        if key in _find_section(raw, section):
            raise GeocoError(f"{where}: {old}: this key is called {new} now")


# -- validation, and errors that help --------------------------------------------------------------


def _validate(schema: type[Schema], raw: dict[str, Any], where: str) -> Schema:
    try:
        # Through JSON, so that strictness still admits lists for tuples and strings for paths.
        return schema.model_validate_json(json.dumps(raw), strict=True)
    except ValidationError as error:
        errors = error.errors()
        # A list whose entries are all wrong is reported as too short, too.
        broken = {
            problem["loc"][:depth] for problem in errors for depth in range(len(problem["loc"]))
        }
        errors = [p for p in errors if p["type"] != "too_short" or p["loc"] not in broken]
        problems = "; ".join(_explain(schema, problem, raw) for problem in errors[:MOST_PROBLEMS])
        if len(errors) > MOST_PROBLEMS:
            problems += f"; and {len(errors) - MOST_PROBLEMS} more"
        raise GeocoError(f"{where}: {problems}") from None


def _explain(schema: type[BaseModel], problem: Any, raw: dict[str, Any]) -> str:
    path = _path(problem["loc"], raw, problem["type"] == "missing")
    dotted = ".".join(path) or "configuration"
    match problem["type"]:
        case "extra_forbidden":
            return f"{dotted}: unknown key; {_suggest(schema, path, raw)}"
        case "missing":
            return f"{dotted}: required, but not given"
        case "union_tag_invalid":
            expected = problem["ctx"]["expected_tags"]
            names = [name.strip("'") for name in expected.split(", ")]
            return f"{dotted}.kind: {describe_choice(names, problem['ctx']['tag'])}"
        case "union_tag_not_found":
            return f"{dotted}.kind: required, but not given"
        case "model_type":
            return f"{dotted}: input should be an object, got {abbreviate(problem['input'])}"
        case "value_error":
            return f"{dotted}: {problem['ctx']['error']}"
        case _:
            message = problem["msg"][0].lower() + problem["msg"][1:]
            return f"{dotted}: {message}, got {abbreviate(problem['input'])}"


def _path(location: tuple[int | str, ...], raw: Any, missing: bool) -> list[str]:
    """The user's path to a problem: pydantic's location without the names of union members."""
    path: list[str] = []
    for depth, part in enumerate(location):
        if isinstance(raw, Mapping):
            if part in raw:
                raw = raw[part]
            elif not (missing and depth == len(location) - 1):
                continue
        elif isinstance(raw, list) and isinstance(part, int) and part < len(raw):
            raw = raw[part]
        path.append(str(part)[:LONGEST_TEXT])
    return path


def _suggest(schema: type[BaseModel], path: list[str], raw: dict[str, Any]) -> str:
    """The valid name closest to an unknown one: beside it if possible, else anywhere."""
    names = list(_names(schema, raw))
    parent = ".".join(part for part in path[:-1] if not part.isdigit())
    beside = {name.rpartition(".")[2]: name for name in names if name.rpartition(".")[0] == parent}
    close = difflib.get_close_matches(path[-1], beside, n=1)
    if close:
        return f"did you mean {beside[close[0]]}?"
    elsewhere = {name.rpartition(".")[2]: name for name in names}
    close = difflib.get_close_matches(path[-1], elsewhere, n=1, cutoff=0.8)
    if close:
        return f"did you mean {elsewhere[close[0]]}?"
    return f"{parent or 'the configuration'} has {', '.join(beside)}"


def _names(section: type[BaseModel], raw: Any, prefix: str = "") -> Iterator[str]:
    """Every dotted name that is valid where unions are resolved by the `kind` given in `raw`."""
    for name, field in section.model_fields.items():
        yield prefix + name
        inner = raw.get(name) if isinstance(raw, Mapping) else None
        kind = inner.get("kind") if isinstance(inner, Mapping) else None
        for member in _sections(field):
            own = member.model_fields.get("kind")
            if kind is None or own is None or own.default == kind:
                yield from _names(member, inner, f"{prefix}{name}.")


def _sections(field: FieldInfo) -> Iterator[type[BaseModel]]:
    """The sections that a field may hold."""
    chosen = [marker for marker in field.metadata if isinstance(marker, ChosenByKind)]
    for marker in chosen:
        yield from marker.kinds.values()
    if not chosen:
        yield from _sections_in(field.annotation)


def _sections_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _sections_in(argument)
