"""Files of pictures and videos, and the folders that hold them."""

import re
from pathlib import Path

from geoco.errors import GeocoError

IMAGES = (".png", ".apng", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff")
VIDEOS = (".mp4", ".webm", ".gif", ".mov", ".mkv", ".avi")


def list_folder(folder: Path) -> list[Path]:
    """What a folder holds, hidden names left out, in natural order (2 before 10)."""
    try:
        entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    except FileNotFoundError:
        raise GeocoError(f"{folder}: there is no such folder") from None
    except NotADirectoryError:
        raise GeocoError(f"{folder}: expected a folder, but this is a file") from None
    except OSError as error:
        raise GeocoError(f"{folder}: cannot read this folder: {error.strerror}") from None
    return sorted(entries, key=_natural_key)


def find_images(folder: Path) -> list[Path]:
    return [entry for entry in list_folder(folder) if is_file(entry, IMAGES)]


def is_file(entry: Path, suffixes: tuple[str, ...]) -> bool:
    return entry.suffix.lower() in suffixes and not entry.is_dir()


def check_file(path: Path) -> None:
    """Refuse what is no file with an end: reading a pipe or a device might never return."""
    if path.is_dir():
        raise GeocoError(f"{path}: expected a file, but this is a folder")
    if path.exists() and not path.is_file():
        raise GeocoError(f"{path}: expected a file, but this is a pipe or a device")


def _natural_key(path: Path) -> tuple[list[int | str], str]:
    parts = re.split(r"(\d+)", path.name.casefold())  # text and digits alternate, text first
    return [int(part) if place % 2 else part for place, part in enumerate(parts)], path.name
