"""MOVi-like clips: scanned objects thrown over a floor, straight into stores to train on.

    python examples/movi_like/generate.py OBJECTS MAPS stores/movi-like --train 2000 --val 250

One process per core. A run that was stopped, even by `kill -9`, goes on where it was.
"""

import argparse
import hashlib
import multiprocessing
import os
import threading
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

from clips import SPLITS, Library, Recipe, draw_clip
from rendering import Pictures, render_clip

from geoco.errors import GeocoError

_library: Library  # of this process


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("objects", type=Path, help="folder of scanned objects")
    parser.add_argument("maps", type=Path, help="folder of environment maps")
    parser.add_argument("store", type=Path)
    for split, count in zip(SPLITS, (2000, 250, 0), strict=True):
        parser.add_argument(f"--{split}", type=int, default=count, help=f"clips ({count})")
    for name, value in vars(Recipe()).items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"({value})")
    arguments = parser.parse_args()
    recipe = Recipe(arguments.seed, arguments.frames, arguments.size)
    folders = (arguments.objects, arguments.maps, get_prepared_folder(arguments.store))
    try:
        for split in SPLITS:
            generate_split(folders, recipe, arguments.store / split, getattr(arguments, split))
    except GeocoError as error:
        raise SystemExit(f"error: {error}") from None


def generate_split(
    folders: tuple[Path, Path, Path], recipe: Recipe, path: Path, count: int
) -> None:
    """Make the first `count` clips of the split that `path` is named after."""
    # Not above: the processes that render import this file, and need no torch.
    from geoco.cli.common import make_progress_bars
    from geoco.data.source import RawVideo
    from geoco.data.store import read_index
    from geoco.data.store_writer import StoreWriter, check_recipe

    if not count:
        return
    settings = describe_settings(Library(*folders), recipe)
    if path.exists():
        index = read_index(path)
        check_recipe(path, index.settings, settings)
        if len(index.videos) != count:
            raise GeocoError(
                f"{path}: a finished store of {len(index.videos)} clips cannot become one of "
                f"{count}: delete it or choose another"
            )
        return
    workers = ProcessPoolExecutor(
        len(os.sched_getaffinity(0)),
        multiprocessing.get_context("spawn"),
        initializer=_start_worker,
        initargs=folders,
    )
    with StoreWriter(path, recipe.size, recipe.size, settings) as writer, workers:
        left = range(len(writer), count)
        made = workers.map(make_clip, repeat(recipe), repeat(path.name), left)
        with make_progress_bars() as bars:
            task = bars.add_task(path.name, total=count, completed=len(writer))
            for number, (pictures, metadata) in zip(left, made, strict=True):
                name = f"{path.name}/{number}"
                writer.append(RawVideo(name, pictures.frames, pictures.masks, metadata))
                bars.advance(task)
        writer.finish()


def make_clip(recipe: Recipe, split: str, number: int) -> tuple[Pictures, Any]:
    """Pictures and metadata of a clip, in a process that `_start_worker` has prepared."""
    drawn = draw_clip(_library, recipe, split, number)
    return render_clip(drawn.scene, recipe.size), drawn.metadata


def get_prepared_folder(store: Path) -> Path:
    """Where prepared objects are kept: beside the store, which holds splits only."""
    return store.with_name(store.name + ".objects")


def describe_settings(library: Library, recipe: Recipe) -> dict[str, Any]:
    """What a store keeps of how it was made: one of other folders or seeds is refused."""

    def digest(names: tuple[str, ...]) -> str:
        return hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]

    return {
        "source": {
            "kind": "movi_like",
            **vars(recipe),
            "objects": digest(library.object_names),
            "maps": digest(library.map_names),
        }
    }


def _start_worker(objects: Path, maps: Path, prepared: Path) -> None:
    global _library
    _library = Library(objects, maps, prepared)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process with the one that started it, also if that was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


if __name__ == "__main__":
    main()
