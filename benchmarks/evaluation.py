"""How long `geoco eval` of single frames takes, table by table, and what is the model's part.

    python benchmarks/evaluation.py --device cuda       # 2,600 windows with the shipped model
    python benchmarks/evaluation.py --windows 200 --model drawn

`drawn` is a model that knows where objects are and draws a disc for each, for next to nothing: what
is left is what evaluation does itself, which is all that can be measured at full size without a
GPU. On a GPU every call of the model is waited for, and `geoco eval` itself is a little faster. On
a CPU times are those of one thread at work, whoever else is there. Counted are the slots that are
drawn at all, those of alpha alone among them, and those on the finite-grid table's larger canvas.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from stopwatch import Stopwatch, measure_peak
from torch import Tensor

from geoco import metrics
from geoco.config import SolidsConfig
from geoco.data import SolidsDataset
from geoco.evaluation import adapter
from geoco.evaluation.extended_canvas import full_precision
from geoco.evaluation.interfaces import Decoded, Encoded, SlotModel
from geoco.evaluation.tables import TABLES, Evaluation
from geoco.evaluation.windows import choose_windows
from geoco.geometry import build_grid
from geoco.models import pretrained
from geoco.models.decoders import Fields
from geoco.models.slots import Slots

SIDE = 16  # of attention
SHARPNESS = 4.0
CHUNK = 256  # windows that are looked at at a time before the measurement


class DrawnDiscs:
    """A model that knows the objects of every frame and draws them by a distance each."""

    def __init__(self, data: SolidsDataset, windows: Sequence[int], device: str) -> None:
        self.size, self.device = data.canvas.height, device
        self.known: dict[bytes, Slots] = {}
        for first in range(0, len(windows), CHUNK):
            clips = data.batch(windows[first : first + CHUNK])
            assert clips.masks is not None
            labels = clips.masks[:, 0].cpu()
            numbers = torch.arange(6)
            seen = metrics.support_moments(labels[:, None] == numbers[:, None, None])
            here = (seen.coverage > 0) & (numbers > 0)
            position = seen.center.where(here[..., None], 0).float()
            scale = seen.radius.where(here, 1).float()
            kind = torch.where(numbers == 0, 0.0, torch.where(here, 1.0, -1.0))
            appearance = torch.rand(*scale.shape, 64, generator=torch.Generator().manual_seed(0))
            appearance[..., 0] = kind
            slots = Slots(appearance, position, scale)
            for row, frame in enumerate(clips.video[:, 0].cpu()):
                self.known[frame.numpy().tobytes()] = slots[row]
        self.slots = 6

    def encode(self, frames: Tensor, starts: Tensor) -> Encoded:
        pixels = (frames * 255).round().to(torch.uint8).cpu()
        slots = Slots.stack([self.known[frame.numpy().tobytes()] for frame in pixels])
        points = build_grid(SIDE, SIDE).flatten(0, 1)
        away = (points - slots.position[..., None, :]) / slots.scale[..., None, None]
        attention = torch.softmax(-2 * away.square().sum(-1), -1)
        return Encoded(slots.to(self.device), attention.to(self.device))

    def fields(self, slots: Slots) -> Fields:
        logits = draw_discs(slots.to(self.device), self.size)
        return Fields(logits, logits[..., None, :, :].expand(*logits.shape[:-2], 3, -1, -1))

    def compose(self, encoded: Encoded, fields: Fields) -> Decoded:
        assert fields.rgb is not None
        return fields.rgb, fields.logits

    def decode(self, encoded: Encoded, slots: Slots) -> Decoded:
        return self.compose(encoded, self.fields(slots))

    def native_logits(self, slots: Slots) -> Tensor:
        return draw_discs(slots.to(self.device), self.size)

    def extended_fields(self, slots: Slots) -> Fields:
        return Fields(draw_discs(slots.to(self.device), self.size))

    def final_logits(self, fields: Fields, attention: Tensor) -> Tensor:
        return fields.logits

    def validity(self, scale: Tensor) -> Tensor:
        return torch.ones(len(scale), self.size, dtype=torch.float64, device=self.device)


def draw_discs(slots: Slots, size: int) -> Tensor:
    """Alpha logits: largest in the middle of a disc, zero of the background, none of nobody."""
    points = build_grid(size, size, device=slots.scale.device)[0, :, 0]
    away = (points - slots.position[..., None]) / slots.scale[..., None, None]
    x, y = away.square().unbind(-2)
    disc = SHARPNESS * (2 - x[..., None, :] - y[..., :, None])
    kind = slots.appearance[..., 0, None, None]
    return torch.where(kind == 0, 0.0, torch.where(kind < 0, -20.0, disc))


def measure(
    model: SlotModel,
    data: SolidsDataset,
    tables: Sequence[str],
    device: str,
    batch: int,
    windows: int | None,
    extended: int | None,
    out: Path,
) -> None:
    watch = Stopwatch(model, device)
    total = 0.0

    def run(name: str, compute: Callable[[], Any]) -> Any:
        nonlocal total
        watch.reset()
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        begin = watch.read()
        result = compute()
        seconds = watch.read() - begin
        total += seconds
        usual = watch.drawn["fields"] + watch.drawn["native_logits"]
        print(
            f"{name:20}{seconds:>9.2f}{watch.seconds:>9.2f}{seconds - watch.seconds:>9.2f}"
            f"{usual:>10,}{watch.drawn['extended_fields']:>10,}{measure_peak(device):>7.2f}",
            flush=True,
        )
        return result

    with full_precision():
        print(
            f"\n{'':20}{'seconds':>9}{'model':>9}{'rest':>9}{'slots':>10}{'extended':>10}{'GiB':>7}"
        )
        evaluation = Evaluation(
            model, data, out, batch, windows, extended, lambda *news: None, None
        )
        run("factual slots", lambda: evaluation.factual)
        for name in tables:
            table = TABLES[name]
            if table.fits(evaluation):
                run(name, lambda table=table: table.compute(evaluation, lambda *news: None))  # type: ignore[misc]
        print(f"{'together':20}{total:>9.2f}")
        factual = evaluation.factual
        print(f"{int(factual.valid.sum()):,} valid objects in {len(factual):,} windows")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="geoco-solids", help="a run, weights, or drawn")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--windows", type=int, help="2,600 on a GPU, 20 elsewhere")
    parser.add_argument("--extended-windows", type=int, help="of the finite grid, if fewer")
    parser.add_argument("--batch", type=int, help="256 on a GPU, 64 elsewhere")
    parser.add_argument("--tables", default=",".join(TABLES))
    arguments = parser.parse_args()
    device, drawn = arguments.device, arguments.model == "drawn"
    torch.set_num_threads(1 if device == "cpu" else 8)
    begin = time.perf_counter()
    loaded = None if drawn else pretrained.load(arguments.model, device)
    data = SolidsDataset(SolidsConfig(), "val", device=device)
    windows = arguments.windows or (len(data) if device == "cuda" else 20)
    batch = arguments.batch or (256 if device == "cuda" else 64)
    if loaded is None:
        chosen = choose_windows(data, windows).tolist()
        model: SlotModel = DrawnDiscs(data, chosen, device)
        data = SolidsDataset(SolidsConfig(), "val", device=device)  # that has seen nothing yet
    else:
        model = adapter(loaded.model, loaded.config)
    prepared = time.perf_counter() - begin
    print(
        f"{arguments.model}, {windows} windows, {device}, batch {batch}, ready in {prepared:.1f} s"
    )
    with tempfile.TemporaryDirectory() as folder:
        measure(
            model,
            data,
            arguments.tables.split(","),
            device,
            batch,
            windows,
            arguments.extended_windows,
            Path(folder),
        )


if __name__ == "__main__":
    main()
