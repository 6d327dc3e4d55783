"""`geoco data`: make, import and look at data."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from geoco import config as configuration
from geoco.cli.common import (
    ConfigPath,
    Overrides,
    SplitName,
    console,
    get_store,
    make_progress_bars,
    parse_split,
    require_extra,
    update_bar,
)
from geoco.config import FolderSource, StoreConfig

app = typer.Typer(help="Make, import and look at data.", no_args_is_help=True)


@app.command("import")
def data_import(path: ConfigPath, overrides: Overrides = None) -> None:
    """Import real videos into a store, once. Run it again to go on after an interruption.

    Example: `geoco data import configs/obj3d.yaml data.source.path=~/OBJ3D data.path=stores/obj3d`
    """
    from geoco.data.importing import ImportProgress, import_data
    from geoco.data.store import read_index

    store = get_store(configuration.load(path, overrides or ()))
    with make_progress_bars() as bars:
        tasks = {}

        def report(progress: ImportProgress) -> None:
            if progress.split not in tasks:
                tasks[progress.split] = bars.add_task(progress.split, total=progress.total)
            bars.update(tasks[progress.split], completed=progress.done)

        def tell(sentence: str) -> None:
            console.print(sentence, highlight=False, soft_wrap=True)

        written = import_data(store, report, tell)
    for split, folder in written.items():
        index = read_index(folder)
        videos = len({video.source for video in index.videos})
        frames = sum(video.frames for video in index.videos)
        kept = "" if split in tasks else ", was there already"
        console.print(
            f"{split}: {folder} ({videos:,} videos, {frames:,} frames{kept})",
            highlight=False,
            soft_wrap=True,
        )
    # Configurations of published datasets say how to import them, not how to train.
    if isinstance(store.source, FolderSource) and store.source.split == "auto":
        places = [text for text in overrides or () if not text.startswith("data.source.")]
        command = " ".join(["geoco train", str(path), *places])
        console.print(f"next: {command} --out runs/mine", highlight=False, soft_wrap=True)


@app.command("features")
def data_features(
    path: ConfigPath,
    overrides: Overrides = None,
    verify: Annotated[
        bool, typer.Option(help="Recompute the checksums of features that are there.")
    ] = False,
    accelerator: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Compute a frozen encoder's features of all training frames, once; again to go on.

    Example: `geoco data features configs/geoco-movi-c.yaml train.feature_store=stores/features`
    """
    from geoco.data.features import FeatureStore
    from geoco.models.build import build
    from geoco.training.features import write_features
    from geoco.training.launch import choose_device

    config = configuration.load(path, overrides or ())
    folder = config.train.feature_store
    if verify and folder is not None:
        with make_progress_bars() as bars:
            task = bars.add_task("checking features", total=None)
            FeatureStore(folder).verify(partial(update_bar, bars, task))
        console.print("all checksums are right")
        return
    with require_extra("train"), make_progress_bars() as bars:
        task = bars.add_task("features", total=None)
        model = build(config.model).to(choose_device(accelerator))
        store = write_features(config, model, partial(update_bar, bars, task))
    views, tokens, channels = store.recipe.shape[1:]
    console.print(
        f"{store.path}: {store.recipe.frames:,} frames, {views} x {tokens} x {channels} each",
        soft_wrap=True,
    )


@app.command("inspect")
def data_inspect(
    path: Annotated[Path, typer.Argument(help="A YAML file or a store's folder.")],
    overrides: Overrides = None,
    verify: Annotated[bool, typer.Option(help="Recompute the checksums of stores.")] = False,
) -> None:
    """Print what a dataset holds.

    Example: `geoco data inspect stores/obj3d --verify`
    """
    from geoco.data.inspecting import describe_splits, find_stores
    from geoco.data.store import verify_store

    if path.is_dir():
        stores = find_stores(path)
        rows = describe_splits(stores)
    else:
        data = configuration.load(path, overrides or ()).data
        stores = find_stores(data.path) if isinstance(data, StoreConfig) else []
        rows = describe_splits(data)
    table = Table(*rows[0])
    for row in rows[1:]:
        table.add_row(*row)
    console.print(table)
    if verify:
        with make_progress_bars() as bars:
            for store in stores:
                task = bars.add_task(f"checking {store.name}", total=None)
                verify_store(store, partial(update_bar, bars, task))
        console.print("all checksums are right")


@app.command("preview")
def data_preview(
    path: ConfigPath,
    overrides: Overrides = None,
    split: SplitName = "train",
    count: Annotated[int, typer.Option(min=1, max=200, help="Clips to show.")] = 8,
    zoom: Annotated[int, typer.Option(min=1, max=16)] = 2,
    out: Annotated[Path, typer.Option(help="A .png sheet or an animated .gif.")] = Path(
        "preview.png"
    ),
) -> None:
    """Draw clips with their masks: a contact sheet (.png) or an animation (.gif).

    Example: `geoco data preview configs/solids-video.yaml --count 4 --out preview.gif`
    """
    from geoco.data import open_dataset
    from geoco.data.inspecting import draw_preview

    dataset = open_dataset(configuration.load(path, overrides or ()).data, parse_split(split))
    draw_preview(dataset, out, count, zoom)
    console.print(f"wrote {out}", soft_wrap=True)
