"""How good instance masks found from pixels alone are, against true ones.

    python benchmarks/instance_bank.py [--reference FILE.npz] [--episodes N] [--sheet out.png]

Whole videos of the validation split of `solids`, and of a reference that holds `frames` uint8
[episode, time, height, width, 3] and `masks` uint8 [episode, time, height, width]. The sheet shows
the worst frames of `solids`, or of the reference where one is given: picture, truth, found.
`--alone` finds instances in each frame by itself. Speed is in frames per second of processor time.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from geoco import drawing
from geoco.config import SolidsConfig, WindowConfig
from geoco.data.solids import SolidsDataset
from geoco.instances import Scores, find_instances, score_masks

COLUMNS = 3  # of worst cases on a sheet
ROWS = 5


@dataclass(frozen=True)
class Case:
    """A frame, its true masks and its instances."""

    badness: tuple[float, float]
    frame: np.ndarray
    true: np.ndarray
    instances: np.ndarray


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--episodes", type=int, default=40)
    parser.add_argument("--sheet", type=Path)
    parser.add_argument("--alone", action="store_true", help="each frame by itself")
    arguments = parser.parse_args()
    print(f"{'':12}{'frames':>8}{'objects':>9}{'mean IoU':>10}{'missed':>9}{'missed':>9}", end="")
    print(f"{'false per':>11}{'number':>8}{'frames':>9}")
    print(f"{'':12}{'':8}{'':9}{'before':>10}{'before':>9}{'after':>9}", end="")
    print(f"{'frame':>11}{'kept':>8}{'/s':>9}")
    cases = _measure("solids val", _iterate_solids(arguments.episodes), arguments.alone)
    if arguments.reference:
        stored = _iterate_reference(arguments.reference, arguments.episodes)
        cases = _measure("reference", stored, arguments.alone)
    if arguments.sheet:
        _draw_cases(cases, arguments.sheet)
        print(f"wrote {arguments.sheet}")


def _iterate_solids(episodes: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    dataset = SolidsDataset(SolidsConfig(window=WindowConfig(length=100, stride=100)), "val")
    for index in range(min(episodes, len(dataset))):
        clip = dataset[index]
        if clip.masks is None:
            raise AssertionError("solids always has masks")
        yield clip.video.permute(0, 2, 3, 1).numpy(), clip.masks.numpy()


def _iterate_reference(path: Path, episodes: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    with np.load(path) as stored:
        yield from zip(stored["frames"][:episodes], stored["masks"][:episodes], strict=True)


def _measure(name: str, videos: Iterator[tuple[np.ndarray, np.ndarray]], alone: bool) -> list[Case]:
    """Print a row of the table; returns the frames worst first, at most one per video."""
    scores, cases, seconds = [], [], 0.0
    for frames, true in videos:
        start = time.process_time()
        pieces = np.split(frames, len(frames)) if alone else [frames]
        instances = np.concatenate([find_instances(piece) for piece in pieces])
        seconds += time.process_time() - start
        scores.append(score_masks(true, instances))
        cases.append(_find_worst(frames, true, instances))
    total = Scores.cat(scores)
    before = (total.iou < 0.5).mean()
    print(
        f"{name:12}{total.frames:8,}{len(total.iou):9,}{total.iou.mean():10.4f}{before:9.2%}"
        f"{total.missed:9.2%}{total.false_per_frame:11.4f}"
        f"{total.same_number / len(total.iou):8.2%}{total.frames / seconds:9.1f}"
    )
    return sorted(cases, key=lambda case: case.badness)


def _find_worst(frames: np.ndarray, true: np.ndarray, instances: np.ndarray) -> Case:
    cases = []
    for frame, truth, labels in zip(frames, true, instances, strict=True):
        one = score_masks(truth[None], labels[None])
        badness = (float(one.allowed.min(initial=1)) - one.false, float(one.iou.min(initial=1)))
        cases.append(Case(badness, frame, truth, labels))
    return min(cases, key=lambda case: case.badness)


def _draw_cases(cases: list[Case], path: Path) -> None:
    pictures = [
        picture
        for case in cases[: COLUMNS * ROWS]
        for picture in (
            drawing.magnify(case.frame, 3),
            drawing.overlay_masks(case.frame, case.true, 3),
            drawing.overlay_masks(case.frame, case.instances, 3),
        )
    ]
    wide = 3 * COLUMNS
    drawing.save_pictures(
        path,
        [drawing.compose_sheet([pictures[i : i + wide] for i in range(0, len(pictures), wide)])],
    )


if __name__ == "__main__":
    main()
