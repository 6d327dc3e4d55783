"""A selector fitted afterwards: from kept evidence, to the teacher's labels, and nothing else."""

from pathlib import Path

import pytest
import torch
from helpers import SMALL_OVERRIDES

from geoco import config, publishing
from geoco.config.training import SelectorTeacherConfig
from geoco.data import open_dataset
from geoco.errors import GeocoError
from geoco.models import checkpoints
from geoco.models.geoco import GeoCo
from geoco.training import selector_fit, selector_teacher, selector_threshold

SLOTS = 6
OVERRIDES = [*SMALL_OVERRIDES, "data.episodes={train: 5, val: 1, test: 1}"]


def save_run(folder: Path, *overrides: str) -> config.Config:
    """A run with one checkpoint of an untrained model."""
    settings = config.load(None, [*OVERRIDES, *overrides])
    torch.manual_seed(0)
    model = GeoCo(settings.model)
    checkpoints.save(folder / checkpoints.FOLDER, 7, settings, model.state_dict(), {})
    return settings


def build_and_label(
    settings: config.Config,
) -> tuple[GeoCo, selector_fit.LabeledPixels]:
    torch.manual_seed(0)
    model = GeoCo(settings.model).eval()
    dataset = open_dataset(settings.data, "train")
    generator = torch.Generator().manual_seed(1)
    return model, selector_fit.label_clips(model, dataset, 5, settings, generator)


@pytest.mark.parametrize("attention", ["true", "false"])
def test_kept_evidence_gives_the_scores_of_the_selector(attention: str) -> None:
    settings = config.load(None, [*OVERRIDES, f"model.selector.attention={attention}"])
    model, pixels = build_and_label(settings)
    assert model.selector is not None
    dataset, generator = open_dataset(settings.data, "train"), torch.Generator().manual_seed(1)
    row = 0
    for bound in selector_threshold.bind_clips(model, dataset, 5, generator):
        labels = selector_teacher.label_pixels(
            bound.video, bound.fields, bound.attention, bound.domain, teacher_of(settings)
        )
        scores = model.selector(bound.fields, bound.attention, bound.domain)
        for clip in range(len(scores)):
            known = (labels.positive[clip, 0] > 0) | (labels.protected[clip, 0] > 0)
            count = int(known.sum())
            some = pixels.select_rows(torch.tensor([row]))
            torch.testing.assert_close(
                some.score(model.selector)[0, 0, :count], scores[clip, 0][known]
            )
            torch.testing.assert_close(
                some.labels.protected[0, 0, :count], labels.protected[clip, 0][known]
            )
            assert some.labels.positive[0, 0, count:].sum() == 0  # padding teaches nothing
            assert some.labels.protected[0, 0, count:].sum() == 0
            row += 1
    assert row == len(pixels) == 5
    assert pixels.labels.protected.sum() > 0


def teacher_of(settings: config.Config) -> SelectorTeacherConfig:
    return settings.train.selector.teacher


def test_fitting_lowers_the_loss() -> None:
    settings = config.load(None, OVERRIDES)
    model, pixels = build_and_label(settings)
    assert model.selector is not None
    train = settings.train.selector

    def loss() -> float:
        assert model.selector is not None
        with torch.no_grad():
            scores = pixels.score(model.selector)
            losses = selector_teacher.selector_loss(
                scores, pixels.labels, pixels.owner, SLOTS, train
            )
        return float(losses.objective)

    before = loss()
    selector_fit.fit_selector(
        model.selector, pixels, SLOTS, train, 300, torch.Generator().manual_seed(2)
    )
    assert loss() < 0.7 * before
    assert all(parameter.grad is None for parameter in model.parameters())


def test_nothing_but_the_selector_changes(tmp_path: Path) -> None:
    save_run(tmp_path)
    told: list[tuple[str, int, int]] = []
    change = "model.selector.threshold=0.9"
    path = selector_fit.refit_selector(tmp_path, [change], 4, 5, lambda *news: told.append(news))
    old, new = checkpoints.read_weights(tmp_path), checkpoints.read_weights(path)
    assert old.tensors.keys() == new.tensors.keys()
    for name, value in old.tensors.items():
        moved = name.startswith("selector.") and name != "selector.cap"
        assert torch.equal(value, new.tensors[name]) != moved, name
    assert (new.step, new.config.model.selector.threshold) == (7, 0.9)
    assert new.config.train == old.config.train
    assert new.extra == {"selector": "fitted to 4 training clips afterwards"}
    assert told[0] == ("clips", 4, 4)
    assert told[-1] == ("steps", 5, 5)
    assert checkpoints.find_run(path) == tmp_path  # a card then tells of the run
    before = path.read_bytes()
    assert selector_fit.refit_selector(tmp_path, [change], 4, 5).read_bytes() == before
    folder = publishing.publish(path, "tiny", tmp_path / "weights", windows=1)
    card = (folder / "README.md").read_text()
    assert "| selector | fitted to 4 training clips afterwards |" in card
    assert "`geoco train config.yaml` trains a model like it, whose selector learns along." in card


def test_a_model_that_had_none_gets_one(tmp_path: Path) -> None:
    save_run(tmp_path, "model.selector.enabled=false")
    with pytest.raises(GeocoError, match=r"has no selector: add model\.selector\.enabled=true"):
        selector_fit.refit_selector(tmp_path)
    path = selector_fit.refit_selector(tmp_path, ["model.selector.enabled=true"], 4, 5)
    weights = checkpoints.read_weights(path)
    model = GeoCo(weights.config.model)
    checkpoints.load_into(model, weights.tensors, "here")
    assert model.selector is not None


def test_only_the_selector_can_differ(tmp_path: Path) -> None:
    save_run(tmp_path)
    with pytest.raises(GeocoError, match=r"^model\.slots\.count=4: only the selector can differ"):
        selector_fit.refit_selector(tmp_path, ["model.slots.count=4"])
    assert not (tmp_path / checkpoints.REFITTED).exists()
