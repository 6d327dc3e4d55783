"""What docs/architecture.md says of decoders, baselines and tables is enough to add one of each."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from helpers import make_small_solids, make_tiny_model
from rich.console import Console
from torch import Tensor, nn

from geoco import Editor, config, evaluation, geometry
from geoco.evaluation.tables import Evaluation, Table
from geoco.evaluation.windows import Progress
from geoco.models.build import MODELS, build
from geoco.models.decoders import DECODERS, Decoder, Fields
from geoco.models.interface import Model
from geoco.models.slots import Binding, Slots
from geoco.publishing.model_card import Card
from geoco.publishing.publish import make_portable
from geoco.reporting.cells import TextTable
from geoco.reporting.results import Values
from geoco.training import Objective, objectives
from geoco.training.curriculum import Mode
from geoco.training.launch import Machine, start_training
from geoco.training.metrics_log import read_metrics
from geoco.training.objective import Draws, Losses
from geoco.training.run_folder import Run

SIZE, TOKENS = 16, 4
SMALL_OVERRIDES = [
    "data.episodes={train: 4, val: 2, test: 1}",
    "data.frames=6",
    "data.supersample=1",
    f"data.height={SIZE}",
    f"data.width={SIZE}",
    "train.steps=2",
    "train.batch=4",
    "train.precision=32-true",
    "train.feed=resident",
    "train.phases=[{name: all, terms: [rec, ov]}]",
    "train.log_every=1",
    "train.validation=2",
    "train.picture_every=2",
]


def draw_blobs(position: Tensor, scale: Tensor, side: int, extent: int = 1) -> Tensor:
    """Alpha logits of round slots: high within their scale, low outside."""
    points = geometry.build_grid(side, side, extent, dtype=scale.dtype, device=scale.device)
    away = geometry.to_slot_frame(points, position, scale)
    return 4 - 2 * away.square().sum(-1)


def train(settings: config.Config, folder: Path) -> dict[str, list[float]]:
    start_training(settings, folder, Machine("cpu"), None, Console(quiet=True))
    return read_metrics(folder / "metrics.csv")


def write_card(settings: config.Config, model: Model) -> str:
    return Card("mine", make_portable(settings), model, 2, (0.1, 0.3), (20.0, 2)).to_markdown()


# -- a decoder -------------------------------------------------------------------------------------


class BlobDecoder(Decoder):
    """A slot is a round patch of one colour."""

    def __init__(self, settings: config.DecoderConfig, dim: int) -> None:
        super().__init__(settings, dim)
        self.color = nn.Linear(dim, 3)

    def forward(self, slots: Slots, extent: int = 1, alpha_only: bool = False) -> Fields:
        side = geometry.count_samples(self.size, extent)
        logits = draw_blobs(slots.position, slots.scale, self.size, extent)
        if alpha_only:
            return Fields(logits)
        color = torch.sigmoid(self.color(slots.appearance))[..., None, None]
        rgb = color.expand(*color.shape[:-2], side, side)
        spread = slots.appearance[..., None, None]
        return Fields(logits, rgb, rgb, spread.expand(*spread.shape[:-2], side, side))


@pytest.fixture
def _blob_decoder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(DECODERS, "blobs", BlobDecoder)
    config.DECODER_DESIGNS.append("blobs")
    yield
    config.DECODER_DESIGNS.remove("blobs")


@pytest.mark.usefixtures("_blob_decoder")
def test_a_decoder(tmp_path: Path) -> None:
    changes = ["model.decoder.design=blobs", f"model.decoder.layers=[[{SIZE},3]]", *SMALL_OVERRIDES]
    settings = config.load(None, [*changes, "model.slots={count: 3, dim: 8}"])
    model = build(settings.model)
    assert isinstance(model.decoder, BlobDecoder)
    metrics = train(settings, tmp_path / "run")
    assert metrics["step"] == [1, 2]
    assert metrics["rec"][1] != metrics["rec"][0]
    assert Run.open(tmp_path / "run").config == settings
    assert "drawn by a decoder of another design (`blobs`)" in write_card(settings, model)


# -- a baseline with its own loss ------------------------------------------------------------------


class BlobsConfig(config.Section):
    kind: Literal["blobs"] = "blobs"
    slots: int = 3


class Blobs(Model):
    """Slots stay where they start and take the colours of what is there."""

    settings: BlobsConfig

    def __init__(self, settings: BlobsConfig) -> None:
        super().__init__(settings)
        self.colors = nn.Linear(3, 3)
        self.scale = nn.Parameter(torch.tensor(0.3))

    @property
    def size(self) -> int:
        return SIZE

    @property
    def slot_count(self) -> int:
        return self.settings.slots

    def bind(self, video: Tensor, positions: Tensor, temporal: bool = True) -> Binding:
        batch, time = video.shape[:2]
        position = positions[:, None].expand(batch, time, -1, 2)
        scale = self.scale * video.new_ones(batch, time, self.settings.slots)
        logits = draw_blobs(position, scale, TOKENS).flatten(-2)
        attention = logits.softmax(2)
        attention = attention / attention.sum(-1, keepdim=True)
        tokens = nn.functional.adaptive_avg_pool2d(video.flatten(0, 1), TOKENS)
        seen = attention @ tokens.flatten(-2).mT.unflatten(0, (batch, time))
        return Binding(Slots(seen, position, scale), attention, torch.zeros_like(seen))

    def decode_slots(self, slots: Slots, extent: int = 1, alpha_only: bool = False) -> Fields:
        logits = draw_blobs(slots.position, slots.scale, SIZE, extent)
        if alpha_only:
            return Fields(logits)
        rgb = torch.sigmoid(self.colors(slots.appearance))[..., None, None]
        return Fields(logits, rgb.expand(*rgb.shape[:-2], *logits.shape[-2:]))


class BlobsObjective(Objective):
    """Reconstruction, and a loss of its own: slots shall not be large."""

    terms = ("rec", "largeness")

    def compute(
        self, video: Tensor, source: Tensor, draws: Draws, weights: Tensor, mode: Mode
    ) -> Losses:
        made = self.model.decode(self.model.bind(video, draws.positions))
        losses = {
            "rec": (made.image - video).square().mean(),
            "largeness": made.binding.slots.scale.square().mean(),
        }
        return Losses(losses, losses["rec"] + 0.1 * losses["largeness"])


def test_a_baseline_with_its_own_loss(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(config.MODEL_KINDS, "blobs", BlobsConfig)
    monkeypatch.setitem(MODELS, "blobs", Blobs)
    monkeypatch.setitem(objectives, "blobs", BlobsObjective)
    settings = config.load(None, ["model.kind=blobs", "model.slots=2", *SMALL_OVERRIDES])
    assert isinstance(build(settings.model), Blobs)
    metrics = train(settings, tmp_path / "run")
    assert metrics["step"] == [1, 2]
    assert metrics["largeness"][0] == pytest.approx(0.3**2)
    assert metrics["largeness"][1] < metrics["largeness"][0]
    assert metrics["total"] == pytest.approx(
        [rec + 0.1 * large for rec, large in zip(metrics["rec"], metrics["largeness"], strict=True)]
    )
    assert "geo" not in metrics
    model = build(settings.model)
    assert "A model of the kind `blobs`: it takes" in write_card(settings, model)
    scores = evaluation.evaluate(
        evaluation.adapter(model), make_small_solids(), tmp_path / "tables", "blobs", windows=2
    )
    assert scores.tables["factual"]["psnr"] > 0
    assert scores.tables["editing"]["all"]["position"]["f1"]["estimate"] >= 0
    scene = Editor.load(tmp_path / "run").encode(np.zeros((SIZE, SIZE, 3), np.uint8))
    assert scene.move(1, dx=3, dy=0).image.shape == (SIZE, SIZE, 3)


# -- a table of the evaluation ---------------------------------------------------------------------


@dataclass(frozen=True)
class Areas:
    mean: float
    windows: int


def compute_areas(evaluation: Evaluation, progress: Progress) -> Areas:
    factual = evaluation.factual
    progress(1, 1)
    return Areas(float(factual.slots.scale.square().mean()), len(factual))


def build_areas(name: str, values: Values) -> TextTable:
    row = (name, f"{values['mean']:.3f}", str(values["windows"]))
    return TextTable("Areas of slots", ("Method", "Area", "Windows"), (row,), "Squared scales.")


def test_a_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(evaluation.TABLES, "areas", Table(compute_areas, (build_areas,)))
    results = evaluation.evaluate(
        make_tiny_model(),
        make_small_solids(),
        tmp_path,
        "tiny",
        tables=["areas", "factual"],
        windows=2,
    )
    stored = json.loads((tmp_path / "areas.json").read_text())["values"]
    assert stored == results.tables["areas"]
    assert stored["windows"] == 2
    text = (tmp_path / "tables.md").read_text()
    assert "### Areas of slots" in text or "## Areas of slots" in text
    assert f"| tiny | {stored['mean']:.3f} | 2 |" in text
    assert "Areas of slots" in (tmp_path / "tables.tex").read_text()
    again = evaluation.evaluate(
        make_tiny_model(), make_small_solids(), tmp_path, "tiny", windows=2, tables=["areas"]
    )
    assert again.tables["areas"] == stored
