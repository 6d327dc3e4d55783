"""How alike `solids` is to frames of Obj3D's own generator: a table and a sheet side by side.

    python benchmarks/solids_statistics.py REFERENCE.npz [--sheet out.png]

The reference holds `frames` uint8 [episode, time, 64, 64, 3], `masks` uint8 [episode, time, 64, 64]
(0 background, 1 the launched sphere) and `index` [episode, time], the frame numbers. `solids` is
drawn at the same frame numbers.
"""

import argparse
from pathlib import Path

import numpy as np

from geoco import drawing
from geoco.config import SolidsConfig
from geoco.data.solids import SolidsDataset
from geoco.solids import render_scenes

COLORS = SolidsConfig().colors
METAL_CONTRAST = 0.33  # objects whose brightness varies more than this share of its mean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--sheet", type=Path)
    arguments = parser.parse_args()
    stored = np.load(arguments.reference)
    frames, masks, index = (stored[name] for name in ("frames", "masks", "index"))
    episodes, times = index.shape
    dataset = SolidsDataset(SolidsConfig(), "train")
    scenes = dataset.extract_scenes(
        np.repeat(np.arange(episodes), times), index.astype(np.int64).flatten()
    )
    pictures = render_scenes(scenes, dataset.canvas)
    ours = pictures.frames.permute(0, 2, 3, 1).numpy(), pictures.masks.numpy()
    theirs = frames.reshape(-1, 64, 64, 3), masks.reshape(-1, 64, 64)
    print(f"{len(theirs[0])} frames each")
    print(f"{'':34}{'reference':>18}{'solids':>18}{'difference':>18}")
    for name, reference in _compute_statistics(*theirs).items():
        value = _compute_statistics(*ours)[name]
        cells = "".join(
            f"{_format_value(cell):>18}" for cell in (reference, value, value - reference)
        )
        print(f"{name:34}{cells}")
    if arguments.sheet:
        _draw_sheet(theirs, ours, arguments.sheet)
        print(f"wrote {arguments.sheet}")


def _compute_statistics(frames: np.ndarray, masks: np.ndarray) -> dict[str, np.ndarray]:
    areas = np.stack([(masks == k).sum((1, 2)) for k in range(1, 6)], axis=1)
    rows, columns = np.mgrid[:64, :64]
    centers = []
    for mask in masks:
        for number in range(1, 6):
            inside = mask == number
            if inside.sum() >= 10:
                centers.append((columns[inside].mean(), rows[inside].mean()))
    place = np.array(centers)
    table = {
        "objects visible per frame": np.array(np.count_nonzero(areas, axis=1).mean()),
        "objects of 10 pixels or more": np.array((areas >= 10).sum(1).mean()),
        "area of a visible object, pixels": np.array(areas[areas > 0].mean()),
        "area, 5 % and 95 % quantile": np.quantile(areas[areas > 0], (0.05, 0.95)),
        "centroid x, y, mean": place.mean(0),
        "centroid x, y, deviation": place.std(0),
        "floor, mean RGB": frames[masks == 0].mean(0),
    }
    for name, values in _measure_object_colors(frames, masks).items():
        table[name] = values
    return table


def _measure_object_colors(frames: np.ndarray, masks: np.ndarray) -> dict[str, np.ndarray]:
    """Mean RGB by colour and material, away from edges; material is guessed from contrast."""
    palette = np.array(list(COLORS.values()))
    palette = palette / np.linalg.norm(palette, axis=1, keepdims=True)
    colors: dict[str, list[np.ndarray]] = {}
    for frame, mask in zip(frames, masks, strict=True):
        for number in range(1, 6):
            inside = mask == number
            inner = inside.copy()
            inner[1:-1, 1:-1] &= inside[:-2, 1:-1] & inside[2:, 1:-1]
            inner[1:-1, 1:-1] &= inside[1:-1, :-2] & inside[1:-1, 2:]
            inner[[0, -1]] = inner[:, [0, -1]] = False
            if inner.sum() < 15:
                continue
            pixels = frame[inner].astype(float)
            light = (pixels / 255) ** 2.2
            mean, brightness = light.mean(0), light.sum(1)
            color = list(COLORS)[int((palette @ mean / np.linalg.norm(mean)).argmax())]
            metal = brightness.std() > METAL_CONTRAST * brightness.mean()
            name = f"{color} {'metal' if metal else 'rubber'}, mean RGB"
            colors.setdefault(name, []).append(pixels.mean(0))
    return {name: np.mean(colors[name], axis=0) for name in sorted(colors)}


def _format_value(value: np.ndarray) -> str:
    return " ".join(
        f"{number:.2f}" if value.size == 1 else f"{number:.1f}" for number in value.flat
    )


def _draw_sheet(theirs: tuple[np.ndarray, ...], ours: tuple[np.ndarray, ...], out: Path) -> None:
    """Three rows of the reference above three rows of ours, masks beside the last of each."""
    rows = []
    for frames, masks in (theirs, ours):
        chosen = np.linspace(5, len(frames) - 1, 24).astype(int)
        for part in chosen.reshape(3, 8)[:2]:
            rows.append([drawing.magnify(frames[i], 3) for i in part])
        rows.append([drawing.overlay_masks(frames[i], masks[i], 3) for i in chosen[8:16]])
    drawing.save_pictures(out, [drawing.compose_sheet(rows)])


if __name__ == "__main__":
    main()
