"""A selector fitted to a trained model, of which nothing else changes.

What a selector sees is detached from the model, so it can be trained at any time: for a model that
had none, or with other evidence. Clips of the training split are bound once, and of them only the
pixels are kept that the teacher labels; fitting to them takes a minute on a CPU.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from geoco import config
from geoco.config import Config
from geoco.config.training import SelectorTrainingConfig
from geoco.data import ClipDataset, open_training
from geoco.errors import GeocoError
from geoco.models import checkpoints
from geoco.models.build import build
from geoco.models.interface import Model
from geoco.models.selector import COLORS, SCALARS, Selector, pick_pixels
from geoco.training import selector_teacher, selector_threshold
from geoco.training.selector_teacher import Labels

EXTRA = "selector"  # under which weights say that theirs was fitted so
RATE = 3e-3  # the peak of one cycle
BATCH = 32  # clips in a step
_SECTIONS = ("model.selector.", "train.selector.")

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class LabeledPixels:
    """Pixels that the teacher labels, clip by clip; rows are padded with pixels that teach nothing.

    The selector's projection is a parameter, so features are kept as they were before it.
    """

    labels: Labels
    owner: Int64[Tensor, "clip 1 pixel"]
    scalars: Float[Tensor, "clip 1 pixel 8"]
    feature: Float[Tensor, "clip 1 pixel dim"]  # the owner's
    difference: Float[Tensor, "clip 1 pixel dim"]  # from the background's
    color: Float[Tensor, "clip 1 pixel 3"]

    def __len__(self) -> int:
        return len(self.owner)

    def select_rows(self, chosen: Int64[Tensor, " row"]) -> "LabeledPixels":
        parts = (self.scalars, self.feature, self.difference, self.color)
        labels = Labels(self.labels.positive[chosen], self.labels.protected[chosen])
        return LabeledPixels(labels, self.owner[chosen], *(part[chosen] for part in parts))

    def score(self, selector: Selector) -> Float[Tensor, "clip 1 pixel"]:
        """What a selector thinks of the pixels: `Selector.forward` from evidence that is kept."""
        own = selector.project(self.feature)
        difference = F.linear(self.difference, selector.project.weight)
        evidence = torch.cat((self.scalars, own, difference, self.color), -1)
        score: Tensor = selector.judge(evidence)
        return score.squeeze(-1)


def refit_selector(
    run: Path,
    overrides: Iterable[str] = (),
    clips: int = 256,
    steps: int = 1500,
    progress: Progress = lambda what, done, total: None,
) -> Path:
    """Fit a selector to a run's last weights and write them with it; returns the file.

    Overrides are of the sections model.selector and train.selector.
    """
    given = list(overrides)
    for text in given:
        if not text.startswith(_SECTIONS):
            raise GeocoError(
                f"{text}: only the selector can differ here: {' or '.join(_SECTIONS)}..."
            )
    weights = checkpoints.read_weights(run)
    settings = config.override(weights.config, given) if given else weights.config
    if settings.model.kind != "geoco":
        raise GeocoError(f"{run}: a model of the kind '{settings.model.kind}' has no selector")
    if not settings.model.selector.enabled:
        raise GeocoError(f"{run}: has no selector: add model.selector.enabled=true to fit one")
    model = load_with_new_selector(settings, weights.tensors, str(run))
    dataset = open_training(settings)
    generator = torch.Generator().manual_seed(settings.train.seed)
    pixels = label_clips(
        model, dataset, clips, settings, generator, lambda *news: progress("clips", *news)
    )
    assert model.selector is not None
    fit_selector(
        model.selector,
        pixels,
        settings.model.slots.count,
        settings.train.selector,
        steps,
        generator,
        lambda *news: progress("steps", *news),
    )
    target = (run if run.is_dir() else run.parent) / checkpoints.REFITTED / checkpoints.WEIGHTS
    target.parent.mkdir(parents=True, exist_ok=True)
    extra = weights.extra | {EXTRA: f"fitted to {len(pixels)} training clips afterwards"}
    checkpoints.write_weights(target, weights.step, settings, model.state_dict(), extra)
    return target


def load_with_new_selector(settings: Config, tensors: dict[str, Tensor], where: str) -> Model:
    """The model with its own weights but for the selector, which begins again."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.train.seed)
        model = build(settings.model, pretrained=False)
    fresh = {name: value for name, value in model.state_dict().items() if _is_of_selector(name)}
    kept = {name: value for name, value in tensors.items() if not _is_of_selector(name)}
    checkpoints.load_into(model, kept | fresh, where)
    return model.eval()


@torch.no_grad()
def label_clips(
    model: Model,
    dataset: ClipDataset,
    clips: int,
    settings: Config,
    generator: torch.Generator,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> LabeledPixels:
    """Bind clips, have the teacher label their pixels, and keep those that it knows."""
    selector = model.selector
    assert selector is not None
    kept: list[tuple[Tensor, ...]] = []
    for bound in selector_threshold.bind_clips(model, dataset, clips, generator, progress=progress):
        fields, domain = bound.fields, bound.domain
        labels = selector_teacher.label_pixels(
            bound.video, fields, bound.attention, domain, settings.train.selector.teacher
        )
        evidence = selector.gather_evidence(fields, bound.attention, domain)
        assert fields.features is not None
        features = fields.features.movedim(-3, -1)
        own = pick_pixels(features, domain.owner)
        difference = own - pick_pixels(features, domain.background_map)
        known = (labels.positive > 0) | (labels.protected > 0)
        columns = (
            labels.positive, labels.protected, domain.owner,
            evidence[..., :SCALARS], own, difference, evidence[..., -COLORS:],
        )  # fmt: skip
        first = known.dim() - 2
        flat = [column.flatten(0, first - 1).flatten(1, 2) for column in columns]
        for number, mask in enumerate(known.flatten(0, first - 1).flatten(1, 2)):
            kept.append(tuple(column[number][mask] for column in flat))
    padded = [
        torch.nn.utils.rnn.pad_sequence(list(column), batch_first=True).unsqueeze(1)
        for column in zip(*kept, strict=True)
    ]
    return LabeledPixels(Labels(padded[0], padded[1]), *padded[2:])


def fit_selector(
    selector: Selector,
    pixels: LabeledPixels,
    slots: int,
    settings: SelectorTrainingConfig,
    steps: int,
    generator: torch.Generator,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Minimise the selector's own loss on labelled pixels, in place."""
    parameters = list(selector.parameters())
    optimizer = torch.optim.AdamW(parameters, RATE, weight_decay=settings.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    for step in range(steps):
        chosen = torch.randint(len(pixels), (BATCH,), generator=generator)
        batch = pixels.select_rows(chosen)
        loss = selector_teacher.selector_loss(
            batch.score(selector), batch.labels, batch.owner, slots, settings
        )
        gradients = torch.autograd.grad(loss.objective, parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        torch.nn.utils.clip_grad_norm_(parameters, settings.clip)
        optimizer.step()
        schedule.step()
        progress(step + 1, steps)
    for parameter in parameters:
        parameter.grad = None


def _is_of_selector(name: str) -> bool:
    return name.startswith("selector.")
