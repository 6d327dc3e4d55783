"""The configuration files that come with the package, by name."""

import re
from pathlib import Path

from geoco.errors import GeocoError

# Beside the package in a checkout, inside it when installed from a wheel.
_PACKAGE = Path(__file__).parents[1]
_FOLDERS = (_PACKAGE / "configs", _PACKAGE.parent / "configs")


def list_configs() -> dict[str, Path]:
    """Shipped files by their names without `.yaml`."""
    return {file.stem: file for folder in _FOLDERS for file in sorted(folder.glob("*.yaml"))}


def find_config(path: Path) -> Path:
    """A file; a name alone, of which there is no file here, is one that is shipped."""
    known = list_configs()
    if path.exists() and not path.is_dir():
        return path
    if path.name == str(path) and path.name.removesuffix(".yaml") in known:
        return known[path.name.removesuffix(".yaml")]
    if path.name == str(path) and not path.suffix:
        raise GeocoError(
            f"{path}: there is neither a file nor a shipped configuration of this name: give a "
            f"YAML file or one of {', '.join(known)}"
        )
    return path  # reading it says what is wrong


def describe_config(file: Path) -> str:
    """The first sentence of a file's comment."""
    lines = file.read_text(encoding="utf-8").splitlines()
    comment = " ".join(line[1:].strip() for line in lines if line.startswith("#"))
    sentence, *more = re.split(r"\. (?=[A-Z]|geoco )", comment)
    return f"{sentence}." if more else sentence
