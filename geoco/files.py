"""Files that are whole or not there at all, whenever a process or the power ends."""

import os
import sys
from contextlib import suppress
from pathlib import Path

from geoco.errors import GeocoError

PARTIAL = ".partial"  # what an unfinished file or folder is called after its name


def write_whole(path: Path, data: bytes) -> None:
    """Write a file in place of one that may be there, under another name until it is complete."""
    partial = path.with_name(path.name + PARTIAL)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_through(partial, data)
        os.replace(partial, path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise GeocoError(f"{path}: cannot write this file: {error.strerror}") from None


def write_through(path: Path, data: bytes) -> None:
    """Write a file, and return when its bytes are on the disk."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make new names in a folder survive a power cut; Windows has no such call."""
    if sys.platform != "win32":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
