"""MOVi-like clips, packed as sheets of frames, made into a store to train and to evaluate on.

    python examples/store_from_movi_like.py FOLDER stores/movi-like
    geoco data inspect stores/movi-like --verify
    geoco train configs/geoco-movi-like.yaml --out runs/movi-like

The folder holds `movi_like_train_*.npz`, `movi_like_val.npz` or both. In such a file `sheets` are
JPEG pictures back to back, one for each clip: its 24 frames in rows of eight. Clip i lies between
`offsets[i]` and `offsets[i + 1]`, and `names` are numbers of clips. `mask_sheets` and
`mask_offsets`, where there are any, are the same for masks, as PNG pictures of object numbers with
0 for the background; the store keeps them at their own size.
"""

import argparse
import io
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from geoco.data.source import RawVideo
from geoco.data.store import read_index
from geoco.data.store_writer import StoreWriter, check_recipe
from geoco.errors import GeocoError

ROWS, COLUMNS = 3, 8  # of frames in a sheet
FILES = {"train": "movi_like_train_*.npz", "val": "movi_like_val.npz"}


def cut_sheet(packed: Mapping[str, np.ndarray], kind: str, number: int) -> np.ndarray:
    """The frames, or masks, of a clip from its sheet: row by row, each from left to right."""
    start, end = packed[f"{kind}offsets"][number : number + 2]
    with Image.open(io.BytesIO(packed[f"{kind}sheets"][start:end].tobytes())) as sheet:
        picture = np.asarray(sheet)
    rows = np.split(picture, ROWS, axis=0)
    return np.stack([frame for row in rows for frame in np.split(row, COLUMNS, axis=1)])


def read_clips(files: list[Path], split: str, skip: int) -> Iterator[RawVideo]:
    """The clips after the first `skip`, file by file."""
    for file in files:
        with np.load(file, allow_pickle=False) as stored:
            packed = dict(stored)
        names = packed["names"]
        for number in range(skip, len(names)):
            masks = cut_sheet(packed, "mask_", number) if "mask_sheets" in packed else None
            name = f"movi_like/{split}/{names[number]}"
            yield RawVideo(name, cut_sheet(packed, "", number), masks)
        skip = max(0, skip - len(names))


def write_split(files: list[Path], split: str, path: Path) -> None:
    settings = {"source": {"kind": "movi_like", "files": [file.name for file in files]}}
    if path.exists():  # an earlier run made it
        check_recipe(path, read_index(path).settings, settings)
        return
    height, width = next(read_clips(files, split, 0)).frames.shape[1:3]
    with StoreWriter(path, height, width, settings) as writer:  # goes on where it was stopped
        clips = read_clips(files, split, max(0, len(writer) - 1))
        if writer.last is not None and next(clips).source != writer.last.source:
            raise GeocoError(f"{path}: its files have changed: delete {path}.partial and run again")
        for clip in clips:
            writer.append(clip)
        writer.finish()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("store", type=Path)
    arguments = parser.parse_args()
    files = {split: sorted(arguments.folder.glob(pattern)) for split, pattern in FILES.items()}
    if not any(files.values()):
        parser.error(f"{arguments.folder}: holds neither {' nor '.join(FILES.values())}")
    for split, some in files.items():
        if some:
            write_split(some, split, arguments.store / split)
            index = read_index(arguments.store / split)
            print(f"wrote {arguments.store / split}: {len(index.videos)} videos")


if __name__ == "__main__":
    main()
