"""The selector's operating point: precision and recall by hand, and the choice between them."""

import pytest
import torch
from helpers import SMALL_OVERRIDES

from geoco import config
from geoco.config.training import SelectorTeacherConfig
from geoco.data import open_dataset
from geoco.errors import GeocoError
from geoco.models.geoco import GeoCo
from geoco.training import selector_threshold
from geoco.training.selector_threshold import OperatingPoint


def test_precision_and_recall_by_hand() -> None:
    score = torch.tensor([0.95, 0.85, 0.65, 0.35])
    positive = torch.tensor([1.0, 0.0, 0.5, 0.5])
    protected = torch.tensor([0.0, 1.0, 0.0, 0.0])
    points = {
        round(p.threshold, 2): p
        for p in selector_threshold.compute_operating_points(score, positive, protected)
    }
    assert (points[0.9].precision, points[0.9].recall) == (1.0, 0.5)
    assert (points[0.8].precision, points[0.8].recall) == (0.5, 0.5)
    assert points[0.5].precision == pytest.approx(1.5 / 2.5)
    assert points[0.5].recall == pytest.approx(0.75)
    assert (points[0.97].precision, points[0.97].recall) == (1.0, 0.0)


def test_the_smallest_threshold_that_is_precise_enough() -> None:
    points = [
        OperatingPoint(0.1, 0.5, 1.0),
        OperatingPoint(0.4, 0.9, 0.8),
        OperatingPoint(0.7, 0.95, 0.5),
    ]
    assert selector_threshold.choose_operating_point(points, 0.9).threshold == 0.4
    assert selector_threshold.choose_operating_point(points, 0.99).threshold == 0.7


def test_on_a_model() -> None:
    settings = config.load(None, SMALL_OVERRIDES)
    torch.manual_seed(0)
    model = GeoCo(settings.model)
    dataset = open_dataset(settings.data, "train")
    generator = torch.Generator().manual_seed(1)
    points = selector_threshold.measure_operating_points(
        model, dataset, 4, SelectorTeacherConfig(), generator
    )
    recalls = [point.recall for point in points]
    assert len(points) == 99
    assert recalls == sorted(recalls, reverse=True)
    assert max(recalls) > 0


def test_a_model_without_selector_is_refused() -> None:
    settings = config.load(None, [*SMALL_OVERRIDES, "model.selector.enabled=false"])
    dataset = open_dataset(settings.data, "train")
    with pytest.raises(GeocoError, match="has no selector"):
        selector_threshold.measure_operating_points(
            GeoCo(settings.model), dataset, 1, SelectorTeacherConfig(), torch.Generator()
        )
