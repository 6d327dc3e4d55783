"""Files and folders that are whole or not there at all, whenever a process or the power ends."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from geoco.errors import GeocoError

PARTIAL = ".partial"  # what an unfinished file or folder is called after its name
REPLACED = ".replaced"  # and a folder while another takes its place


def parse_json(text: str | bytes) -> Any:
    """JSON from anyone; nested too deeply for this parser it is a ValueError like other damage."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


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


def check_writable(path: Path) -> None:
    """Refuse, before any work, where a file or folder could not be written."""
    if path.is_dir() and path.suffix:
        raise GeocoError(f"{path}: cannot write this file: a folder has this name")
    above = next(parent for parent in path.absolute().parents if parent.exists())
    if not above.is_dir():
        raise GeocoError(f"{path}: cannot write here: {above} is no folder")
    if not os.access(above, os.W_OK | os.X_OK):
        raise GeocoError(f"{path}: cannot write here: the folder {above} is read-only")


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


def write_folder(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a folder beside its place, then put it there in place of what there is.

    Whatever moment a kill picks, one of both is whole; `recover_folder` finds out which. What goes
    wrong with files is raised as it is: callers know what it means.
    """
    recover_folder(path)
    partial, replaced = _add_suffix(path, PARTIAL), _add_suffix(path, REPLACED)
    try:
        partial.mkdir(parents=True)
        write(partial)
        sync_folder(partial)
        if path.exists():
            path.rename(replaced)
        partial.rename(path)
        sync_folder(path.parent)
        if replaced.exists():
            remove_folder(replaced)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def recover_folder(path: Path) -> None:
    """Tidy up after a kill: an unfinished folder goes, and what it was to replace comes back."""
    replaced = _add_suffix(path, REPLACED)
    for partial in (_add_suffix(path, PARTIAL), _add_suffix(replaced, PARTIAL)):
        if partial.exists():
            shutil.rmtree(partial)
    if replaced.exists():
        if path.exists():
            remove_folder(replaced)
        else:
            replaced.rename(path)


def remove_folder(path: Path) -> None:
    """Delete a folder. It loses its name first, so that a kill cannot leave half of it."""
    partial = _add_suffix(path, PARTIAL)
    path.rename(partial)
    shutil.rmtree(partial)


def _add_suffix(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
