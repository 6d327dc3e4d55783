"""MOVi-like clips: scanned objects thrown over a floor, straight into stores to train on.

    python examples/movi_like/generate.py OBJECTS MAPS stores/movi-like --train 2000 --val 250

One process per core. A run that was stopped, even by `kill -9`, goes on where it was.
"""

import argparse
import hashlib
import multiprocessing
import os
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import Any

from clips import SPLITS, Library, Recipe, draw_clip
from rendering import Pictures, render_clip

from geoco.errors import GeocoError

Folders = tuple[Path, Path, Path]  # of objects, of maps and of prepared objects
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
    counts = {split: getattr(arguments, split) for split in SPLITS}
    try:
        generate_clips(folders, recipe, arguments.store, counts)
    except GeocoError as error:
        raise SystemExit(f"error: {error}") from None
    except BrokenProcessPool:
        raise SystemExit("error: a process was ended from outside: run again to go on") from None


def generate_clips(
    folders: Folders, recipe: Recipe, store: Path, counts: Mapping[str, int]
) -> None:
    """Make the first clips of each split, as many as `counts` says; what is there is kept."""
    # Not above: the processes that render import this file, and need no torch.
    from geoco.cli.common import make_progress_bars
    from geoco.data.source import RawVideo
    from geoco.data.store_writer import StoreWriter

    library = Library(*folders)
    settings = describe_settings(library, recipe)
    missing = [
        split
        for split, count in counts.items()
        if count > 0 and not _is_finished(store / split, settings, count)
    ]
    if not missing:
        return
    with _start_workers(folders) as workers, make_progress_bars() as bars:
        # All before the first clip, so that one that cannot be used is named at once.
        unprepared = library.list_unprepared()
        task = bars.add_task("objects", total=len(unprepared))
        for _ in workers.map(_prepare_object, unprepared):
            bars.advance(task)
        for split in missing:
            count = counts[split]
            with StoreWriter(store / split, recipe.size, recipe.size, settings) as writer:
                task = bars.add_task(split, total=count, completed=len(writer))
                left = range(len(writer), count)
                made = workers.map(make_clip, repeat(recipe), repeat(split), left)
                for number, (pictures, metadata) in zip(left, made, strict=True):
                    name = f"{split}/{number}"
                    writer.append(RawVideo(name, pictures.frames, pictures.masks, metadata))
                    bars.advance(task)
                writer.finish()


def _is_finished(path: Path, settings: Mapping[str, Any], count: int) -> bool:
    from geoco.data.store import read_index
    from geoco.data.store_writer import check_recipe

    if not path.exists():
        return False
    index = read_index(path)
    check_recipe(path, index.settings, settings)
    if len(index.videos) != count:
        raise GeocoError(
            f"{path}: a finished store of {len(index.videos)} clips cannot become one of {count}: "
            "delete it or choose another"
        )
    return True


@contextmanager
def _start_workers(folders: Folders) -> Iterator[ProcessPoolExecutor]:
    """A process per core; at an error those that wait for work get none."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # they inherit it: one thread each
    workers = ProcessPoolExecutor(
        multiprocessing.cpu_count(),
        multiprocessing.get_context("spawn"),
        initializer=_start_worker,
        initargs=folders,
    )
    try:
        yield workers
    finally:
        workers.shutdown(cancel_futures=True)


def _prepare_object(name: str) -> None:
    _library.get_object(name)


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
