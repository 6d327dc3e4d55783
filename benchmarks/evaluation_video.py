"""How long the video protocol takes, table by table, and how much of that is the model's work.

    python benchmarks/evaluation_video.py --device cuda         # 250 clips of 24 frames
    python benchmarks/evaluation_video.py --clips 4 --model drawn

Squares move over noise, with masks of 128 x 128 beside frames of 64 x 64. The model is that of a
configuration, by default GeoCo-SAVi's on clips like MOVi-C's, with random weights: what it scores
says nothing. `drawn` is one that draws squares where they are, for next to nothing, so that what is
left is what evaluation does itself: without a GPU nothing else can be measured at full size. On a
GPU every call of the model is waited for. On a CPU times are those of one thread at work, whoever
else is there. Peaks are of the GPU's memory, and on a CPU of the process so far.
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from stopwatch import Stopwatch, measure_peak
from torch import Tensor

from geoco import config
from geoco.data import ClipBatch
from geoco.evaluation import adapter
from geoco.evaluation.extended_canvas import full_precision
from geoco.evaluation.interfaces import Decoded, Encoded, SlotModel, TrackedSlots
from geoco.evaluation.tables import TABLES, Evaluation
from geoco.evaluation.video_rows import compute_video_factual
from geoco.evaluation.windows import choose_windows
from geoco.geometry import build_grid
from geoco.models.build import build
from geoco.models.decoders import Fields
from geoco.models.encoders import DinoEncoder
from geoco.models.slots import Slots

SIZE, ZOOM = 64, 2
SLOTS, OBJECTS = 11, 8  # about as many valid objects as the paper counts in a frame
DIM, TOKENS = 64, 576
PITCH = 2 / (SIZE - 1)


class MovingSquares:
    """Clips as a dataset: squares that move straight on, their numbers as masks."""

    description = "moving squares"

    def __init__(self, clips: int, frames: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.sources = [f"clip {number}" for number in range(clips)]
        self.frames = frames
        start, end = (1.8 * torch.rand(2, clips, 1, SLOTS, 2, generator=generator) - 0.9).unbind()
        way = torch.linspace(0, 1, frames)[:, None, None]
        half = 3 + 6 * torch.rand(clips, 1, SLOTS, generator=generator)  # pixels
        half[:, :, 0], half[:, :, OBJECTS + 1 :] = 0, -1  # the background, and slots of nothing
        appearance = torch.rand(clips, frames, SLOTS, DIM, generator=generator)
        appearance[..., 0] = half
        scale = torch.full((clips, frames, SLOTS), PITCH)
        self.scenes = Slots(appearance, start + way * (end - start), scale)

    def __len__(self) -> int:
        return len(self.sources)

    def batch(self, indices: Sequence[int]) -> ClipBatch:
        chosen = list(indices)
        logits = draw_squares(self.scenes[chosen].map(lambda part: part.flatten(0, 1)))
        labels = logits.argmax(1).to(torch.uint8).unflatten(0, (len(chosen), -1))
        generator = torch.Generator().manual_seed(chosen[0])
        video = torch.randint(
            256, (len(chosen), self.frames, 3, SIZE, SIZE), generator=generator, dtype=torch.uint8
        )
        # By which the model that draws squares knows them again.
        video[:, :, 0, 0, 0] = torch.tensor(chosen, dtype=torch.uint8)[:, None]
        return ClipBatch(
            video=video,
            sources=tuple(self.sources[number] for number in chosen),
            frames=torch.arange(self.frames).expand(len(chosen), -1),
            masks=labels.repeat_interleave(ZOOM, -1).repeat_interleave(ZOOM, -2),
        )


class DrawnSquares:
    """A model that knows the squares and draws them by two comparisons."""

    slots, size = SLOTS, SIZE

    def __init__(self, scenes: Slots, device: str) -> None:
        self.scenes, self.device = scenes, device
        self.attention = torch.rand(SLOTS, TOKENS, generator=torch.Generator().manual_seed(0))

    def track(self, video: Tensor, starts: Tensor) -> TrackedSlots:
        slots = self.scenes[(video[:, 0, 0, 0, 0] * 255).round().long().cpu()]
        return TrackedSlots(slots, self.attention.expand(*slots.scale.shape, -1))

    def encode(self, frames: Tensor, starts: Tensor) -> Encoded:
        return self.track(frames[:, None], starts).flatten()

    def fields(self, slots: Slots) -> Fields:
        logits = draw_squares(slots.to(self.device))
        return Fields(logits, logits[..., None, :, :].expand(*logits.shape[:-2], 3, -1, -1))

    def compose(self, encoded: Encoded, fields: Fields) -> Decoded:
        assert fields.rgb is not None
        return fields.rgb, fields.logits

    def decode(self, encoded: Encoded, slots: Slots) -> Decoded:
        return self.compose(encoded, self.fields(slots))


def draw_squares(slots: Slots) -> Tensor:
    """Alpha logits: large inside of a square, and of no size that of a background."""
    points = build_grid(SIZE, SIZE, device=slots.scale.device)[0, :, 0]
    half = slots.appearance[..., 0]
    away = (points - slots.position[..., None]).abs()
    inside = (half * slots.scale)[..., None, None] - torch.maximum(
        away[..., 0, None, :], away[..., 1, :, None]
    )
    return torch.where((half == 0)[..., None, None], 0.0, 1e3 * inside)


def make_random_model(path: Path, device: str) -> SlotModel:
    """The model of a configuration with weights that nobody trained."""
    settings = config.load(path)
    torch.manual_seed(0)
    model = build(settings.model, pretrained=False)
    encoder = getattr(model, "encoder", None)
    if isinstance(encoder, DinoEncoder):
        for parameter in encoder.backbone.parameters():
            torch.nn.init.normal_(parameter, std=0.02)
    model.set_reference_scale(0.2)
    return adapter(model.eval().to(device), settings)


def measure(
    model: SlotModel, data: MovingSquares, tables: Sequence[str], device: str, batch: int
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
        rest = seconds - watch.seconds
        print(
            f"{name:20}{seconds:>9.1f}{watch.seconds:>9.1f}{rest:>9.1f}{measure_peak(device):>9.2f}"
        )
        return result

    with full_precision(), tempfile.TemporaryDirectory() as folder:
        chosen = choose_windows(data, None)
        print(f"\n{'':20}{'seconds':>9}{'model':>9}{'rest':>9}{'GiB':>9}")
        factual = run("factual slots", lambda: compute_video_factual(model, data, chosen, batch))
        evaluation = Evaluation(
            model, data, Path(folder), batch, None, None, lambda *news: None, None, True
        )
        vars(evaluation)["factual"] = factual
        for name in tables:
            table = TABLES[name]
            if table.fits(evaluation):
                run(name, lambda table=table: table.compute(evaluation, lambda *news: None))  # type: ignore[misc]
        print(f"{'together':20}{total:>9.1f}")
        print(f"{int(factual.valid.sum())} valid objects in {len(factual)} frames")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="configs/geoco-movi-like.yaml", help="or drawn")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--clips", type=int, help="250 on a GPU, 2 elsewhere")
    parser.add_argument("--frames", type=int, default=24)
    parser.add_argument("--batch", type=int, help="256 on a GPU, 64 elsewhere")
    parser.add_argument("--tables", default=",".join(TABLES))
    arguments = parser.parse_args()
    device = arguments.device
    torch.set_num_threads(1 if device == "cpu" else 8)
    data = MovingSquares(arguments.clips or (250 if device == "cuda" else 2), arguments.frames)
    if arguments.model == "drawn":
        model: SlotModel = DrawnSquares(data.scenes, device)
    else:
        model = make_random_model(Path(arguments.model), device)
    batch = arguments.batch or (256 if device == "cuda" else 64)
    print(f"{arguments.model}, {len(data)} clips of {data.frames} frames, {device}, batch {batch}")
    measure(model, data, arguments.tables.split(","), device, batch)


if __name__ == "__main__":
    main()
