"""YAML from anyone, read within bounds: its JSON-like core, checked before anything is built.

A few hundred bytes of aliases can stand for billions of values, and brackets can nest deeper than
any parser's stack. So the events of a text are counted first, each alias as what it stands for.
"""

import re
from pathlib import Path
from typing import Any

import yaml

from geoco.errors import GeocoError

LARGEST = 2**18  # characters
MOST_VALUES = 10_000
DEEPEST = 32
LONGEST_NUMBER = 64  # characters
LONGEST_TEXT = 60  # of a value in a message


def read_text(path: Path) -> str:
    """The text of a file of YAML; devices and pipes, which may never end, are no files."""
    reason = "it is no regular file"
    try:
        if path.is_file() or not path.exists():
            with path.open(encoding="utf-8") as file:
                return file.read(LARGEST + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = str(error.strerror) if isinstance(error, OSError) else "not UTF-8 text"
    raise GeocoError(f"{path}: cannot read this configuration file: {reason}")


def parse_mapping(text: str, where: str) -> dict[str, Any]:
    """The mapping that a text describes."""
    if len(text) > LARGEST:
        raise GeocoError(f"{where}: too long for a configuration: at most {LARGEST} characters")
    try:
        _check_size(text)
        raw = yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f" line {mark.line + 1}, column {mark.column + 1}:" if mark else ""
        raise GeocoError(f"{where}:{line} not valid YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise GeocoError(f"{where}: not valid YAML: {' '.join(str(error).split())}") from None
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise GeocoError(f"{where}: expected a mapping of sections, got {abbreviate(raw)}")
    return raw


def abbreviate(value: Any) -> str:
    """A value in a message."""
    text = repr(value)
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 3] + "..."


class _Loader(yaml.SafeLoader):
    """4e-4 is a number, dates stay strings, keys are texts, and repeated ones are refused."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise _refuse(f"a key must be a name, got {abbreviate(key)}", key_node)
            if key in seen:
                raise _refuse(f"the key '{key:.{LONGEST_TEXT}}' is given twice", key_node)
            seen.add(key)
        return super().construct_mapping(node, deep)

    def construct_number(self, node: yaml.ScalarNode) -> Any:
        if len(node.value) > LONGEST_NUMBER:
            raise _refuse(f"a number of {len(node.value)} characters is too long", node)
        try:
            if node.tag.endswith(":int"):
                return self.construct_yaml_int(node)
            return self.construct_yaml_float(node)
        except ValueError:
            raise _refuse(f"{abbreviate(node.value)} is no number", node) from None


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)
for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _Loader.construct_number)


def _check_size(text: str) -> None:
    """Refuse what is too deep, too much or made of itself; nothing is built for that."""
    sizes: dict[str, int | None] = {}  # of anchors; None while what they name goes on
    open_nodes: list[tuple[str | None, int]] = []  # with their anchors and values before them
    values = 0
    for event in yaml.parse(text, Loader=_Loader):
        anchor = getattr(event, "anchor", None)
        if getattr(event, "tag", None) is not None:
            raise _refuse(f"tags like {abbreviate(event.tag)} are not used here", event)
        match event:
            case yaml.AliasEvent():
                size = sizes.get(str(anchor), 0)
                if size is None:
                    raise _refuse(f"'*{anchor:.{LONGEST_TEXT}}' stands for a part of itself", event)
                values += size
            case yaml.ScalarEvent():
                values += 1
                if anchor is not None:
                    sizes[anchor] = 1
            case yaml.CollectionStartEvent():
                open_nodes.append((anchor, values))
                values += 1
                if anchor is not None:
                    sizes[anchor] = None
            case yaml.CollectionEndEvent():
                name, before = open_nodes.pop()
                if name is not None:
                    sizes[name] = values - before
        if len(open_nodes) > DEEPEST:
            raise _refuse(f"nested more than {DEEPEST} deep", event)
        if values > MOST_VALUES:
            raise _refuse(f"more than {MOST_VALUES} values are too many", event)


def _refuse(problem: str, place: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=place.start_mark)
