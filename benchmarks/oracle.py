"""How far the visible-layer oracle is from the truth, on `solids`, which knows it.

    python benchmarks/oracle.py [--windows 260] [--sheet docs/images/oracle.png]

The oracle of the paper's object-matched tables makes target images from a frame and its masks: what
an object hid it must guess, and shadows stay behind. Means are within videos, then over videos.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from geoco import drawing, metrics
from geoco.config import SolidsConfig
from geoco.data import SolidsDataset
from geoco.evaluation import reference_objects
from geoco.evaluation.exact_targets import draw_truths
from geoco.evaluation.matched import REPLICATES
from geoco.evaluation.windows import Factual, choose_windows
from geoco.metrics import rgb
from geoco.models.slots import Slots

BATCH = 64
SHOWN, ZOOM = 8, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=260)
    parser.add_argument("--sheet", type=Path)
    arguments = parser.parse_args()
    dataset = SolidsDataset(SolidsConfig(), "val")
    factual = gather_windows(dataset, arguments.windows)
    objects = reference_objects.find_references(factual)
    asked = (
        reference_objects.ask_moves(objects),
        reference_objects.ask_resizes(objects),
        reference_objects.ask_transplants(factual, objects),
    )
    print(f"{len(objects)} objects of {len(factual)} windows, {len(set(factual.source))} videos")
    print(f"{'':12}{'edits':>8}{'full image, dB':>28}{'editing region, dB':>28}{'unedited':>10}")
    rows = []
    for edits in asked:
        columns = []
        for chunk in torch.arange(len(edits)).split(BATCH):
            some = edits.rows(chunk)
            made = reference_objects.compute_oracle_targets(
                factual, objects, some, torch.device("cpu")
            )
            truth = draw_truths(dataset, factual, objects, some, torch.device("cpu"))
            frame = factual.frame[objects.window[some.object]].double() / 255
            columns.append(
                torch.stack(
                    (
                        rgb.psnr(made.image, truth.image),
                        rgb.region_psnr(made.image, truth.image, made.region),
                        rgb.region_psnr(frame, truth.image, made.region),
                    )
                )
            )
        values = torch.cat(columns, 1).numpy()
        video = factual.video[objects.window[edits.object].numpy()]
        cells = [
            metrics.paired_interval(metrics.video_means(row, video), REPLICATES) for row in values
        ]
        numbers = [f"{cell.estimate:.2f} [{cell.low:.2f}, {cell.high:.2f}]" for cell in cells]
        print(f"{edits.kind:12}{len(edits):>8}{numbers[0]:>28}{numbers[1]:>28}"
              f"{cells[2].estimate:>10.2f}")  # fmt: skip
        rows += examples(dataset, factual, objects, edits)
    if arguments.sheet:
        drawing.save_pictures(arguments.sheet, [drawing.compose_sheet(rows)])
        print(f"wrote {arguments.sheet}")


def examples(
    dataset: SolidsDataset,
    factual: Factual,
    objects: reference_objects.References,
    edits: reference_objects.AskedEdits,
) -> list[list[np.ndarray]]:
    """Frames, targets and truths of a few edits, three rows."""
    some = edits.rows(torch.linspace(0, len(edits) - 1, SHOWN).long())
    made = reference_objects.compute_oracle_targets(factual, objects, some, torch.device("cpu"))
    truth = draw_truths(dataset, factual, objects, some, torch.device("cpu"))
    frames = factual.frame[objects.window[some.object]].double() / 255
    return [[picture(image) for image in row] for row in (frames, made.image, truth.image)]


def gather_windows(dataset: SolidsDataset, limit: int) -> Factual:
    """Windows as a model that owns nothing would leave them: only frames and masks matter here."""
    windows = choose_windows(dataset, limit)
    clips = dataset.batch(windows.tolist())
    assert clips.masks is not None
    count, size = len(windows), clips.video.shape[-1]
    return Factual(
        window=windows,
        source=clips.sources,
        slots=Slots(torch.zeros(count, 1, 1), torch.zeros(count, 1, 2), torch.ones(count, 1)),
        attention=None,
        masks=torch.zeros(count, 1, size, size, dtype=torch.bool),
        background=torch.zeros(count, dtype=torch.int64),
        valid=torch.zeros(count, 1, dtype=torch.bool),
        frame=clips.video[:, 0],
        image=clips.video[:, 0].float() / 255,
        psnr=torch.zeros(count, dtype=torch.float64),
        reference=clips.masks[:, 0],
    )


def picture(image: torch.Tensor) -> np.ndarray:
    values = (255 * image.clamp(0, 1)).round().to(torch.uint8).permute(1, 2, 0).numpy()
    return drawing.magnify(values, ZOOM)


if __name__ == "__main__":
    main()
