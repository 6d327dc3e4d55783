"""A baseline from outside the package: its own model, its own objective, the same training."""

from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

from geoco import config
from geoco.config.loading import Section
from geoco.errors import GeocoError
from geoco.models import build
from geoco.models.decoders import Fields
from geoco.models.interface import Model
from geoco.models.slots import Binding, Slots
from geoco.training import Objective, objectives
from geoco.training.curriculum import Mode
from geoco.training.launch import Machine, start_training
from geoco.training.metrics_log import read_metrics
from geoco.training.objective import Draws, Losses
from geoco.training.trainer import Trainer

SIZE = 8


class ToyConfig(Section):
    kind: Literal["toy"] = "toy"
    slots: int = 3


class Toy(Model):
    """Every slot draws one colour, which a linear layer reads off the whole picture."""

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self.read = nn.Linear(3 * SIZE * SIZE, 4 * settings.slots)

    @property
    def size(self) -> int:
        return SIZE

    @property
    def slot_count(self) -> int:
        count: int = self.settings.slots  # type: ignore[attr-defined]
        return count

    def bind(self, video: Tensor, positions: Tensor, temporal: bool = True) -> Binding:
        appearance = self.read(video.flatten(2)).unflatten(-1, (self.slot_count, 4))
        where = positions[:, None].expand(*appearance.shape[:-1], 2)
        attention = torch.full((*appearance.shape[:-1], 4), 0.25)
        return Binding(
            Slots(appearance, where, torch.ones_like(where[..., 0])), attention, appearance
        )

    def decode_slots(self, slots: Slots, extent: int = 1, alpha_only: bool = False) -> Fields:
        plane = torch.zeros(SIZE, SIZE)
        rgb = slots.appearance[..., :3, None, None].sigmoid() + plane
        return Fields(slots.appearance[..., 3, None, None] + plane, None if alpha_only else rgb)


class ToyObjective(Objective):
    terms = ("picture", "spread")

    def compute(
        self, video: Tensor, source: Tensor, draws: Draws, weights: Tensor, mode: Mode
    ) -> Losses:
        reconstruction = self.model.decode(self.model.bind(video, draws.positions))
        values = {
            "picture": (reconstruction.image - video).square().mean(),
            "spread": reconstruction.binding.slots.appearance.square().mean(),
        }
        return Losses(values, values["picture"] + 0.01 * values["spread"])


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> config.Config:
    monkeypatch.setitem(config.MODEL_KINDS, "toy", ToyConfig)
    monkeypatch.setitem(build.MODELS, "toy", Toy)
    data = "data={episodes: {train: 2, val: 1, test: 1}, frames: 4, height: 8, width: 8}"
    train = (
        "train.budget=0.0002", "train.batch=2", "train.precision=32-true", "train.log_every=2",
        "train.validation=2", "train.picture_every=7", "train.warmup=0", "train.learning_rate=0.01",
        "train.clip=1.0",
    )  # fmt: skip
    return config.load(None, ["model.kind=toy", data, "data.supersample=1", *train])


def test_a_toy_trains_by_its_own_losses(
    toy: config.Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(objectives, "toy", ToyObjective)
    lines: list[str] = []
    describe_losses = Trainer._describe_losses

    def listen(self: Trainer) -> str:
        lines.append(describe_losses(self))
        return lines[-1]

    monkeypatch.setattr(Trainer, "_describe_losses", listen)
    start_training(toy, tmp_path / "run", Machine("cpu"), None, Console(quiet=True))
    metrics = read_metrics(tmp_path / "run" / "metrics.csv")
    assert list(metrics) == [
        "step", "picture", "spread", "total", "gradient_norm", "learning_rate", "reference_scale",
        "selector_cap",
    ]  # fmt: skip
    assert metrics["step"] == [2, 4, 6, 8, 10, 12, 14]
    assert metrics["picture"][-1] < 0.9 * metrics["picture"][0]
    total = metrics["picture"][0] + 0.01 * metrics["spread"][0]
    assert metrics["total"][0] == pytest.approx(total, rel=1e-5)
    gradients = read_metrics(tmp_path / "run" / "gradients.csv")
    assert list(gradients) == ["step", "picture/read", "spread/read"]
    assert all(value > 0 for value in (*gradients["picture/read"], *gradients["spread/read"]))
    assert ": picture " in lines[0]
    assert " spread " in lines[0]
    assert (tmp_path / "run" / "curves.png").is_file()


def test_a_kind_without_an_objective_is_refused(toy: config.Config, tmp_path: Path) -> None:
    with pytest.raises(GeocoError, match=r"nothing says how 'toy' is trained: add it to geoco\.tr"):
        start_training(toy, tmp_path / "run", Machine("cpu"), None, Console(quiet=True))
    assert not (tmp_path / "run").exists()
